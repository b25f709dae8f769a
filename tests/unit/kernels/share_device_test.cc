// Shares of a GPU, with the CUDA module compiled for the CPU (tests/support/cuda_on_host).

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "core/module.h"
#include "kernels/device.h"

namespace motley {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

template <class F>
F function_of_module(const char* name) {
  void* module = dlopen(module_path("motley_cuda").c_str(), RTLD_NOW | RTLD_LOCAL);
  return reinterpret_cast<F>(dlsym(module, name));
}

DeviceSpec gpu(std::optional<ShareSpec> share) {
  DeviceSpec spec;
  spec.id = "here/0";
  spec.share = share;
  return spec;
}

/// Multiprocessors [first, second) that the device's kernels have.
std::pair<unsigned, unsigned> multiprocessors(Device& device) {
  unsigned first = 0;
  const unsigned count = function_of_module<unsigned (*)(void*, unsigned*)>(
      "motley_on_host_multiprocessors")(device.native_stream(), &first);
  return {first, first + count};
}

TEST(ShareDevice, SharesOfOneGpuNeverOverlap) {
  const auto open_contexts = function_of_module<int (*)()>("motley_on_host_green_contexts");
  {
    std::vector<std::unique_ptr<Device>> devices;
    for (const ShareSpec share : {ShareSpec{64, 0}, ShareSpec{32, 64}, ShareSpec{8, 96}}) {
      auto device = open_device(gpu(share));
      ASSERT_TRUE(device) << device.error().message;
      devices.push_back(std::move(*device));
    }
    EXPECT_EQ(multiprocessors(*devices[0]), std::pair(0U, 64U));
    EXPECT_EQ(multiprocessors(*devices[1]), std::pair(64U, 96U));
    EXPECT_EQ(multiprocessors(*devices[2]), std::pair(96U, 104U));
    EXPECT_THAT(devices[1]->name(), EndsWith(" (32 multiprocessors)"));
    EXPECT_THAT(devices[1]->arithmetic_class(), EndsWith(":32-multiprocessors"));
    EXPECT_EQ(open_contexts(), 3);
  }
  EXPECT_EQ(open_contexts(), 0);
  const auto whole = open_device(gpu(std::nullopt));
  ASSERT_TRUE(whole);
  EXPECT_EQ(multiprocessors(**whole), std::pair(0U, 132U));
}

TEST(ShareDevice, AShareComputes) {
  const auto device = open_device(gpu(ShareSpec{16, 8}));
  ASSERT_TRUE(device);
  const auto memory = (*device)->allocate(Bytes(sizeof(float) * 4));
  ASSERT_TRUE(memory);
  std::array<float, 4> values{1, 2, 3, 4};
  ASSERT_TRUE((*device)->copy_in(memory->data(), std::as_bytes(std::span(values))));
  const AddArgs twice{.a = Address::of(memory->data()),
                      .b = Address::of(memory->data()),
                      .out = Address::of(memory->data()),
                      .count = 4};
  execute(**device, twice);
  ASSERT_TRUE((*device)->copy_out(std::as_writable_bytes(std::span(values)), memory->data()));
  EXPECT_EQ(values, (std::array<float, 4>{2, 4, 6, 8}));
}

TEST(ShareDevice, KnowsWhetherItIsThrough) {
  const auto device = open_device(gpu(std::nullopt));
  ASSERT_TRUE(device);
  const auto memory = (*device)->allocate(Bytes(64));
  ASSERT_TRUE(memory);
  EXPECT_TRUE(*(*device)->idle());
  execute(**device, ZeroArgs{.out = Address::of(memory->data()), .bytes = 64});
  EXPECT_FALSE(*(*device)->idle());
  while (!*(*device)->idle()) continue;
  std::array<std::byte, 64> values{};
  ASSERT_TRUE((*device)->copy_out(values, memory->data()));
  EXPECT_EQ(values[63], std::byte{0});
}

TEST(ShareDevice, AShareThatCannotBeIsOneLine) {
  const auto odd = open_device(gpu(ShareSpec{30, 0}));
  ASSERT_FALSE(odd);
  EXPECT_EQ(odd.error().code, ErrorCode::kInvalidSpec);
  EXPECT_THAT(odd.error().message,
              HasSubstr("has 132, dealt out in 16 groups of 8; nearest: 24 or 32"));
  const auto beyond = open_device(gpu(ShareSpec{64, 96}));
  ASSERT_FALSE(beyond);
  EXPECT_THAT(beyond.error().message, HasSubstr("32 left; nearest: 32"));
}

}  // namespace
}  // namespace motley
