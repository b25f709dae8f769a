// Ranks as threads of one process. A hub holds, for each pair of ranks, the sends that wait to be
// received; the receiver copies straight from the sender's memory.

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "comm/collectives.h"
#include "core/check.h"

namespace motley {
namespace {

/// One send, in the sender's memory until it is done.
struct Post {
  std::span<const std::byte> data;
  enum class State { kQueued, kCopying, kDone } state = State::kQueued;
};

class Hub {
 public:
  Hub(int ranks, Nanos timeout)
      : size_(ranks),
        timeout_(timeout.value()),
        queues_(static_cast<size_t>(ranks) * static_cast<size_t>(ranks)),
        changed_(static_cast<size_t>(ranks)) {}

  int size() const { return size_; }
  Result<Unit> exchange(int rank, std::span<const Incoming> receives,
                        std::span<const Outgoing> sends, const std::string& operation);
  /// Wakes everyone.
  void fail_all(const Error& error);
  std::optional<Error> first_failure();

 private:
  using Lock = std::unique_lock<std::mutex>;
  using Deadline = std::chrono::steady_clock::time_point;

  std::deque<Post*>& queue(int from, int to) {
    return queues_[static_cast<size_t>(from) * static_cast<size_t>(size_) +
                   static_cast<size_t>(to)];
  }
  std::condition_variable& changed(int rank) { return changed_[static_cast<size_t>(rank)]; }
  template <class Ready>
  Result<Unit> wait(Lock& lock, int rank, int peer, const std::string& operation, Deadline deadline,
                    const Ready& ready);
  Result<Unit> receive(Lock& lock, int rank, const Incoming& in, const std::string& operation,
                       Deadline deadline);
  void withdraw(Lock& lock, int rank, std::span<const Outgoing> sends, std::vector<Post>& posts);
  void fail_locked(const Error& error);

  const int size_;
  const std::chrono::nanoseconds timeout_;
  std::mutex mutex_;  // guards all below
  std::vector<std::deque<Post*>> queues_;
  std::deque<std::condition_variable> changed_;
  std::optional<Error> failure_;
};

template <class Ready>
Result<Unit> Hub::wait(Lock& lock, int rank, int peer, const std::string& operation,
                       Deadline deadline, const Ready& ready) {
  const bool in_time =
      changed(rank).wait_until(lock, deadline, [&] { return ready() || failure_.has_value(); });
  if (ready()) return Unit{};
  const std::string who = "rank " + std::to_string(peer);
  if (!in_time) {
    fail_locked({ErrorCode::kPeerLost, who + " did not answer in " + operation, {}});
    return fail(*failure_);
  }
  return fail(ErrorCode::kPeerLost, "lost " + who + " in " + operation + ": " + failure_->message);
}

Result<Unit> Hub::receive(Lock& lock, int rank, const Incoming& in, const std::string& operation,
                          Deadline deadline) {
  std::deque<Post*>& waiting = queue(in.from, rank);
  MOTLEY_TRY_VOID(wait(lock, rank, in.from, operation, deadline, [&] { return !waiting.empty(); }));
  Post& post = *waiting.front();
  waiting.pop_front();
  post.state = Post::State::kCopying;
  lock.unlock();
  MOTLEY_CHECK_EQ(post.data.size(), in.into.size());
  std::memcpy(in.into.data(), post.data.data(), in.into.size());
  lock.lock();
  post.state = Post::State::kDone;
  changed(in.from).notify_one();
  return Unit{};
}

Result<Unit> Hub::exchange(int rank, std::span<const Incoming> receives,
                           std::span<const Outgoing> sends, const std::string& operation) {
  const Deadline deadline = std::chrono::steady_clock::now() + timeout_;
  std::vector<Post> posts(sends.size());
  Lock lock(mutex_);
  for (size_t i = 0; i < sends.size(); ++i) {
    posts[i].data = sends[i].data;
    queue(rank, sends[i].to).push_back(&posts[i]);
    changed(sends[i].to).notify_one();
  }
  Result<Unit> done = Unit{};
  for (size_t i = 0; i < receives.size() && done; ++i)
    done = receive(lock, rank, receives[i], operation, deadline);
  for (size_t i = 0; i < posts.size() && done; ++i)
    done = wait(lock, rank, sends[i].to, operation, deadline,
                [&] { return posts[i].state == Post::State::kDone; });
  if (!done) withdraw(lock, rank, sends, posts);
  return done;
}

/// After a failure nobody may touch this rank's memory any more: takes back what is queued and
/// waits for copies under way.
void Hub::withdraw(Lock& lock, int rank, std::span<const Outgoing> sends,
                   std::vector<Post>& posts) {
  for (size_t i = 0; i < posts.size(); ++i) {
    std::erase(queue(rank, sends[i].to), &posts[i]);
    changed(rank).wait(lock, [&] { return posts[i].state != Post::State::kCopying; });
  }
}

/// The first failure stays, but a rank's own cause says more than that one was lost.
void Hub::fail_locked(const Error& error) {
  const bool says_more =
      failure_ && failure_->code == ErrorCode::kPeerLost && error.code != ErrorCode::kPeerLost;
  if (!failure_ || says_more) failure_ = error;
  for (std::condition_variable& one : changed_) one.notify_one();
}

void Hub::fail_all(const Error& error) {
  const Lock lock(mutex_);
  fail_locked(error);
}

std::optional<Error> Hub::first_failure() {
  const Lock lock(mutex_);
  return failure_;
}

class InprocTransport final : public Transport {
 public:
  InprocTransport(Hub& hub, int rank) : hub_(hub), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return hub_.size(); }
  std::string description() const override { return "inproc"; }
  Result<Unit> exchange(std::span<const Incoming> receives, std::span<const Outgoing> sends,
                        const std::string& operation) override {
    return hub_.exchange(rank_, receives, sends, operation);
  }
  void give_up(int) override {
    hub_.fail_all({ErrorCode::kPeerLost, "rank " + std::to_string(rank_) + " gave up", {}});
  }

 private:
  Hub& hub_;
  const int rank_;
};

}  // namespace

Result<Unit> run_inproc(int ranks, const std::function<Result<Unit>(Communicator&)>& body,
                        const CommunicatorOptions& options) {
  MOTLEY_CHECK_LT(0, ranks);
  Hub hub(ranks, options.timeout);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&hub, &body, rank] {
      const auto comm = communicator_over(std::make_unique<InprocTransport>(hub, rank));
      if (const Result<Unit> done = body(*comm); !done) hub.fail_all(done.error());
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (const auto failure = hub.first_failure()) return fail(*failure);
  return Unit{};
}

}  // namespace motley
