#include "kernels/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "kernels/cpu/blas.h"
#include "kernels/cpu/instruction_set.h"

namespace motley {
namespace {

DeviceSpec cpu_spec(int threads) {
  DeviceSpec spec;
  spec.kind = DeviceKind::kCpu;
  spec.threads = threads;
  return spec;
}

TEST(DeviceBuffer, ReleasesOnceHoweverOftenMoved) {
  int memory = 0, released = 0;
  const auto release = [&](void* data) {
    EXPECT_EQ(data, &memory);
    ++released;
  };
  {
    DeviceBuffer first(&memory, Bytes(4), release);
    DeviceBuffer second(std::move(first));
    EXPECT_EQ(first.data(), nullptr);
    EXPECT_EQ(first.size(), Bytes(0));
    DeviceBuffer third;
    third = std::move(second);
    EXPECT_EQ(third.data(), &memory);
    EXPECT_EQ(third.size(), Bytes(4));
    EXPECT_EQ(released, 0);
  }
  EXPECT_EQ(released, 1);
}

TEST(DeviceBuffer, AssignmentReleasesWhatWasHeld) {
  int a = 0, b = 0;
  std::vector<void*> released;
  const auto release = [&](void* data) { released.push_back(data); };
  DeviceBuffer buffer(&a, Bytes(4), release);
  buffer = DeviceBuffer(&b, Bytes(4), release);
  EXPECT_THAT(released, ::testing::ElementsAre(&a));
  buffer = DeviceBuffer();
  EXPECT_THAT(released, ::testing::ElementsAre(&a, &b));
}

TEST(CpuDevice, AllocatesAlignedCountedMemory) {
  const auto device = open_device(cpu_spec(2)).value();
  EXPECT_EQ(device->allocation_count(), 0);
  for (const int64_t size : {int64_t{1}, int64_t{63}, int64_t{1000}, int64_t{9} << 20}) {
    const DeviceBuffer buffer = device->allocate(Bytes(size)).value();
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0u);
    EXPECT_EQ(buffer.size(), Bytes(size));
    std::memset(buffer.data(), 1, static_cast<size_t>(size));
  }
  EXPECT_EQ(device->allocation_count(), 4);
  EXPECT_EQ(device->allocate(Bytes(0)).value().data(), nullptr);
}

TEST(CpuDevice, RefusesMemoryThatIsNotThere) {
  const auto device = open_device(cpu_spec(1)).value();
  const auto buffer = device->allocate(Bytes(int64_t{1} << 62));
  ASSERT_FALSE(buffer.has_value());
  EXPECT_EQ(buffer.error().code, ErrorCode::kOutOfMemory);
}

TEST(CpuDevice, CopiesBothWays) {
  const auto device = open_device(cpu_spec(1)).value();
  const DeviceBuffer buffer = device->allocate(Bytes(8)).value();
  const std::vector<std::byte> in(8, std::byte{7});
  std::vector<std::byte> out(8);
  ASSERT_TRUE(device->copy_in(buffer.data(), in).has_value());
  ASSERT_TRUE(device->copy_out(out, buffer.data()).has_value());
  EXPECT_EQ(in, out);
}

// Resuming in `exact` compares this text: it must name whatever can change a bit.
TEST(CpuDevice, ArithmeticClassNamesInstructionSetAndLibrary) {
  const auto device = open_device(cpu_spec(3)).value();
  const Blas& blas = *open_blas().value();
  EXPECT_EQ(device->arithmetic_class(),
            "cpu:" + kernel_instruction_set() + ":openblas-" + blas.version + "-" + blas.core);
  EXPECT_THAT(blas.version, ::testing::ContainsRegex("^[0-9]+\\.[0-9]+"));
  EXPECT_FALSE(blas.core.empty());
  EXPECT_EQ(device->threads(), 3);
}

TEST(OpenDevice, NoThreadsIsAnInvalidSpec) {
  const auto device = open_device(cpu_spec(0));
  ASSERT_FALSE(device.has_value());
  EXPECT_EQ(device.error().code, ErrorCode::kInvalidSpec);
}

TEST(OpenDevice, ReferenceComputesInDouble) {
  DeviceSpec spec;
  spec.kind = DeviceKind::kReference;
  const auto device = open_device(spec).value();
  EXPECT_EQ(device->element_bytes(), 8);
  EXPECT_EQ(device->arithmetic_class(), "reference:float64");
}

TEST(DiscoverDevices, FindsTheCpuFirst) {
  std::string note;
  const std::vector<FoundDevice> found = discover_devices(&note);
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found[0].kind, DeviceKind::kCpu);
  EXPECT_FALSE(found[0].name.empty());
  EXPECT_FALSE(found[0].capability.empty());
  EXPECT_GE(found[0].cores, 1);
  EXPECT_GT(found[0].free_memory, Bytes(0));
  EXPECT_LE(found[0].free_memory, found[0].memory);
  EXPECT_EQ(found.size() == 1, !note.empty()) << "a missing GPU is explained";
  EXPECT_EQ(note.find('\n'), std::string::npos);
}

TEST(FlopsOf, CountsMultiplicationsAndAdditions) {
  EXPECT_EQ(flops_of(MatmulArgs{.a = {}, .b = {}, .c = {}, .m = 3, .n = 5, .k = 7}), 210);
  EXPECT_EQ(flops_of(ZeroArgs{}), 0);
}

}  // namespace
}  // namespace motley
