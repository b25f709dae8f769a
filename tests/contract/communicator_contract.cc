#include "tests/contract/communicator_contract.h"

#include <algorithm>

#include "tests/contract/coded_reducer_contract.h"
#include "tests/contract/communicator_posts.h"
#include "tests/contract/reducer_contract.h"

namespace motley::testing {
namespace {

/// Nothing, one element, fewer than the ranks, odd, not divisible, several chunks of any transport.
const std::vector<size_t> kCounts = {0, 1, 2, 7, 1021, 65536, 200003};

/// Element i of rank r: magnitudes differ so much that another order of summation shows in the
/// bits.
template <class T>
T element(int rank, size_t i) {
  constexpr T kScales[] = {1, 1000, T(0.001), 30000, T(0.3)};
  const auto mixed =
      static_cast<uint32_t>((i + 1) * 2654435761U + static_cast<size_t>(rank) * 40503U);
  return static_cast<T>(static_cast<int32_t>(mixed ^ (mixed >> 15))) *
         kScales[(static_cast<size_t>(rank) + i) % 5];
}
template <>
int64_t element<int64_t>(int rank, size_t i) {
  return (static_cast<int64_t>(i % 1000) - 500) * (int64_t{1} << (40 + rank % 4)) + rank;
}

template <class T>
std::vector<T> vector_of(int rank, size_t count) {
  std::vector<T> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = element<T>(rank, i);
  return values;
}

template <class T>
std::vector<T> serial_sum(int ranks, size_t count) {
  std::vector<T> sum = vector_of<T>(0, count);
  for (int rank = 1; rank < ranks; ++rank)
    for (size_t i = 0; i < count; ++i) sum[i] += element<T>(rank, i);
  return sum;
}

template <class T>
void expect_same_bits(const std::vector<T>& got, const std::vector<T>& wanted) {
  const auto got_bytes = std::as_bytes(std::span(got));
  const auto wanted_bytes = std::as_bytes(std::span(wanted));
  EXPECT_TRUE(std::ranges::equal(got_bytes, wanted_bytes))
      << got.size() << " elements of " << sizeof(T) << " bytes";
}

template <class T>
Result<Unit> sums_equal_the_serial_sum(Communicator& comm) {
  for (const size_t count : kCounts) {
    std::vector<T> values = vector_of<T>(comm.rank(), count);
    MOTLEY_TRY_VOID(comm.all_reduce_sum(std::span(values)));
    expect_same_bits(values, serial_sum<T>(comm.size(), count));
  }
  return Unit{};
}

Result<Unit> max_is_the_largest(Communicator& comm) {
  for (const size_t count : kCounts) {
    std::vector<int64_t> values(count);
    for (size_t i = 0; i < count; ++i) values[i] = comm.rank() == static_cast<int>(i) ? 5 : -9;
    MOTLEY_TRY_VOID(comm.all_reduce_max(std::span(values)));
    for (size_t i = 0; i < count; ++i) {
      const int64_t wanted = i < static_cast<size_t>(comm.size()) ? 5 : -9;
      if (values[i] != wanted) ADD_FAILURE() << "element " << i << " is " << values[i];
    }
  }
  return Unit{};
}

std::string text_of_rank(int rank) {  // rank 1 has nothing to say
  if (rank == 1) return "";
  return std::string(static_cast<size_t>(rank) * 300'000 + 3, static_cast<char>('a' + rank));
}

Result<Unit> gather_keeps_unequal_texts_by_rank(Communicator& comm) {
  MOTLEY_TRY(const std::vector<std::string> all, comm.all_gather(text_of_rank(comm.rank())));
  EXPECT_EQ(all.size(), static_cast<size_t>(comm.size()));
  for (int rank = 0; rank < comm.size(); ++rank)
    EXPECT_TRUE(all.at(static_cast<size_t>(rank)) == text_of_rank(rank)) << "of rank " << rank;
  return Unit{};
}

Result<Unit> broadcast_reaches_all_from_any_root(Communicator& comm) {
  for (int root = 0; root < comm.size(); ++root) {
    std::string data = comm.rank() == root ? text_of_rank(root) : "leftover of another length";
    MOTLEY_TRY_VOID(comm.broadcast(data, root));
    EXPECT_TRUE(data == text_of_rank(root)) << "from rank " << root;
  }
  return Unit{};
}

/// Two messages to the right, so that order matters; even ranks send first.
Result<Unit> messages_arrive_in_order(Communicator& comm) {
  if (comm.size() == 1) return Unit{};
  const int right = (comm.rank() + 1) % comm.size();
  const int left = (comm.rank() + comm.size() - 1) % comm.size();
  const std::vector<double> large = vector_of<double>(comm.rank(), 50'001);
  const std::vector<double> small = vector_of<double>(comm.rank() + 100, 3);
  std::vector<double> first(large.size());
  std::vector<double> second(small.size());
  const auto send_both = [&]() -> Result<Unit> {
    MOTLEY_TRY_VOID(comm.send(std::as_bytes(std::span(large)), right));
    return comm.send(std::as_bytes(std::span(small)), right);
  };
  const auto receive_both = [&]() -> Result<Unit> {
    MOTLEY_TRY_VOID(comm.receive(std::as_writable_bytes(std::span(first)), left));
    return comm.receive(std::as_writable_bytes(std::span(second)), left);
  };
  if (comm.rank() % 2 == 0) MOTLEY_TRY_VOID(send_both());
  MOTLEY_TRY_VOID(receive_both());
  if (comm.rank() % 2 == 1) MOTLEY_TRY_VOID(send_both());
  expect_same_bits(first, vector_of<double>(left, large.size()));
  expect_same_bits(second, vector_of<double>(left + 100, small.size()));
  return Unit{};
}

/// 2·(n-1)/n of the bytes a rank, on average over the ranks exactly.
Result<Unit> wire_bytes_follow_the_formula(Communicator& comm) {
  const auto n = static_cast<int64_t>(comm.size());
  for (const size_t count : kCounts) {
    const int64_t before = comm.bytes_sent();
    std::vector<float> values(count, 1.0F);
    MOTLEY_TRY_VOID(comm.all_reduce_sum(std::span(values)));
    std::vector<int64_t> sent = {comm.bytes_sent() - before};
    const int64_t bytes = static_cast<int64_t>(count * sizeof(float));
    if (bytes % (n * 4) == 0) {
      EXPECT_EQ(sent[0], 2 * (n - 1) * bytes / n);
    }
    MOTLEY_TRY_VOID(comm.all_reduce_sum(std::span(sent)));
    EXPECT_EQ(sent[0], 2 * (n - 1) * bytes) << count << " elements";
  }
  return Unit{};
}

/// What a step does, over and over: nothing may leak from one operation into the next.
Result<Unit> operations_follow_each_other(Communicator& comm) {
  for (int64_t round = 0; round < 50; ++round) {
    std::vector<float> floats(33, static_cast<float>(comm.rank()));
    std::vector<int64_t> integers = {round, comm.rank()};
    MOTLEY_TRY_VOID(comm.all_reduce_sum(std::span(floats)));
    MOTLEY_TRY_VOID(comm.all_reduce_sum(std::span(integers)));
    MOTLEY_TRY_VOID(comm.barrier());
    const int64_t n = comm.size();
    EXPECT_EQ(floats[32], static_cast<float>(n * (n - 1) / 2));
    EXPECT_EQ(integers, (std::vector<int64_t>{n * round, n * (n - 1) / 2}));
  }
  return Unit{};
}

/// Σ over the named ranks in the order of the list.
std::vector<double> serial_sum(const std::vector<int>& ranks, size_t count) {
  std::vector<double> sum = vector_of<double>(ranks.front(), count);
  for (size_t r = 1; r < ranks.size(); ++r)
    for (size_t i = 0; i < count; ++i) sum[i] += element<double>(ranks[r], i);
  return sum;
}

/// Every operation within a group made of `ranks` of the whole.
Result<Unit> works_as_a_group_of(const std::vector<int>& ranks, int me, Communicator& group) {
  const int n = static_cast<int>(ranks.size());
  EXPECT_EQ(group.size(), n);
  EXPECT_EQ(ranks.at(static_cast<size_t>(group.rank())), me);
  std::vector<double> values = vector_of<double>(me, 1001);
  MOTLEY_TRY_VOID(group.all_reduce_sum(std::span(values)));
  expect_same_bits(values, serial_sum(ranks, values.size()));
  MOTLEY_TRY(const std::vector<std::string> names, group.all_gather(std::to_string(me)));
  for (size_t i = 0; i < ranks.size(); ++i) EXPECT_EQ(names.at(i), std::to_string(ranks[i]));
  std::string last = std::to_string(me);
  MOTLEY_TRY_VOID(group.broadcast(last, n - 1));
  EXPECT_EQ(last, std::to_string(ranks.back()));
  if (n == 1) return Unit{};
  const std::vector<double> mine = vector_of<double>(me, 50'001);
  const int left = (group.rank() + n - 1) % n;
  MOTLEY_TRY(const SendId sent, group.post(std::as_bytes(std::span(mine)), (group.rank() + 1) % n));
  std::vector<double> arrived(mine.size());
  MOTLEY_TRY_VOID(group.receive(std::as_writable_bytes(std::span(arrived)), left));
  expect_same_bits(arrived, vector_of<double>(ranks.at(static_cast<size_t>(left)), mine.size()));
  return group.complete(sent);
}

/// Every subset of the first four ranks, rising and falling, all open at once; round robin with the
/// whole, so that those that overlap alternate.
std::vector<std::vector<int>> subsets_in_two_orders(int ranks) {
  std::vector<std::vector<int>> lists;
  for (unsigned set = 1; set < 1U << std::min(ranks, 4); ++set) {
    std::vector<int> members;
    for (int rank = 0; rank < 4; ++rank)
      if ((set >> rank & 1U) != 0) members.push_back(rank);
    lists.push_back(members);
    std::ranges::reverse(members);
    lists.push_back(members);
  }
  return lists;
}

Result<Unit> overlapping_groups_alternate(Communicator& comm) {
  const std::vector<std::vector<int>> lists = subsets_in_two_orders(comm.size());
  std::vector<std::unique_ptr<Communicator>> groups;
  for (const std::vector<int>& list : lists)
    groups.push_back(std::ranges::count(list, comm.rank()) > 0 ? comm.group(list) : nullptr);
  for (int round = 0; round < 2; ++round) {
    for (size_t i = 0; i < groups.size(); ++i) {
      if (groups[i]) MOTLEY_TRY_VOID(works_as_a_group_of(lists[i], comm.rank(), *groups[i]));
      if (i % 5 == 0) MOTLEY_TRY_VOID(comm.barrier());
    }
  }
  return Unit{};
}

Result<Unit> groups_are_made_of_groups(Communicator& comm) {
  std::vector<int> backwards;
  for (int rank = comm.size() - 1; rank >= 0; --rank) backwards.push_back(rank);
  const auto reversed = comm.group(backwards);
  const auto again = reversed->group(backwards);
  EXPECT_EQ(reversed->rank(), comm.size() - 1 - comm.rank());
  EXPECT_EQ(again->rank(), comm.rank());
  std::vector<int64_t> largest = {again->rank(), reversed->rank()};
  MOTLEY_TRY_VOID(again->all_reduce_max(std::span(largest)));
  EXPECT_EQ(largest, std::vector<int64_t>(2, comm.size() - 1));
  EXPECT_EQ(reversed->bytes_sent(), 0);
  return Unit{};
}

}  // namespace

void expect_ok(const Result<Unit>& result) {
  EXPECT_TRUE(result.has_value()) << (result ? "" : result.error().to_string());
}

const std::vector<NamedCheck>& communicator_contract() {
  static const std::vector<NamedCheck> checks = [] {
    std::vector<NamedCheck> all = {
        {"FloatSumsEqualTheSerialSum", sums_equal_the_serial_sum<float>},
        {"DoubleSumsEqualTheSerialSum", sums_equal_the_serial_sum<double>},
        {"IntegerSumsEqualTheSerialSum", sums_equal_the_serial_sum<int64_t>},
        {"MaxIsTheLargest", max_is_the_largest},
        {"GatherKeepsUnequalTextsByRank", gather_keeps_unequal_texts_by_rank},
        {"BroadcastReachesAllFromAnyRoot", broadcast_reaches_all_from_any_root},
        {"MessagesArriveInOrder", messages_arrive_in_order},
        {"WireBytesFollowTheFormula", wire_bytes_follow_the_formula},
        {"OperationsFollowEachOther", operations_follow_each_other},
        {"OverlappingGroupsAlternate", overlapping_groups_alternate},
        {"GroupsAreMadeOfGroups", groups_are_made_of_groups},
        {"PostedMessagesArriveInOrder", posted_messages_arrive_in_order},
        {"PostsOfAnySizeGoAroundARing", posts_of_any_size_go_around_a_ring},
        {"AllPairsPostAtOnce", all_pairs_post_at_once},
        {"PostsStayOpenAcrossCollectives", posts_stay_open_across_collectives},
        {"PostsStayOpenAcrossGroups", posts_stay_open_across_groups},
        {"IdsOfPostsAreUsedAgain", ids_of_posts_are_used_again},
        {"PostsCountTheirBytes", posts_count_their_bytes},
    };
    for (const auto* sums : {&reducer_contract(), &coded_reducer_contract()})
      all.insert(all.end(), sums->begin(), sums->end());
    return all;
  }();
  return checks;
}

}  // namespace motley::testing
