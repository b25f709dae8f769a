// NCCL through a stand-in (tests/support/nccl_stand_in.cc), ranks as threads.

#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <mutex>
#include <string>
#include <vector>

#include "comm/device_communicator.h"
#include "kernels/reference/reference_device.h"
#include "tests/support/paths.h"

namespace motley {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;

constexpr const char* kStandIn = "libnccl.so.2";

std::string stand_in(const std::string& file) {
  return testing::bin_dir().parent_path() / "lib" / "stand_in" / file;
}

template <class F>
F function_of_stand_in(const char* name) {
  void* library = dlopen(stand_in(kStandIn).c_str(), RTLD_NOW | RTLD_LOCAL);
  return reinterpret_cast<F>(dlsym(library, name));
}
int stand_in_count(const char* what) {
  return function_of_stand_in<int (*)(const char*)>("nccl_stand_in_count")(what);
}

/// A device whose work is what the stand-in has enqueued.
class StreamDevice final : public Device {
 public:
  explicit StreamDevice(int rank) : rank_(rank) {}

  DeviceKind kind() const override { return DeviceKind::kReference; }
  Precision precision() const override { return Precision::kFp64; }
  const OpTable& ops() const override { return reference_.ops(); }
  int threads() const override { return 1; }
  std::string arithmetic_class() const override { return "stream"; }
  std::string name() const override { return "stream"; }
  Bytes available_memory() override { return Bytes(0); }
  Result<DeviceBuffer> allocate(Bytes size) override { return reference_.allocate(size); }
  Result<DeviceBuffer> allocate_pinned(Bytes size) override {
    return reference_.allocate_pinned(size);
  }
  Result<DeviceBuffer> allocate_managed(Bytes size) override {
    return reference_.allocate_managed(size);
  }
  Result<Unit> copy_in(void* device, std::span<const std::byte> host) override {
    return reference_.copy_in(device, host);
  }
  Result<Unit> copy_out(std::span<std::byte> host, const void* device) override {
    return reference_.copy_out(host, device);
  }
  Result<Unit> synchronize() override { return Unit{}; }
  Result<bool> idle() override {
    if (faulty) return fail(ErrorCode::kDeviceLost, "card: illegal address");
    static const auto busy = function_of_stand_in<bool (*)(int)>("nccl_stand_in_busy");
    return !busy(rank_);
  }
  bool host_accessible() const override { return true; }
  void parallel_for(int64_t, const std::function<void(int64_t, int)>&) override {}
  int64_t allocation_count() const override { return 0; }

  bool faulty = false;

 private:
  ReferenceDevice reference_;
  int rank_;
};

using Body = std::function<Result<Unit>(DeviceCommunicator&, StreamDevice&)>;

class NcclTest : public ::testing::Test {
 protected:
  void SetUp() override { unsetenv("MOTLEY_NCCL_STAND_IN"); }
  void order(const char* mishap) {
    setenv("MOTLEY_NCCL_STAND_IN", mishap, 1);
    hurry();
  }
  /// Waits for nobody longer than it takes all to come on a busy machine.
  void hurry() { timeout_ = Nanos(2'000'000'000); }

  /// Each rank with the library of `library_of`.
  Result<Unit> run(int ranks, const Body& body,
                   const std::function<std::string(int)>& library_of = standard) {
    return run_inproc(ranks, [&](Communicator& world) -> Result<Unit> {
      StreamDevice device(world.rank());
      const std::string library = library_of(world.rank());
      auto opened = open_nccl_communicator(world, device, {.timeout = timeout_}, library.c_str());
      if (opened) return body(**opened, device);
      {
        const std::lock_guard lock(mutex_);
        refusals_.push_back(opened.error());
      }
      return world.barrier();  // it remains usable
    });
  }
  /// Of an island that does not come about: the same for all ranks.
  std::string refusal(int ranks, const std::function<std::string(int)>& library_of = standard) {
    const auto unused = [](DeviceCommunicator&, StreamDevice&) -> Result<Unit> {
      return fail(ErrorCode::kInternal, "opened");
    };
    const auto ended = run(ranks, unused, library_of);
    EXPECT_TRUE(ended) << ended.error().message;
    EXPECT_EQ(refusals_.size(), static_cast<size_t>(ranks));
    for (const Error& error : refusals_) {
      EXPECT_EQ(error.code, ErrorCode::kUnsupported);
      EXPECT_EQ(error.message, refusals_[0].message);
    }
    return refusals_.empty() ? "" : refusals_[0].message;
  }
  static std::string standard(int) { return stand_in(kStandIn); }

  std::vector<Error> ends_of_sum();

  Nanos timeout_ = CommunicatorOptions{}.timeout;
  std::mutex mutex_;
  std::vector<Error> refusals_;
};

/// Small integers, whose sums are exact in any order.
template <class T>
std::vector<T> values_of(int rank, size_t count) {
  std::vector<T> values(count);
  for (size_t i = 0; i < count; ++i)
    values[i] = static_cast<T>((rank + 1) * static_cast<int>(i % 7) - 3);
  return values;
}
template <class T>
std::vector<T> sum_over(int ranks, size_t count) {
  std::vector<T> sum(count);
  for (int rank = 0; rank < ranks; ++rank) {
    const auto values = values_of<T>(rank, count);
    for (size_t i = 0; i < count; ++i) sum[i] += values[i];
  }
  return sum;
}
template <class T>
DeviceArray array(std::vector<T>& values) {
  const SumType element = sum_type_of<T>();
  return {values.data(), static_cast<int64_t>(values.size()), element};
}

template <class T>
Result<Unit> check_reductions(DeviceCommunicator& island, size_t count) {
  const auto ranks = static_cast<size_t>(island.size());
  const auto rank = static_cast<size_t>(island.rank());
  auto all = values_of<T>(island.rank(), count);
  MOTLEY_TRY_VOID(island.all_reduce_sum(array(all)));
  MOTLEY_TRY_VOID(island.wait());
  EXPECT_EQ(all, sum_over<T>(island.size(), count));

  auto at_last = values_of<T>(island.rank(), count);
  MOTLEY_TRY_VOID(island.reduce_sum(array(at_last), island.size() - 1));
  MOTLEY_TRY_VOID(island.wait());
  EXPECT_EQ(at_last, rank + 1 == ranks ? all : values_of<T>(island.rank(), count));

  auto whole = values_of<T>(island.rank(), count * ranks);
  std::vector<T> own(count), gathered(count * ranks);
  MOTLEY_TRY_VOID(island.reduce_scatter_sum(whole.data(), array(own)));
  MOTLEY_TRY_VOID(island.all_gather(array(own), gathered.data()));  // queues up behind it
  MOTLEY_TRY_VOID(island.wait());
  const auto expected = sum_over<T>(island.size(), count * ranks);
  EXPECT_EQ(gathered, expected);
  EXPECT_TRUE(
      std::equal(own.begin(), own.end(), expected.begin() + static_cast<int64_t>(rank * count)));
  return Unit{};
}

TEST_F(NcclTest, ReducesAndGathersEveryType) {
  for (const int ranks : {1, 2, 3, 5})
    for (const size_t count : {size_t{1}, size_t{1000}}) {
      const auto ended = run(ranks, [&](DeviceCommunicator& island, StreamDevice&) -> Result<Unit> {
        EXPECT_EQ(island.size(), ranks);
        EXPECT_EQ(island.description(), "NCCL 2.28.9");
        MOTLEY_TRY_VOID(check_reductions<float>(island, count));
        MOTLEY_TRY_VOID(check_reductions<double>(island, count));
        MOTLEY_TRY_VOID(check_reductions<int64_t>(island, count));
        return island.close();
      });
      EXPECT_TRUE(ended) << ended.error().message;
    }
}

TEST_F(NcclTest, IntegersWrap) {
  const auto ended = run(3, [](DeviceCommunicator& island, StreamDevice&) -> Result<Unit> {
    std::vector<int64_t> most{std::numeric_limits<int64_t>::max()};
    MOTLEY_TRY_VOID(island.all_reduce_sum(array(most)));
    MOTLEY_TRY_VOID(island.wait());
    EXPECT_EQ(most[0], std::numeric_limits<int64_t>::max() - 2);
    return island.close();
  });
  EXPECT_TRUE(ended);
}

TEST_F(NcclTest, EachRankGivesItsWeight) {
  const auto ended = run(3, [](DeviceCommunicator& island, StreamDevice&) -> Result<Unit> {
    const double weight = 0.25 * (1 << island.rank());  // 0.25, 0.5, 1
    std::vector<float> narrow{4, 8};
    std::vector<double> wide{4, 8};
    MOTLEY_TRY_VOID(island.all_reduce_weighted_sum(array(narrow), weight));
    MOTLEY_TRY_VOID(island.all_reduce_weighted_sum(array(wide), weight));
    MOTLEY_TRY_VOID(island.wait());
    EXPECT_EQ(narrow, (std::vector<float>{7, 14}));
    EXPECT_EQ(wide, (std::vector<double>{7, 14}));
    return island.close();
  });
  EXPECT_TRUE(ended);
}

TEST_F(NcclTest, BroadcastsAndExchanges) {
  const auto ended = run(3, [](DeviceCommunicator& island, StreamDevice&) -> Result<Unit> {
    const int rank = island.rank(), next = (rank + 1) % 3, last = (rank + 2) % 3;
    std::string text = rank == 1 ? "from 1" : "......";
    MOTLEY_TRY_VOID(island.broadcast(text.data(), 6, 1));
    MOTLEY_TRY_VOID(island.wait());
    EXPECT_EQ(text, "from 1");
    // Each to the next, and rank 0 a second time: as many calls as it has to make.
    std::string mine(1, static_cast<char>('a' + rank)), other = "?", more = "?", extra = "x";
    std::vector<DeviceTransfer> receives{{last, other.data(), 1}}, sends{{next, mine.data(), 1}};
    if (rank == 0) sends.push_back({1, extra.data(), 1});
    if (rank == 1) receives.push_back({0, more.data(), 1});
    MOTLEY_TRY_VOID(island.exchange(receives, sends));
    MOTLEY_TRY_VOID(island.wait());
    EXPECT_EQ(other[0], 'a' + last);
    EXPECT_EQ(more, rank == 1 ? "x" : "?");
    MOTLEY_TRY_VOID(check_reductions<float>(island, 10));
    return island.close();
  });
  EXPECT_TRUE(ended) << ended.error().message;
}

TEST_F(NcclTest, LeavesInGoodOrderOrAborts) {
  const int aborted = stand_in_count("abort"), destroyed = stand_in_count("destroy"),
            finalized = stand_in_count("finalize");
  EXPECT_TRUE(run(2, [](DeviceCommunicator& island, StreamDevice&) { return island.close(); }));
  EXPECT_EQ(stand_in_count("finalize"), finalized + 2);
  EXPECT_EQ(stand_in_count("destroy"), destroyed + 2);
  EXPECT_EQ(stand_in_count("abort"), aborted);
  EXPECT_TRUE(run(2, [](DeviceCommunicator&, StreamDevice&) -> Result<Unit> { return Unit{}; }));
  EXPECT_EQ(stand_in_count("abort"), aborted + 2);
}

TEST_F(NcclTest, AMissingLibraryIsOneLineOnAllRanks) {
  EXPECT_THAT(
      refusal(3, [](int rank) { return rank == 1 ? "libno_nccl.so.2" : standard(rank); }),
      AllOf(HasSubstr("rank 1: no NCCL: libno_nccl.so.2"), ::testing::Not(HasSubstr("\n"))));
}

TEST_F(NcclTest, AnOldOrUnlikeOrIncompleteLibraryIsRefused) {
  EXPECT_EQ(refusal(2, [](int) { return stand_in("nccl_stand_in_old.so"); }),
            "rank 0: NCCL 2.13.4 is too old: 2.14.0 is the first that serves");
  refusals_.clear();
  EXPECT_EQ(refusal(2, [](int) { return stand_in("nccl_stand_in_incomplete.so"); }),
            "rank 0: NCCL 2.28.9 lacks the function ncclCommInitRankConfig");
  refusals_.clear();
  EXPECT_EQ(
      refusal(3,
              [](int rank) { return stand_in(rank == 2 ? "nccl_stand_in_other.so" : kStandIn); }),
      "NCCL is 2.28.9 on rank 0, 2.21.5 on rank 2");
}

TEST_F(NcclTest, ARankThatCannotConnectKeepsAllFromIt) {
  order("init_fails=1");
  EXPECT_THAT(refusal(3), HasSubstr("rank 1 of 3, connecting: unhandled system error"));
}

TEST_F(NcclTest, ARankThatNeverComesIsNotWaitedForForEver) {
  order("absent=2");
  const int aborted = stand_in_count("abort");
  EXPECT_THAT(refusal(3), EndsWith("connecting: other ranks did not come within 2 s"));
  EXPECT_EQ(stand_in_count("abort"), aborted + 3);
}

/// What ends a sum of two ranks, by rank.
std::vector<Error> NcclTest::ends_of_sum() {
  std::vector<Error> ends(2);
  const auto ended = run(2, [&](DeviceCommunicator& island, StreamDevice&) -> Result<Unit> {
    std::vector<float> values(10);
    Result<Unit> summed = island.all_reduce_sum(array(values));
    if (summed) summed = island.wait();
    if (summed) return fail(ErrorCode::kInternal, "summed");
    ends[static_cast<size_t>(island.rank())] = summed.error();
    const auto later = island.all_reduce_sum(array(values));
    EXPECT_EQ(later ? "" : later.error().message, summed.error().message) << "it is over";
    EXPECT_FALSE(island.wait());
    EXPECT_TRUE(island.close()) << "nothing is left to close";
    return Unit{};
  });
  EXPECT_TRUE(ended) << ended.error().message;
  return ends;
}

TEST_F(NcclTest, AFaultBehindOnesBackEndsTheGroup) {
  order("fails_at=1:0");
  const int aborted = stand_in_count("abort");
  const auto ends = ends_of_sum();
  EXPECT_EQ(ends[1].code, ErrorCode::kPeerLost);
  EXPECT_THAT(ends[1].message, AllOf(HasSubstr("NCCL, rank 1 of 2"),
                                     HasSubstr("remote process exited"), HasSubstr("told to")));
  EXPECT_EQ(ends[0].code, ErrorCode::kPeerLost);
  EXPECT_THAT(ends[0].message, EndsWith("waiting: other ranks did not come within 2 s"));
  EXPECT_EQ(stand_in_count("abort"), aborted + 2);
}

TEST_F(NcclTest, ACallThatNobodyJoinsHasADeadline) {
  order("lost_at=0:0");
  for (const Error& error : ends_of_sum()) {
    EXPECT_EQ(error.code, ErrorCode::kPeerLost);
    EXPECT_THAT(error.message, HasSubstr("did not come"));
  }
}

TEST_F(NcclTest, CallsThatDoNotMatchAreRefused) {
  hurry();
  std::vector<std::string> errors(2);
  const auto ended = run(2, [&](DeviceCommunicator& island, StreamDevice&) -> Result<Unit> {
    std::vector<float> values(island.rank() == 0 ? 3 : 4);
    Result<Unit> summed = island.all_reduce_sum(array(values));
    if (summed) summed = island.wait();
    EXPECT_FALSE(summed);
    if (!summed) errors[static_cast<size_t>(island.rank())] = summed.error().message;
    return Unit{};
  });
  EXPECT_TRUE(ended);
  EXPECT_THAT(errors, ::testing::Contains(HasSubstr("all-reduce: invalid usage")));
}

TEST_F(NcclTest, AFaultOfTheDeviceIsItsOwn) {
  const int aborted = stand_in_count("abort");
  const auto ended = run(2, [](DeviceCommunicator& island, StreamDevice& device) -> Result<Unit> {
    std::vector<float> values(10);
    device.faulty = true;
    MOTLEY_TRY_VOID(island.all_reduce_sum(array(values)));
    const auto waited = island.wait();
    EXPECT_FALSE(waited);
    if (waited) return Unit{};
    EXPECT_EQ(waited.error().code, ErrorCode::kDeviceLost);
    EXPECT_EQ(waited.error().message, "card: illegal address");
    return Unit{};
  });
  EXPECT_TRUE(ended);
  EXPECT_EQ(stand_in_count("abort"), aborted + 2);
}

}  // namespace
}  // namespace motley
