// What is enqueued happens in order, also what is recorded once and replayed.

#include "tests/contract/device_ops/bench.h"
#include "worker/engine/elements.h"

namespace motley::testing {
namespace {

/// Host memory of `count` of the device's elements that it copies to and from by itself.
class Staging {
 public:
  Staging(Device& device, int64_t count)
      : precision_(full_precision(device.precision())),
        buffer_(device.allocate_pinned(Bytes(count * device.element_bytes())).value()) {}

  std::span<std::byte> bytes() {
    return {static_cast<std::byte*>(buffer_.data()), static_cast<size_t>(buffer_.size().value())};
  }
  void fill(double value) {
    for (int64_t i = 0; i < elements().count(); ++i) elements().set(i, value);
  }
  double at(int64_t index) { return elements().get(index); }

 private:
  Elements elements() { return {bytes(), precision_}; }

  Precision precision_;
  DeviceBuffer buffer_;
};

TEST_P(EachDevice, CopiesAndOperationsFollowEachOther) {
  constexpr int64_t kCount = 1000;
  Staging in(*device_, kCount), out(*device_, kCount), later(*device_, kCount);
  Bench bench(*device_);
  const Address x = bench.zeros(kCount * device_->element_bytes()), flag = bench.zeros(8);
  const auto copied = device_->make_mark();
  ASSERT_TRUE(copied->wait()) << "a mark that was never set";
  for (int round = 1; round <= 3; ++round) {
    ASSERT_TRUE(copied->wait());  // `in` may be written again
    in.fill(round);
    ASSERT_TRUE(device_->enqueue_copy_in(x.as<void>(), in.bytes()));
    copied->set();
    execute(*device_, ScaleArgs{.x = x, .overflow = flag, .count = kCount, .factor = 2});
    if (round == 2) {
      ASSERT_TRUE(device_->enqueue_copy_out(out.bytes(), x.as<void>()));
    }
  }
  ASSERT_TRUE(device_->enqueue_copy_out(later.bytes(), x.as<void>()));
  ASSERT_TRUE(device_->synchronize());
  for (const int64_t i : {int64_t{0}, kCount - 1}) {
    EXPECT_EQ(out.at(i), 4);
    EXPECT_EQ(later.at(i), 6);
  }
}

/// Often enough for a device that records at the second call. It reads what lies there at each.
TEST_P(EachDevice, RecordingsDoTheSameAtEveryReplay) {
  constexpr int64_t kCount = 1000;
  Bench bench(*device_);
  Staging in(*device_, kCount);
  const Address x = bench.zeros(kCount * device_->element_bytes()),
                sum = bench.zeros(kCount * device_->element_bytes());
  const Address flag = bench.zeros(8);
  const auto recording = device_->record([&, x, sum, flag] {
    execute(*device_, AddArgs{.a = x, .b = sum, .out = sum, .count = kCount});
    execute(*device_, ScaleArgs{.x = x, .overflow = flag, .count = kCount, .factor = 0.5});
    execute(*device_, AddArgs{.a = x, .b = sum, .out = sum, .count = kCount});
  });
  double expected = 0;
  for (int round = 1; round <= 5; ++round) {
    ASSERT_TRUE(device_->synchronize());
    in.fill(2 * round);
    ASSERT_TRUE(device_->enqueue_copy_in(x.as<void>(), in.bytes()));
    recording->replay();
    expected += 3 * round;
  }
  ASSERT_TRUE(device_->synchronize());
  EXPECT_EQ(bench.get(sum), Values(kCount, expected));
}

}  // namespace
}  // namespace motley::testing
