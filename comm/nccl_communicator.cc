#include <algorithm>
#include <cmath>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "comm/device_communicator.h"
#include "comm/nccl_library.h"
#include "core/check.h"
#include "core/clock.h"
#include "core/log.h"

namespace motley {
namespace {

using nccl::Library;
using nccl::Status;

/// A rank that waits looks this often; the first looks follow each other at once.
constexpr Nanos kLook{50'000};
constexpr int kEagerLooks = 200;

/// NCCL connects in seconds: who does not within this will not, and gradients have another way.
constexpr Nanos kMostConnecting{int64_t{120} * 1'000'000'000};
constexpr Nanos kMostClosing{int64_t{10} * 1'000'000'000};

/// A deadline, and pauses on the way to it.
class Patience {
 public:
  explicit Patience(Nanos most) : most_(most), end_(steady_clock().now() + most) {}

  bool over() const { return steady_clock().now() >= end_; }
  void pause() {
    if (looks_++ < kEagerLooks)
      std::this_thread::yield();
    else
      steady_clock().sleep_until(steady_clock().now() + kLook);
  }
  std::string text() const { return std::to_string(most_.value() / 1'000'000'000) + " s"; }

 private:
  Nanos most_;
  Nanos end_;
  int looks_ = 0;
};

nccl::DataType type_of(SumType element) {
  switch (element) {
    case SumType::kFloat32:
      return nccl::kFloat32;
    case SumType::kFloat64:
      return nccl::kFloat64;
    case SumType::kInt64:
      return nccl::kInt64;
  }
  return nccl::kFloat32;
}

class NcclCommunicator final : public DeviceCommunicator {
 public:
  NcclCommunicator(const Library& library, Communicator& ranks, Device& device, Nanos timeout)
      : library_(library),
        rank_(ranks.rank()),
        size_(ranks.size()),
        device_(device),
        timeout_(timeout) {}
  ~NcclCommunicator() override { abort(); }
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  /// Collective; the peers may be found not to come.
  Result<Unit> connect(const nccl::UniqueId& id) {
    nccl::Config config;
    const Status status = library_.init(&comm_, size_, id, rank_, &config);
    return settle("connecting", status, std::min(timeout_, kMostConnecting));
  }

  /// Whether its end was that others did not come: one of them knows the cause.
  bool waited_in_vain() const { return waited_in_vain_; }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string description() const override { return "NCCL " + library_.version_text(); }

  Result<Unit> all_reduce_sum(const DeviceArray& inout) override {
    return reduce("all-reduce", inout, nccl::kSum);
  }
  Result<Unit> reduce_sum(const DeviceArray& inout, int root) override {
    return enqueue("reduce", [&] {
      return library_.reduce(inout.data, inout.data, static_cast<size_t>(inout.count),
                             type_of(inout.element), nccl::kSum, root, comm_, stream());
    });
  }
  Result<Unit> all_reduce_weighted_sum(const DeviceArray& inout, double weight) override;
  Result<Unit> reduce_scatter_sum(const void* all, const DeviceArray& own) override {
    return enqueue("reduce-scatter", [&] {
      return library_.reduce_scatter(all, own.data, static_cast<size_t>(own.count),
                                     type_of(own.element), nccl::kSum, comm_, stream());
    });
  }
  Result<Unit> all_gather(const DeviceArray& own, void* all) override {
    return enqueue("all-gather", [&] {
      return library_.all_gather(own.data, all, static_cast<size_t>(own.count),
                                 type_of(own.element), comm_, stream());
    });
  }
  Result<Unit> broadcast(void* data, int64_t bytes, int root) override {
    return enqueue("broadcast", [&] {
      return library_.broadcast(data, data, static_cast<size_t>(bytes), nccl::kInt8, root, comm_,
                                stream());
    });
  }
  Result<Unit> exchange(std::span<const DeviceTransfer> receives,
                        std::span<const DeviceTransfer> sends) override;
  Result<Unit> wait() override;
  Result<Unit> close() override;

 private:
  /// The one that computes: a step sums what it has computed last, and its update needs all of it,
  /// so that a stream for these alone would have nothing beside it.
  nccl::Stream stream() const { return device_.native_stream(); }

  template <class Call>
  Result<Unit> enqueue(const char* operation, const Call& call) {
    if (comm_ == nullptr) return fail(ErrorCode::kPeerLost, ended_);
    return settle(operation, call(), timeout_);
  }
  Result<Unit> reduce(const char* operation, const DeviceArray& inout, nccl::RedOp op) {
    return enqueue(operation, [&] {
      return library_.all_reduce(inout.data, inout.data, static_cast<size_t>(inout.count),
                                 type_of(inout.element), op, comm_, stream());
    });
  }
  /// Until what was begun is no longer in progress.
  Result<Unit> settle(const char* operation, Status status, Nanos most);
  tl::unexpected<Error> end_waiting(const char* operation, const Patience& patience);
  tl::unexpected<Error> end(const char* operation, const std::string& reason);
  void abort();

  const Library& library_;
  const int rank_;
  const int size_;
  Device& device_;
  const Nanos timeout_;
  nccl::Comm comm_ = nullptr;  ///< null before connect() and after the end
  std::string ended_ = "the NCCL communicator is not connected";
  bool waited_in_vain_ = false;
};

Result<Unit> NcclCommunicator::settle(const char* operation, Status status, Nanos most) {
  Patience patience(most);
  while (status == nccl::kInProgress) {
    if (patience.over()) return end_waiting(operation, patience);
    patience.pause();
    const Status asked = library_.get_async_error(comm_, &status);
    if (asked != nccl::kSuccess) status = asked;
  }
  if (status == nccl::kSuccess) return Unit{};
  return end(operation, library_.reason(status, comm_));
}

tl::unexpected<Error> NcclCommunicator::end_waiting(const char* operation,
                                                    const Patience& patience) {
  waited_in_vain_ = true;
  return end(operation, "other ranks did not come within " + patience.text());
}

tl::unexpected<Error> NcclCommunicator::end(const char* operation, const std::string& reason) {
  ended_ = "NCCL, rank " + std::to_string(rank_) + " of " + std::to_string(size_) + ", " +
           operation + ": " + reason;
  abort();
  return fail(ErrorCode::kPeerLost, ended_);
}

/// What is under way on the device ends, too.
void NcclCommunicator::abort() {
  if (comm_ != nullptr) library_.abort(std::exchange(comm_, nullptr));
}

Result<Unit> NcclCommunicator::all_reduce_weighted_sum(const DeviceArray& inout, double weight) {
  MOTLEY_CHECK(inout.element != SumType::kInt64, "a weighted sum of integers");
  MOTLEY_CHECK(std::isfinite(weight) && weight > 0, "a weight that is not above zero");
  float narrow = static_cast<float>(weight);
  void* const scalar = inout.element == SumType::kFloat64 ? static_cast<void*>(&weight)
                                                          : static_cast<void*>(&narrow);
  nccl::RedOp op = nccl::kSum;
  MOTLEY_TRY_VOID(enqueue("weights", [&] {
    return library_.create_weighted_sum(&op, scalar, type_of(inout.element), nccl::kHostImmediate,
                                        comm_);
  }));
  MOTLEY_TRY_VOID(reduce("weighted all-reduce", inout, op));
  return enqueue("weights", [&] { return library_.destroy_op(op, comm_); });
}

Result<Unit> NcclCommunicator::exchange(std::span<const DeviceTransfer> receives,
                                        std::span<const DeviceTransfer> sends) {
  return enqueue("exchange", [&] {
    Status status = library_.group_start();
    // In progress means enqueued here: the group's end tells for all.
    const auto going = [&] { return status == nccl::kSuccess || status == nccl::kInProgress; };
    for (size_t i = 0; i < receives.size() && going(); ++i)
      status = library_.receive(receives[i].data, static_cast<size_t>(receives[i].bytes),
                                nccl::kInt8, receives[i].peer, comm_, stream());
    for (size_t i = 0; i < sends.size() && going(); ++i)
      status = library_.send(sends[i].data, static_cast<size_t>(sends[i].bytes), nccl::kInt8,
                             sends[i].peer, comm_, stream());
    const Status ended = library_.group_end();
    return going() ? ended : status;
  });
}

Result<Unit> NcclCommunicator::wait() {
  if (comm_ == nullptr) return fail(ErrorCode::kPeerLost, ended_);
  Patience patience(timeout_);
  while (true) {
    Status status = nccl::kSuccess;
    const Status asked = library_.get_async_error(comm_, &status);
    if (asked != nccl::kSuccess) status = asked;
    if (status != nccl::kSuccess && status != nccl::kInProgress)
      return end("waiting", library_.reason(status, comm_));
    const Result<bool> idle = device_.idle();
    if (!idle) {
      ended_ = idle.error().message;
      abort();
      return fail(idle.error());
    }
    if (*idle && status == nccl::kSuccess) return Unit{};
    if (patience.over()) return end_waiting("waiting", patience);
    patience.pause();
  }
}

Result<Unit> NcclCommunicator::close() {
  if (comm_ == nullptr) return Unit{};
  MOTLEY_TRY_VOID(settle("closing", library_.finalize(comm_), std::min(timeout_, kMostClosing)));
  library_.destroy(std::exchange(comm_, nullptr));
  ended_ = "the NCCL communicator is closed";
  return Unit{};
}

// --- opening together

/// The error of the first rank that has one on all of them, as kUnsupported; that somebody waited
/// in vain only where no rank knows more.
Result<Unit> all_succeeded(Communicator& ranks, const Result<Unit>& mine, bool in_vain = false) {
  const std::string told = mine ? "" : (in_vain ? "?" : "!") + mine.error().message;
  MOTLEY_TRY(const std::vector<std::string> all, ranks.all_gather(told));
  for (const char mark : {'!', '?'})
    for (size_t rank = 0; rank < all.size(); ++rank)
      if (!all[rank].empty() && all[rank][0] == mark)
        return fail(ErrorCode::kUnsupported,
                    "rank " + std::to_string(rank) + ": " + all[rank].substr(1));
  return Unit{};
}

/// Two versions do not understand each other.
Result<Unit> same_version(Communicator& ranks, const Library& library) {
  MOTLEY_TRY(const std::vector<std::string> all, ranks.all_gather(library.version_text()));
  for (size_t rank = 1; rank < all.size(); ++rank)
    if (all[rank] != all[0])
      return fail(ErrorCode::kUnsupported, "NCCL is " + all[0] + " on rank 0, " + all[rank] +
                                               " on rank " + std::to_string(rank));
  return Unit{};
}

/// Rank 0's, by which the ranks find each other.
Result<nccl::UniqueId> shared_id(Communicator& ranks, const Library& library) {
  nccl::UniqueId id{};
  Result<Unit> made = Unit{};
  if (ranks.rank() == 0)
    if (const Status status = library.get_unique_id(&id); status != nccl::kSuccess)
      made = fail(ErrorCode::kUnsupported, "NCCL: " + library.reason(status, nullptr));
  MOTLEY_TRY_VOID(all_succeeded(ranks, made));
  std::string bytes(id.bytes, sizeof id.bytes);
  MOTLEY_TRY_VOID(ranks.broadcast(bytes, 0));
  std::memcpy(id.bytes, bytes.data(), sizeof id.bytes);
  return id;
}

}  // namespace

Result<std::unique_ptr<DeviceCommunicator>> open_nccl_communicator(
    Communicator& ranks, Device& device, const CommunicatorOptions& options, const char* library) {
  const Result<const Library*> opened = Library::open(library);
  MOTLEY_TRY_VOID(all_succeeded(ranks, opened ? Result<Unit>(Unit{}) : fail(opened.error())));
  MOTLEY_TRY_VOID(same_version(ranks, **opened));
  MOTLEY_TRY(const nccl::UniqueId id, shared_id(ranks, **opened));
  auto communicator = std::make_unique<NcclCommunicator>(**opened, ranks, device, options.timeout);
  const Result<Unit> connected = communicator->connect(id);
  MOTLEY_TRY_VOID(all_succeeded(ranks, connected, communicator->waited_in_vain()));
  return communicator;
}

}  // namespace motley
