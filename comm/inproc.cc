// Ranks as threads of one process. A hub holds, for each pair of ranks, the sends that wait to be
// received, those of exchanges, of messages and of transfers that go on by themselves apart; the
// receiver copies straight from the sender's memory.

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "comm/checked.h"
#include "comm/collectives.h"
#include "comm/post_pool.h"
#include "core/check.h"

namespace motley {
namespace {

/// One send, in the sender's memory until it is done.
struct Post {
  int to = 0;
  std::span<const std::byte> data;
  int tag = 0;  ///< of a transfer
  enum class State { kQueued, kCopying, kDone } state = State::kQueued;
};

/// Two ranks have a queue of each for each direction.
enum class Lane { kExchange, kMessages, kTransfers };
constexpr size_t kLanes = 3;

/// Before a rank sleeps: waking one takes longer than most exchanges.
constexpr int kYields = 100;

class Hub {
 public:
  Hub(int ranks, Nanos timeout)
      : size_(ranks),
        timeout_(timeout.value()),
        queues_(kLanes * static_cast<size_t>(ranks) * static_cast<size_t>(ranks)),
        changed_(static_cast<size_t>(ranks)) {}

  int size() const { return size_; }
  Result<Unit> exchange(int rank, std::span<const Incoming> receives,
                        std::span<const Outgoing> sends, const std::string& operation);
  /// `post` stays where it is until complete(), sent() or withdraw().
  Result<Unit> post(int rank, Lane lane, Post& post);
  Result<Unit> complete(int rank, const Post& post, const std::string& operation);
  Result<Unit> receive(int rank, const Incoming& in, const std::string& operation);
  /// Whether this post of the transfers has been received.
  Result<bool> sent(const Post& post);
  /// Whether a post of this tag was there to be received.
  Result<bool> received(int rank, const Incoming& in, int tag);
  Result<Unit> alive();
  std::chrono::nanoseconds timeout() const { return timeout_; }
  /// When it returns nobody touches the data any more.
  void withdraw(int rank, Lane lane, Post& post);
  /// All that nobody has begun to receive, at once: what belongs together is not seen in part.
  void withdraw_queued(int rank, Lane lane);
  /// Wakes everyone.
  void fail_all(const Error& error);
  std::optional<Error> first_failure();

 private:
  using Lock = std::unique_lock<std::mutex>;
  using Deadline = std::chrono::steady_clock::time_point;

  Deadline deadline() const { return std::chrono::steady_clock::now() + timeout_; }
  std::deque<Post*>& queue(Lane lane, int from, int to) {
    const auto n = static_cast<size_t>(size_);
    return queues_[(static_cast<size_t>(lane) * n + static_cast<size_t>(from)) * n +
                   static_cast<size_t>(to)];
  }
  std::condition_variable& changed(int rank) { return changed_[static_cast<size_t>(rank)]; }
  void enqueue(Lane lane, int rank, Post& post);
  template <class Ready>
  Result<Unit> wait(Lock& lock, int rank, int peer, const std::string& operation, Deadline deadline,
                    const Ready& ready);
  Result<Unit> wait_until_done(Lock& lock, int rank, const Post& post, const std::string& operation,
                               Deadline deadline) {
    return wait(lock, rank, post.to, operation, deadline,
                [&] { return post.state == Post::State::kDone; });
  }
  Result<Unit> take(Lock& lock, Lane lane, int rank, const Incoming& in,
                    const std::string& operation, Deadline deadline);
  void copy(Lock& lock, Post& post, const Incoming& in);
  Result<Unit> alive_locked() const;
  void withdraw(Lock& lock, Lane lane, int rank, Post& post);
  void fail_locked(const Error& error);

  const int size_;
  const std::chrono::nanoseconds timeout_;
  std::mutex mutex_;  // guards all below, and the states of posts
  std::vector<std::deque<Post*>> queues_;
  std::deque<std::condition_variable> changed_;
  std::optional<Error> failure_;
};

void Hub::enqueue(Lane lane, int rank, Post& post) {
  queue(lane, rank, post.to).push_back(&post);
  changed(post.to).notify_all();
}

template <class Ready>
Result<Unit> Hub::wait(Lock& lock, int rank, int peer, const std::string& operation,
                       Deadline deadline, const Ready& ready) {
  for (int i = 0; i < kYields && !ready() && !failure_; ++i) {
    lock.unlock();
    sched_yield();
    lock.lock();
  }
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

Result<Unit> Hub::take(Lock& lock, Lane lane, int rank, const Incoming& in,
                       const std::string& operation, Deadline deadline) {
  std::deque<Post*>& waiting = queue(lane, in.from, rank);
  MOTLEY_TRY_VOID(wait(lock, rank, in.from, operation, deadline, [&] { return !waiting.empty(); }));
  Post& post = *waiting.front();
  waiting.pop_front();
  copy(lock, post, in);
  return Unit{};
}

void Hub::copy(Lock& lock, Post& post, const Incoming& in) {
  post.state = Post::State::kCopying;
  lock.unlock();
  MOTLEY_CHECK_EQ(post.data.size(), in.into.size());
  std::memcpy(in.into.data(), post.data.data(), in.into.size());
  lock.lock();
  post.state = Post::State::kDone;
  changed(in.from).notify_all();
}

Result<bool> Hub::sent(const Post& post) {
  const Lock lock(mutex_);
  if (post.state == Post::State::kDone) return true;
  MOTLEY_TRY_VOID(alive_locked());
  return false;
}

Result<bool> Hub::received(int rank, const Incoming& in, int tag) {
  Lock lock(mutex_);
  std::deque<Post*>& waiting = queue(Lane::kTransfers, in.from, rank);
  const auto found = std::find_if(waiting.begin(), waiting.end(),
                                  [tag](const Post* post) { return post->tag == tag; });
  if (found == waiting.end()) {
    MOTLEY_TRY_VOID(alive_locked());
    return false;
  }
  Post& post = **found;
  waiting.erase(found);
  copy(lock, post, in);
  return true;
}

Result<Unit> Hub::alive() {
  const Lock lock(mutex_);
  return alive_locked();
}

Result<Unit> Hub::alive_locked() const {
  if (failure_) return fail(ErrorCode::kPeerLost, failure_->message);
  return Unit{};
}

Result<Unit> Hub::exchange(int rank, std::span<const Incoming> receives,
                           std::span<const Outgoing> sends, const std::string& operation) {
  const Deadline until = deadline();
  std::vector<Post> posts(sends.size());
  Lock lock(mutex_);
  for (size_t i = 0; i < sends.size(); ++i) {
    posts[i] = {.to = sends[i].to, .data = sends[i].data};
    enqueue(Lane::kExchange, rank, posts[i]);
  }
  Result<Unit> done = Unit{};
  for (size_t i = 0; i < receives.size() && done; ++i)
    done = take(lock, Lane::kExchange, rank, receives[i], operation, until);
  for (size_t i = 0; i < posts.size() && done; ++i)
    done = wait_until_done(lock, rank, posts[i], operation, until);
  for (size_t i = 0; i < posts.size() && !done; ++i)
    withdraw(lock, Lane::kExchange, rank, posts[i]);
  return done;
}

Result<Unit> Hub::post(int rank, Lane lane, Post& post) {
  const Lock lock(mutex_);
  if (failure_)
    return fail(ErrorCode::kPeerLost,
                "lost rank " + std::to_string(post.to) + " in post: " + failure_->message);
  enqueue(lane, rank, post);
  return Unit{};
}

Result<Unit> Hub::complete(int rank, const Post& post, const std::string& operation) {
  Lock lock(mutex_);
  return wait_until_done(lock, rank, post, operation, deadline());
}

Result<Unit> Hub::receive(int rank, const Incoming& in, const std::string& operation) {
  Lock lock(mutex_);
  return take(lock, Lane::kMessages, rank, in, operation, deadline());
}

void Hub::withdraw(int rank, Lane lane, Post& post) {
  Lock lock(mutex_);
  withdraw(lock, lane, rank, post);
}

void Hub::withdraw_queued(int rank, Lane lane) {
  const Lock lock(mutex_);
  for (int to = 0; to < size_; ++to) queue(lane, rank, to).clear();
}

/// Takes back what is queued and waits for a copy under way.
void Hub::withdraw(Lock& lock, Lane lane, int rank, Post& post) {
  std::erase(queue(lane, rank, post.to), &post);
  changed(rank).wait(lock, [&] { return post.state != Post::State::kCopying; });
}

/// The first failure stays, but a rank's own cause says more than that one was lost.
void Hub::fail_locked(const Error& error) {
  const bool says_more =
      failure_ && failure_->code == ErrorCode::kPeerLost && error.code != ErrorCode::kPeerLost;
  if (!failure_ || says_more) failure_ = error;
  for (std::condition_variable& one : changed_) one.notify_all();
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
  ~InprocTransport() override {
    MOTLEY_CHECK(posts_.empty() || hub_.first_failure(), "a rank left with open sends");
    MOTLEY_CHECK(begun_.empty(), "a rank left with open transfers");
    withdraw_posts();
  }

  int rank() const override { return rank_; }
  int size() const override { return hub_.size(); }
  std::string description() const override { return "inproc"; }
  Result<Unit> exchange(std::span<const Incoming> receives, std::span<const Outgoing> sends,
                        const std::string& operation) override {
    return or_withdraw(hub_.exchange(rank_, receives, sends, operation));
  }
  Result<SendId> post(const Outgoing& message) override {
    const SendId id = posts_.open();
    posts_.at(id) = {.to = message.to, .data = message.data};
    MOTLEY_TRY_VOID(or_withdraw(hub_.post(rank_, Lane::kMessages, posts_.at(id))));
    return id;
  }
  Result<Unit> complete(SendId send, const std::string& operation) override {
    MOTLEY_TRY_VOID(or_withdraw(hub_.complete(rank_, posts_.at(send), operation)));
    posts_.close(send);
    return Unit{};
  }
  Result<Unit> receive(const Incoming& message, const std::string& operation) override {
    return or_withdraw(hub_.receive(rank_, message, operation));
  }
  Result<SendId> begin(const Incoming& message, int tag) override {
    const SendId id = begun_.open();
    begun_.at(id) = {.incoming = message, .tag = tag};
    return id;
  }
  Result<SendId> begin(const Outgoing& message, int tag) override {
    const SendId id = begun_.open();
    Transfer& transfer = begun_.at(id);
    transfer = {.tag = tag};
    transfer.outgoing = {.to = message.to, .data = message.data, .tag = tag};
    if (auto posted = hub_.post(rank_, Lane::kTransfers, transfer.outgoing); !posted) {
      begun_.close(id);
      return fail(std::move(posted).error());
    }
    return id;
  }
  Result<bool> finished(SendId id) override {
    Transfer& transfer = begun_.at(id);
    MOTLEY_TRY(const bool done, transfer.incoming
                                    ? hub_.received(rank_, *transfer.incoming, transfer.tag)
                                    : hub_.sent(transfer.outgoing));
    if (done) begun_.close(id);
    return done;
  }
  void abandon(SendId id) override {
    Transfer& transfer = begun_.at(id);
    if (!transfer.incoming) hub_.withdraw(rank_, Lane::kTransfers, transfer.outgoing);
    begun_.close(id);
  }
  Result<Unit> alive() override { return hub_.alive(); }
  std::chrono::nanoseconds timeout() const override { return hub_.timeout(); }
  Error lost(const std::string& what) override {
    const Error error{ErrorCode::kPeerLost, what, {}};
    hub_.fail_all(error);
    return error;
  }
  void give_up(int) override {
    hub_.fail_all({ErrorCode::kPeerLost, "rank " + std::to_string(rank_) + " gave up", {}});
    withdraw_posts();
  }

 private:
  /// After a failure the memory of open sends is the caller's again.
  Result<Unit> or_withdraw(Result<Unit> done) {
    if (!done) withdraw_posts();
    return done;
  }
  void withdraw_posts() {
    hub_.withdraw_queued(rank_, Lane::kMessages);
    posts_.for_each_open([&](Post& post) { hub_.withdraw(rank_, Lane::kMessages, post); });
  }
  struct Transfer {
    std::optional<Incoming> incoming = {};
    int tag = 0;
    Post outgoing = {};
  };

  Hub& hub_;
  const int rank_;
  PostPool<Post> posts_;
  PostPool<Transfer> begun_;
};

}  // namespace

Result<Unit> run_inproc(int ranks, const std::function<Result<Unit>(Communicator&)>& body,
                        const CommunicatorOptions& options) {
  MOTLEY_CHECK_LT(0, ranks);
  const bool are_checked = options.checked.value_or(collectives_are_checked());
  Hub hub(ranks, options.timeout);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&hub, &body, are_checked, rank] {
      auto comm = communicator_over(std::make_unique<InprocTransport>(hub, rank));
      if (are_checked) comm = checked(std::move(comm));
      if (const Result<Unit> done = body(*comm); !done) hub.fail_all(done.error());
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (const auto failure = hub.first_failure()) return fail(*failure);
  return Unit{};
}

}  // namespace motley
