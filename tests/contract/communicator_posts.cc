#include "tests/contract/communicator_posts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <span>
#include <vector>

#include "comm/communicator.h"

namespace motley::testing {
namespace {

using Message = std::vector<std::byte>;

using Sizes = std::vector<size_t>;

/// One byte to 3 MB; around the pieces in which transports cut; odd; nothing.
const Sizes kAllSizes = {1, 3'000'000, 3, 0, 262'144, 262'145, 4095, 1'048'577, 65'536};
/// Where the sizes are not the point: sent at once, in one piece when asked for, in several.
const Sizes kSomeSizes = {3, 300'001, 70'000};

/// Differs from every other message of a check in nearly all bytes.
Message message(int from, int number, size_t size) {
  Message bytes(size);
  uint32_t state = static_cast<uint32_t>(from) * 7919U + static_cast<uint32_t>(number) * 104729U;
  for (std::byte& one : bytes) {
    state = state * 1664525U + 1013904223U;
    one = static_cast<std::byte>(state >> 24);
  }
  return bytes;
}

Result<Unit> expect_next(Communicator& comm, int from, const Message& wanted) {
  Message got(wanted.size());
  MOTLEY_TRY_VOID(comm.receive(got, from));
  EXPECT_TRUE(got == wanted) << wanted.size() << " bytes from rank " << from;
  return Unit{};
}

int right_of(const Communicator& comm) { return (comm.rank() + 1) % comm.size(); }
int left_of(const Communicator& comm) { return (comm.rank() + comm.size() - 1) % comm.size(); }

/// Messages whose sends are open; they keep the memory.
class Mailbag {
 public:
  explicit Mailbag(Communicator& comm) : comm_(comm) {}
  Result<Unit> post(Message bytes, int to) {
    messages_.push_back(std::move(bytes));  // moving the vector of vectors keeps their bytes
    MOTLEY_TRY(const SendId id, comm_.post(messages_.back(), to));
    ids_.push_back(id);
    return Unit{};
  }
  /// The last posted first: sends may be completed in any order.
  Result<Unit> complete_all() {
    for (; !ids_.empty(); ids_.pop_back()) MOTLEY_TRY_VOID(comm_.complete(ids_.back()));
    return Unit{};
  }

 private:
  Communicator& comm_;
  std::vector<Message> messages_;
  std::vector<SendId> ids_;
};

Result<Unit> post_each(Communicator& comm, const Sizes& sizes, int to, Mailbag& bag) {
  for (size_t i = 0; i < sizes.size(); ++i)
    MOTLEY_TRY_VOID(bag.post(message(comm.rank(), static_cast<int>(i), sizes[i]), to));
  return Unit{};
}

Result<Unit> expect_each(Communicator& comm, const Sizes& sizes, int from) {
  for (size_t i = 0; i < sizes.size(); ++i)
    MOTLEY_TRY_VOID(expect_next(comm, from, message(from, static_cast<int>(i), sizes[i])));
  return Unit{};
}

Result<Unit> all_reduce_ranks(Communicator& comm) {
  std::vector<int64_t> ranks(10'001, comm.rank());
  MOTLEY_TRY_VOID(comm.all_reduce_sum(std::span(ranks)));
  const int64_t n = comm.size();
  EXPECT_EQ(std::ranges::count(ranks, n * (n - 1) / 2), 10'001);
  return Unit{};
}

}  // namespace

/// From even ranks to the next: ordinary sends between posted ones.
Result<Unit> posted_messages_arrive_in_order(Communicator& comm) {
  constexpr size_t kBytes = 300'000;
  const int me = comm.rank();
  if (me % 2 == 0 && me + 1 < comm.size()) {
    Mailbag bag(comm);
    for (int number = 0; number < 12; ++number) {
      Message bytes = message(me, number, kBytes);
      if (number % 3 == 2) {
        MOTLEY_TRY_VOID(comm.send(bytes, me + 1));
      } else {
        MOTLEY_TRY_VOID(bag.post(std::move(bytes), me + 1));
      }
    }
    return bag.complete_all();
  }
  for (int number = 0; number < 12 && me % 2 == 1; ++number)
    MOTLEY_TRY_VOID(expect_next(comm, me - 1, message(me - 1, number, kBytes)));
  return Unit{};
}

/// With blocking sends nobody would ever receive.
Result<Unit> posts_of_any_size_go_around_a_ring(Communicator& comm) {
  if (comm.size() == 1) return Unit{};
  Mailbag bag(comm);
  MOTLEY_TRY_VOID(post_each(comm, kAllSizes, right_of(comm), bag));
  MOTLEY_TRY_VOID(expect_each(comm, kAllSizes, left_of(comm)));
  return bag.complete_all();
}

Result<Unit> all_pairs_post_at_once(Communicator& comm) {
  constexpr size_t kBytes = 300'001;
  Mailbag bag(comm);
  for (int peer = 0; peer < comm.size(); ++peer)
    if (peer != comm.rank()) MOTLEY_TRY_VOID(bag.post(message(comm.rank(), peer, kBytes), peer));
  for (int peer = comm.size() - 1; peer >= 0; --peer)
    if (peer != comm.rank())
      MOTLEY_TRY_VOID(expect_next(comm, peer, message(peer, comm.rank(), kBytes)));
  return bag.complete_all();
}

/// Between the same ranks: collectives overtake messages and do not take them for their own.
Result<Unit> posts_stay_open_across_collectives(Communicator& comm) {
  if (comm.size() == 1) return Unit{};
  Mailbag bag(comm);
  MOTLEY_TRY_VOID(post_each(comm, kSomeSizes, right_of(comm), bag));
  MOTLEY_TRY_VOID(all_reduce_ranks(comm));
  MOTLEY_TRY_VOID(comm.barrier());
  MOTLEY_TRY_VOID(post_each(comm, kSomeSizes, right_of(comm), bag));
  MOTLEY_TRY_VOID(comm.all_gather(std::to_string(comm.rank())));
  MOTLEY_TRY_VOID(expect_each(comm, kSomeSizes, left_of(comm)));
  MOTLEY_TRY_VOID(all_reduce_ranks(comm));
  MOTLEY_TRY_VOID(expect_each(comm, kSomeSizes, left_of(comm)));
  return bag.complete_all();
}

/// Two stages of two ranks: activations are under way while each stage sums.
Result<Unit> posts_stay_open_across_groups(Communicator& comm) {
  if (comm.size() < 4) return Unit{};
  if (comm.rank() >= 4) return comm.barrier();
  const bool second = comm.rank() >= 2;
  const auto stage = comm.group(second ? std::vector<int>{2, 3} : std::vector<int>{1, 0});
  Mailbag bag(comm);
  for (int round = 0; round < 3; ++round) {
    if (!second) MOTLEY_TRY_VOID(post_each(comm, kSomeSizes, comm.rank() + 2, bag));
    MOTLEY_TRY_VOID(all_reduce_ranks(*stage));
    if (second) MOTLEY_TRY_VOID(expect_each(comm, kSomeSizes, comm.rank() - 2));
    if (second) MOTLEY_TRY_VOID(post_each(comm, kSomeSizes, comm.rank() - 2, bag));
    MOTLEY_TRY_VOID(all_reduce_ranks(*stage));
    if (!second && round > 0) MOTLEY_TRY_VOID(expect_each(comm, kSomeSizes, comm.rank() + 2));
  }
  if (!second) MOTLEY_TRY_VOID(expect_each(comm, kSomeSizes, comm.rank() + 2));
  MOTLEY_TRY_VOID(bag.complete_all());
  return comm.barrier();
}

Result<Unit> ids_of_posts_are_used_again(Communicator& comm) {
  if (comm.size() == 1) return Unit{};
  constexpr int kOpen = 4;
  for (int round = 0; round < 200; ++round) {
    std::vector<Message> mine;
    std::vector<SendId> ids;
    for (int number = 0; number < kOpen; ++number)
      mine.push_back(message(comm.rank(), round + number, 1000));
    for (const Message& one : mine) {
      MOTLEY_TRY(const SendId id, comm.post(one, right_of(comm)));
      EXPECT_EQ(std::ranges::count(ids, id), 0);
      EXPECT_LT(id.value(), 100);  // as many as other checks had open at once
      ids.push_back(id);
    }
    for (int number = 0; number < kOpen; ++number)
      MOTLEY_TRY_VOID(
          expect_next(comm, left_of(comm), message(left_of(comm), round + number, 1000)));
    for (const SendId id : ids) MOTLEY_TRY_VOID(comm.complete(id));
  }
  return Unit{};
}

Result<Unit> posts_count_their_bytes(Communicator& comm) {
  if (comm.size() == 1) return Unit{};
  int64_t wanted = comm.bytes_sent();
  Mailbag bag(comm);
  for (const size_t size : kSomeSizes) {
    MOTLEY_TRY_VOID(bag.post(message(comm.rank(), 0, size), right_of(comm)));
    wanted += static_cast<int64_t>(size);
    EXPECT_EQ(comm.bytes_sent(), wanted);
  }
  for (const size_t size : kSomeSizes)
    MOTLEY_TRY_VOID(expect_next(comm, left_of(comm), message(left_of(comm), 0, size)));
  MOTLEY_TRY_VOID(bag.complete_all());
  EXPECT_EQ(comm.bytes_sent(), wanted);
  return Unit{};
}

}  // namespace motley::testing
