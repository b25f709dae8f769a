#include "tests/contract/reducer_contract.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <numeric>
#include <set>
#include <thread>

#include "comm/reducer.h"

namespace motley::testing {
namespace {

/// Nothing, one, fewer than the ranks, odd, of several chunks.
const std::vector<int64_t> kClassSizes = {0, 1, 7, 1021, 50'003};

Islands islands_of(std::vector<int> of_rank) {
  Islands islands{.of_rank = std::move(of_rank), .bytes_per_second = {}, .latency_seconds = 1e-4};
  const int count = 1 + *std::max_element(islands.of_rank.begin(), islands.of_rank.end());
  // The first link is slow: with three islands none of the chunks should be rooted there.
  for (int i = 0; i < count; ++i) islands.bytes_per_second.push_back(i == 0 ? 25e6 : 125e6);
  return islands;
}

/// One island, one for each rank, the first rank alone, interleaved, and 3, 2, 1, 3, 2, 1, ….
std::vector<Islands> shapes(int ranks) {
  const auto each = [&](auto number) {
    std::vector<int> of_rank;
    for (int rank = 0; rank < ranks; ++rank) of_rank.push_back(number(rank));
    return islands_of(std::move(of_rank));
  };
  std::vector<Islands> all = {each([](int) { return 0; })};
  if (ranks == 1) return all;
  all.push_back(each([](int rank) { return rank; }));
  all.push_back(each([](int rank) { return rank == 0 ? 0 : 1; }));
  all.push_back(each([](int rank) { return rank % 2; }));
  constexpr int kUneven[] = {0, 0, 0, 1, 1, 2};
  if (ranks > 3) all.push_back(each([&](int rank) { return kUneven[rank % 6]; }));
  return all;
}

/// Magnitudes differ so much that another order of summation shows in the bits.
template <class T>
T element_of(int rank, int64_t i) {
  const auto mixed = static_cast<uint32_t>((i + 1) * 2654435761LL + rank * 40503LL);
  const auto value = static_cast<int32_t>(mixed ^ (mixed >> 15));
  if constexpr (std::is_same_v<T, int64_t>)
    return static_cast<int64_t>(value) * (1 << 26);
  else
    return static_cast<T>(value) * (i % 3 == rank % 3 ? T(0.001) : T(1000));
}

/// Island by island, in each rank by rank.
template <class T>
std::vector<T> expected_sum(const ReductionClass& one, const Islands& islands) {
  std::vector<T> total;
  for (int island = 0; island < islands.count(); ++island) {
    std::vector<T> sum;
    for (const int rank : one.contributors) {
      if (islands.of_rank[static_cast<size_t>(rank)] != island) continue;
      const bool first = sum.empty();
      sum.resize(static_cast<size_t>(one.elements));
      for (int64_t i = 0; i < one.elements; ++i) {
        T& element = sum[static_cast<size_t>(i)];
        element = first ? element_of<T>(rank, i) : element + element_of<T>(rank, i);
      }
    }
    if (sum.empty()) continue;
    if (total.empty())
      total = sum;
    else
      for (size_t i = 0; i < sum.size(); ++i) total[i] += sum[i];
  }
  return total;
}

/// Where a class lies: side by side, or in three pieces in another order with gaps.
enum class Place { kTogether, kApart };

std::vector<ElementRun> runs_for(int64_t elements, Place place) {
  if (elements == 0) return {};
  if (place == Place::kTogether || elements < 3) return {{.offset = 5, .count = elements, .at = 0}};
  const int64_t third = elements / 3;
  return {{.offset = 2 * elements, .count = third, .at = 0},
          {.offset = 3, .count = third, .at = third},
          {.offset = elements + 1, .count = elements - 2 * third, .at = 2 * third}};
}

/// Of a whole buffer only what the class covers is looked at.
template <class T>
struct Buffer {
  Buffer(int rank, const std::vector<ElementRun>& runs, int64_t elements)
      : values(static_cast<size_t>(3 * elements + 8), T(-77)) {
    for (const ElementRun& run : runs)
      for (int64_t i = 0; i < run.count; ++i)
        values[static_cast<size_t>(run.offset + i)] = element_of<T>(rank, run.at + i);
  }
  std::vector<T> values;
};

template <class T>
void expect_elements(const Buffer<T>& buffer, const std::vector<ElementRun>& runs,
                     const std::vector<T>& wanted, const char* what) {
  for (const ElementRun& run : runs)
    EXPECT_EQ(std::memcmp(&buffer.values[static_cast<size_t>(run.offset)],
                          &wanted[static_cast<size_t>(run.at)],
                          static_cast<size_t>(run.count) * sizeof(T)),
              0)
        << what << ": " << run.count << " elements from number " << run.at;
}

/// This rank's part in one class: it sums twice, and has the total where it receives.
template <class T>
Result<Unit> check_class(Communicator& comm, const ReductionClass& one, const Islands& islands,
                         Place place, const char* what) {
  const auto has = [&](const std::vector<int>& ranks) {
    return std::find(ranks.begin(), ranks.end(), comm.rank()) != ranks.end();
  };
  const bool takes_part = has(one.contributors) || has(one.receivers);
  const auto runs = takes_part ? runs_for(one.elements, place) : std::vector<ElementRun>{};
  const ReductionPlan plan = plan_reduction({one}, islands, sizeof(T));
  MOTLEY_TRY(const auto reducer, comm.open_reducer(plan, islands, {runs}));
  const std::vector<T> wanted = expected_sum<T>(one, islands);
  for (int round = 0; round < 2; ++round) {
    Buffer<T> buffer(comm.rank(), runs, one.elements);
    MOTLEY_TRY_VOID(reducer->begin(std::as_writable_bytes(std::span(buffer.values)),
                                   sum_type_of<T>(), nullptr));
    MOTLEY_TRY_VOID(reducer->wait());
    if (has(one.receivers)) expect_elements(buffer, runs, wanted, what);
  }
  return Unit{};
}

std::vector<int> all_ranks(const Communicator& comm) {
  std::vector<int> ranks(static_cast<size_t>(comm.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

std::set<int> some_of(const Communicator& comm) { return {0, comm.size() / 2, comm.size() - 1}; }

template <class T>
Result<Unit> all_reduce_of(Communicator& comm) {
  for (const Islands& islands : shapes(comm.size()))
    for (const int64_t count : kClassSizes)
      for (const Place place : {Place::kTogether, Place::kApart}) {
        // One type is enough to see that runs are found.
        if (place == Place::kApart && !std::is_same_v<T, float>) continue;
        const ReductionClass one{all_ranks(comm), all_ranks(comm), std::nullopt, count};
        MOTLEY_TRY_VOID(check_class<T>(comm, one, islands, place, "all-reduce"));
      }
  return Unit{};
}

Result<Unit> reduce_to_any_owner(Communicator& comm) {
  for (const Islands& islands : shapes(comm.size()))
    for (const int owner : some_of(comm)) {
      const ReductionClass one{all_ranks(comm), {owner}, owner, 20'011};
      MOTLEY_TRY_VOID(check_class<float>(comm, one, islands, Place::kTogether, "reduce"));
    }
  return Unit{};
}

Result<Unit> broadcast_from_any_owner(Communicator& comm) {
  for (const Islands& islands : shapes(comm.size()))
    for (const int owner : some_of(comm)) {
      const ReductionClass one{{owner}, all_ranks(comm), owner, 30'013};
      MOTLEY_TRY_VOID(check_class<double>(comm, one, islands, Place::kApart, "broadcast"));
    }
  return Unit{};
}

/// Some contribute, others receive, some do both, and some neither.
Result<Unit> unlike_contributors_and_receivers(Communicator& comm) {
  if (comm.size() < 3) return Unit{};
  for (const Islands& islands : shapes(comm.size()))
    for (const int left_out : some_of(comm)) {
      ReductionClass one{.contributors = {}, .receivers = {}, .owner = {}, .elements = 25'013};
      for (int rank = 0; rank < comm.size(); ++rank) {
        if (rank == left_out) continue;
        if ((rank + left_out) % 3 != 0 || one.contributors.empty())
          one.contributors.push_back(rank);
        if ((rank + left_out) % 3 != 1 || one.receivers.empty()) one.receivers.push_back(rank);
      }
      MOTLEY_TRY_VOID(check_class<float>(comm, one, islands, Place::kTogether, "unlike"));
    }
  return Unit{};
}

/// Several classes over ranks that overlap, in one reduction.
Result<Unit> classes_that_overlap(Communicator& comm) {
  for (const Islands& islands : shapes(comm.size())) {
    std::vector<ReductionClass> classes;
    std::vector<std::vector<ElementRun>> runs;
    const int64_t each = 20'000;
    for (int rank = 0; rank < comm.size(); ++rank) {
      const int next = (rank + 1) % comm.size();
      std::vector<int> two = {std::min(rank, next), std::max(rank, next)};
      if (rank == next) two.pop_back();
      classes.push_back({two, two, std::nullopt, each});
      runs.emplace_back();
      if (std::find(two.begin(), two.end(), comm.rank()) != two.end())
        runs.back().push_back({.offset = rank * each, .count = each, .at = 0});
    }
    const ReductionPlan plan = plan_reduction(classes, islands, sizeof(float));
    std::vector<float> flat(static_cast<size_t>(each * comm.size()), 0);
    for (const auto& some : runs)
      for (const ElementRun& run : some)
        for (int64_t i = 0; i < run.count; ++i)
          flat[static_cast<size_t>(run.offset + i)] = element_of<float>(comm.rank(), i);
    MOTLEY_TRY(const auto reducer, comm.open_reducer(plan, islands, runs));
    MOTLEY_TRY_VOID(reducer->begin(std::as_writable_bytes(std::span(flat)), SumType::kFloat32));
    MOTLEY_TRY_VOID(reducer->wait());
    for (size_t c = 0; c < classes.size(); ++c) {
      const std::vector<float> wanted = expected_sum<float>(classes[c], islands);
      for (const ElementRun& run : runs[c])
        EXPECT_EQ(std::memcmp(&flat[static_cast<size_t>(run.offset)], wanted.data(),
                              static_cast<size_t>(each) * sizeof(float)),
                  0)
            << "class " << c;
    }
  }
  return Unit{};
}

/// What is put on the links is what the plan says; the sums of the ranks of each island.
Result<Unit> bytes_on_links_are_as_planned(Communicator& comm) {
  for (const Islands& islands : shapes(comm.size())) {
    const ReductionClass one{all_ranks(comm), all_ranks(comm), std::nullopt, 60'013};
    const ReductionPlan plan = plan_reduction({one}, islands, sizeof(float));
    MOTLEY_TRY(const auto reducer,
               comm.open_reducer(plan, islands, {runs_for(one.elements, Place::kTogether)}));
    std::vector<float> flat(static_cast<size_t>(one.elements) + 8);
    MOTLEY_TRY_VOID(reducer->begin(std::as_writable_bytes(std::span(flat)), SumType::kFloat32));
    MOTLEY_TRY_VOID(reducer->wait());
    std::vector<int64_t> sent(static_cast<size_t>(islands.count()));
    sent[static_cast<size_t>(islands.of_rank[static_cast<size_t>(comm.rank())])] =
        reducer->bytes_sent();
    MOTLEY_TRY_VOID(comm.all_reduce_sum(std::span(sent)));
    for (int island = 0; island < islands.count(); ++island)
      EXPECT_EQ(sent[static_cast<size_t>(island)], plan.link_bytes(island).value());
  }
  return Unit{};
}

class OpenGate final : public ElementGate {
 public:
  Result<bool> readable(std::span<const ElementRun>) override { return true; }
  Result<Unit> written(std::span<const ElementRun>) override { return Unit{}; }
};

/// Some ranks look in between until it is over, others wait at its end alone.
Result<Unit> waited_for_in_pieces(Communicator& comm) {
  const Islands islands = shapes(comm.size()).front();
  const ReductionClass one{all_ranks(comm), all_ranks(comm), std::nullopt, 60'013};
  const auto runs = runs_for(one.elements, Place::kTogether);
  MOTLEY_TRY(const auto reducer,
             comm.open_reducer(plan_reduction({one}, islands, sizeof(float)), islands, {runs}));
  const std::vector<float> wanted = expected_sum<float>(one, islands);
  OpenGate gate;
  for (int round = 0; round < 4; ++round) {
    Buffer<float> buffer(comm.rank(), runs, one.elements);
    MOTLEY_TRY_VOID(reducer->begin_beside(std::as_writable_bytes(std::span(buffer.values)),
                                          SumType::kFloat32, gate));
    for (bool over = (comm.rank() + round) % 2 == 0; !over;) {
      MOTLEY_TRY(over, reducer->wait_for(std::chrono::microseconds(20)));
    }
    MOTLEY_TRY_VOID(reducer->wait());
    expect_elements(buffer, runs, wanted, "in pieces");
  }
  return Unit{};
}

class CountingGate final : public ElementGate {
 public:
  Result<bool> readable(std::span<const ElementRun>) override { return true; }
  Result<Unit> written(std::span<const ElementRun> runs) override {
    for (const ElementRun& run : runs) written_ += run.count;
    return Unit{};
  }
  int64_t written() const { return written_; }

 private:
  std::atomic<int64_t> written_ = 0;
};

/// Chunks of several messages each, as on long links, that go on while no rank waits for them.
Result<Unit> long_chunks_beside_work(Communicator& comm) {
  const Islands islands = shapes(comm.size()).back();
  const ReductionClass one{all_ranks(comm), all_ranks(comm), std::nullopt, 300'007};
  const auto runs = runs_for(one.elements, Place::kTogether);
  const ReductionPlan plan =
      plan_reduction({one}, islands, sizeof(float),
                     {.largest_chunk = Bytes{600 << 10}, .smallest_chunk = Bytes{600 << 10}});
  MOTLEY_TRY(const auto reducer, comm.open_reducer(plan, islands, {runs}));
  Buffer<float> buffer(comm.rank(), runs, one.elements);
  CountingGate gate;
  MOTLEY_TRY_VOID(reducer->begin_beside(std::as_writable_bytes(std::span(buffer.values)),
                                        SumType::kFloat32, gate));
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (gate.written() < one.elements && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(gate.written(), one.elements) << "it is over before anybody waits";
  MOTLEY_TRY_VOID(reducer->wait());
  expect_elements(buffer, runs, expected_sum<float>(one, islands), "long chunks");
  return Unit{};
}

}  // namespace

const std::vector<NamedCheck>& reducer_contract() {
  static const std::vector<NamedCheck> checks = {
      {"ReducerFloats", all_reduce_of<float>},
      {"ReducerDoubles", all_reduce_of<double>},
      {"ReducerIntegers", all_reduce_of<int64_t>},
      {"ReducerToOwner", reduce_to_any_owner},
      {"ReducerFromOwner", broadcast_from_any_owner},
      {"ReducerUnlike", unlike_contributors_and_receivers},
      {"ReducerOverlapping", classes_that_overlap},
      {"ReducerLinkBytes", bytes_on_links_are_as_planned},
      {"ReducerWaitedForInPieces", waited_for_in_pieces},
      {"ReducerLongChunks", long_chunks_beside_work},
  };
  return checks;
}

}  // namespace motley::testing
