#include "worker/profiler/host_link.h"

#include <gtest/gtest.h>

#include "kernels/reference/reference_device.h"

namespace motley {
namespace {

constexpr Bytes kSize{1 << 20};

/// A reference device on which copies take a time of their own: a fixed one, and by direction and
/// kind of host memory one for each byte.
class TimedDevice final : public Device {
 public:
  double now = 0;

  DeviceKind kind() const override { return reference_.kind(); }
  Precision precision() const override { return reference_.precision(); }
  const OpTable& ops() const override { return reference_.ops(); }
  int threads() const override { return 1; }
  std::string arithmetic_class() const override { return reference_.arithmetic_class(); }
  std::string name() const override { return "timed"; }
  Bytes available_memory() override { return reference_.available_memory(); }
  Result<DeviceBuffer> allocate(Bytes size) override { return reference_.allocate(size); }
  Result<DeviceBuffer> allocate_pinned(Bytes size) override {
    auto buffer = reference_.allocate_pinned(size);
    if (buffer) pinned_ = buffer->data();
    return buffer;
  }
  Result<DeviceBuffer> allocate_managed(Bytes size) override {
    return reference_.allocate_managed(size);
  }
  Result<Unit> copy_in(void* device, std::span<const std::byte> host) override {
    pass(host, 0.5);
    return reference_.copy_in(device, host);
  }
  Result<Unit> copy_out(std::span<std::byte> host, const void* device) override {
    pass(host, 1);
    return reference_.copy_out(host, device);
  }
  Result<Unit> synchronize() override { return Unit{}; }
  bool host_accessible() const override { return false; }
  void parallel_for(int64_t count,
                    const std::function<void(int64_t index, int thread)>& body) override {
    reference_.parallel_for(count, body);
  }
  int64_t allocation_count() const override { return reference_.allocation_count(); }

 private:
  static constexpr double kFixed = 1e-9;

  void pass(std::span<const std::byte> host, double nanoseconds) {
    const double pageable = host.data() == pinned_ ? 1 : 4;
    ++copies_;
    // Now and then something else disturbs.
    const double disturbed = copies_ % 3 == 0 ? 2 : 1;
    now += disturbed * (kFixed + static_cast<double>(host.size()) * nanoseconds * pageable * 1e-9);
  }

  ReferenceDevice reference_;
  const void* pinned_ = nullptr;
  int copies_ = 0;
};

TEST(HostLink, TellsDirectionsAndKindsOfMemoryApart) {
  TimedDevice device;
  const HostLink link = measure_host_link(device, kSize, [&] { return device.now; }).value();
  EXPECT_NEAR(link.to_device, 2e9, 1e5);
  EXPECT_NEAR(link.to_host, 1e9, 1e5);
  EXPECT_NEAR(link.pageable_to_device, 5e8, 1e5);
  EXPECT_NEAR(link.pageable_to_host, 2.5e8, 1e5);
  EXPECT_NEAR(link.latency_seconds, 1e-9 + 8 * 0.5e-9, 1e-10) << "the median is not disturbed";
}

TEST(HostLink, AllocatesOnceOfEachKind) {
  ReferenceDevice device;
  double now = 0;
  EXPECT_TRUE(measure_host_link(device, kSize, [&] { return now += 1e-3; }));
  EXPECT_EQ(device.allocation_count(), 2);
}

TEST(HostLink, AClockThatStandsStillIsNoDivisionByNothing) {
  ReferenceDevice device;
  const HostLink link = measure_host_link(device, kSize, [] { return 5.0; }).value();
  EXPECT_NEAR(link.to_device, static_cast<double>(kSize.value()) * 1e9, 1e9);
}

TEST(HostLink, MemoryThatIsNotThereIsAnError) {
  ReferenceDevice device;
  EXPECT_FALSE(measure_host_link(device, Bytes(int64_t{1} << 60), [] { return 0.0; }));
}

}  // namespace
}  // namespace motley
