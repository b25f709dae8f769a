// The kinds of memory a device hands out (kernels/device.h).

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <vector>

#include "kernels/device.h"
#include "tests/support/test_device.h"

namespace motley {
namespace {

constexpr Bytes kSize{1 << 20};

std::unique_ptr<Device> device() {
  DeviceSpec spec;
  spec.kind = testing::test_device();
  auto opened = open_device(spec);
  EXPECT_TRUE(opened) << opened.error().to_string();
  return std::move(*opened);
}

std::span<std::byte> bytes_of(const DeviceBuffer& buffer) {
  return {static_cast<std::byte*>(buffer.data()), static_cast<size_t>(buffer.size().value())};
}

TEST(DeviceMemory, PinnedMemoryIsTheHostsAndCopiesBothWays) {
  const auto gpu = device();
  const DeviceBuffer on_device = gpu->allocate(kSize).value();
  const int64_t before = gpu->allocation_count();
  const DeviceBuffer pinned = gpu->allocate_pinned(kSize).value();
  EXPECT_EQ(gpu->allocation_count(), before + 1);
  EXPECT_EQ(pinned.size(), kSize);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(pinned.data()) % 64, 0u);
  std::memset(pinned.data(), 7, bytes_of(pinned).size());
  ASSERT_TRUE(gpu->copy_in(on_device.data(), bytes_of(pinned)));
  std::memset(pinned.data(), 0, bytes_of(pinned).size());
  ASSERT_TRUE(gpu->copy_out(bytes_of(pinned), on_device.data()));
  for (const std::byte value : bytes_of(pinned)) ASSERT_EQ(value, std::byte{7});
}

TEST(DeviceMemory, ManagedMemoryIsBothSidesOnceTheDeviceIsThrough) {
  const auto gpu = device();
  const DeviceBuffer managed = gpu->allocate_managed(kSize).value();
  std::memset(managed.data(), 7, bytes_of(managed).size());
  std::vector<std::byte> seen(bytes_of(managed).size());
  ASSERT_TRUE(gpu->copy_out(seen, managed.data()));
  for (const std::byte value : seen) ASSERT_EQ(value, std::byte{7});
  execute(*gpu, ZeroArgs{.out = Address::of(managed.data()), .bytes = kSize.value()});
  ASSERT_TRUE(gpu->synchronize());
  for (const std::byte value : bytes_of(managed)) ASSERT_EQ(value, std::byte{0});
}

TEST(DeviceMemory, WhatTheDeviceDoesNotHaveIsOutOfMemory) {
  const auto gpu = device();
  const auto refused = gpu->allocate(Bytes(int64_t{1} << 62));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kOutOfMemory);
  ASSERT_TRUE(gpu->synchronize()) << "no fault of what follows";
  if (gpu->host_accessible()) return;
  // The driver keeps some of what it does not call free, and gives it away all the same.
  const Bytes more(2 * gpu->available_memory().value());
  EXPECT_FALSE(gpu->allocate(more));
  // Of an emulated GPU: one of many gigabytes may hang when more managed memory is asked for.
  if (more >= Bytes(1 << 30)) return;
  EXPECT_TRUE(gpu->allocate_managed(more)) << "which the host holds";
}

TEST(DeviceMemory, NothingTakesNoMemory) {
  const auto gpu = device();
  EXPECT_EQ(gpu->allocate(Bytes(0)).value().data(), nullptr);
  EXPECT_EQ(gpu->allocate_pinned(Bytes(0)).value().data(), nullptr);
  EXPECT_EQ(gpu->allocate_managed(Bytes(0)).value().data(), nullptr);
}

}  // namespace
}  // namespace motley
