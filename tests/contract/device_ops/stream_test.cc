// What is enqueued happens in order, also what is recorded once and replayed; what is copied beside
// it, where it says so.

#include <vector>

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

/// As samples reach a program: a copy may overwrite `landing` when the last ones have been taken
/// out of it, and the host `in` when that copy is through.
TEST_P(EachDevice, CopiesInBesideTheStreamComeBetweenItsMarks) {
  constexpr int64_t kCount = 1000;
  constexpr int kRounds = 4;
  const int64_t bytes = kCount * device_->element_bytes();
  Bench bench(*device_);
  const Address landing = bench.zeros(bytes), slot = bench.zeros(bytes), flag = bench.zeros(8);
  Staging in(*device_, kCount);
  std::vector<Staging> out;
  const auto arrived = device_->make_mark(), taken = device_->make_mark();
  for (int round = 1; round <= kRounds; ++round) {
    ASSERT_TRUE(arrived->wait());
    in.fill(round);
    ASSERT_TRUE(device_->copy_in_beside(landing.as<void>(), in.bytes(), *taken, *arrived));
    arrived->hold_stream();
    execute(*device_, CopyArgs{.in = landing, .out = slot, .bytes = bytes});
    taken->set();
    execute(*device_, ScaleArgs{.x = slot, .overflow = flag, .count = kCount, .factor = 2});
    out.emplace_back(*device_, kCount);
    ASSERT_TRUE(device_->enqueue_copy_out(out.back().bytes(), slot.as<void>()));
  }
  ASSERT_TRUE(device_->synchronize());
  for (int round = 1; round <= kRounds; ++round) {
    EXPECT_EQ(out[static_cast<size_t>(round - 1)].at(0), 2 * round);
    EXPECT_EQ(out[static_cast<size_t>(round - 1)].at(kCount - 1), 2 * round);
  }
}

/// Neither before what it copies is there, nor after it has been overwritten.
TEST_P(EachDevice, CopiesOutBesideTheStreamComeBetweenItsMarks) {
  constexpr int64_t kCount = 1000;
  Bench bench(*device_);
  const Address x = bench.zeros(kCount * device_->element_bytes()), flag = bench.zeros(8);
  Staging in(*device_, kCount), first(*device_, kCount), second(*device_, kCount);
  const auto computed = device_->make_mark(), copied = device_->make_mark();
  in.fill(1);
  ASSERT_TRUE(device_->enqueue_copy_in(x.as<void>(), in.bytes()));
  const auto double_it = [&] {
    copied->hold_stream();
    execute(*device_, ScaleArgs{.x = x, .overflow = flag, .count = kCount, .factor = 2});
    computed->set();
  };
  double_it();
  ASSERT_TRUE(device_->copy_out_beside(first.bytes(), x.as<void>(), *computed, *copied));
  ASSERT_TRUE(copied->wait());
  EXPECT_EQ(first.at(kCount - 1), 2);
  double_it();
  ASSERT_TRUE(device_->copy_out_beside(second.bytes(), x.as<void>(), *computed, *copied));
  double_it();
  ASSERT_TRUE(device_->synchronize());
  EXPECT_EQ(second.at(kCount - 1), 4);
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
