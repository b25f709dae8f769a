#include "core/reducer_memory.h"

#include <algorithm>

namespace motley {
namespace {

int ranks_in(const Islands& islands, int island) {
  return static_cast<int>(std::count(islands.of_rank.begin(), islands.of_rank.end(), island));
}

/// Of the largest chunk of any part, 0 where there is none that the test accepts.
template <class Test>
size_t largest_chunk(const ReductionPlan& plan, Test test) {
  int64_t elements = 0;
  for (const ReductionPart& part : plan.parts)
    if (test(part)) elements = std::max(elements, std::min(part.chunk_elements, part.elements));
  return static_cast<size_t>(elements * plan.element_bytes);
}

bool leads(const ReductionPart& part, int rank) {
  return std::any_of(part.islands.begin(), part.islands.end(), [&](const IslandPart& one) {
    return std::find(one.leaders.begin(), one.leaders.end(), rank) != one.leaders.end();
  });
}

bool passes_within(const ReductionPart& part, int island) {
  return std::any_of(part.islands.begin(), part.islands.end(), [&](const IslandPart& one) {
    return one.island == island && (one.contributors.size() > 1 || one.receivers.size() > 1 ||
                                    one.contributors != one.receivers);
  });
}

}  // namespace

ReducerMemory reducer_memory(const ReductionPlan& plan, const Islands& islands, int rank) {
  ReducerMemory memory;
  memory.chunk = largest_chunk(plan, [&](const ReductionPart& part) { return leads(part, rank); });
  size_t others = 0;
  for (const ReductionPart& part : plan.parts)
    if (leads(part, rank)) others = std::max(others, part.islands.size() - 1);
  memory.for_each_led = 2 + others;  // the island's sum, the total, and what arrives
  const int home = islands.of_rank[static_cast<size_t>(rank)];
  if (const int members = ranks_in(islands, home); members > 1)
    memory.island = {members, kChunksLed, largest_chunk(plan, [&](const ReductionPart& part) {
                       return passes_within(part, home);
                     })};
  return memory;
}

Bytes plain_reducer_bytes(int64_t elements, int element_bytes, int ranks, int hosts) {
  Bytes most{0};
  const int islands = std::min(ranks, hosts);
  for (const int count : {1, islands - 1, islands}) {
    if (count < 1) continue;
    const int least_on_a_host = (ranks + count - 1) / count;
    ReducerMemory memory;
    memory.chunk = static_cast<size_t>(
        std::min(elements, chunk_elements(elements, element_bytes, count, least_on_a_host)) *
        element_bytes);
    memory.for_each_led = static_cast<size_t>(1 + count);
    if (ranks > count) memory.island = {least_on_a_host, kChunksLed, memory.chunk};
    most = std::max(most, memory.total());
  }
  return ranks > 1 ? most : Bytes(0);
}

}  // namespace motley
