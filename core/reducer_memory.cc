#include "core/reducer_memory.h"

#include <algorithm>

#include "core/chunk_sizes.h"

namespace motley {
namespace {

int ranks_in(const Islands& islands, int island) {
  return static_cast<int>(std::count(islands.of_rank.begin(), islands.of_rank.end(), island));
}

/// Memory a codec keeps for itself, in floats for an element of its longest span: what it is to
/// send, what it decodes to add, and indices and magnitudes of top-k.
constexpr size_t kScratchFloats = 4;

/// Of the largest chunk of any part, 0 where there is none that the test accepts.
template <class Test>
size_t largest_chunk(const ReductionPlan& plan, Test test) {
  int64_t elements = 0;
  for (const ReductionPart& part : plan.parts)
    if (test(part)) elements = std::max(elements, part.elements_of(0));
  return static_cast<size_t>(elements * plan.element_bytes);
}

/// Few elements may be more bytes once they are encoded.
size_t chunk_bytes(int64_t elements, int element_bytes, const CodecSpec& codec) {
  const int64_t plain = elements * element_bytes;
  return static_cast<size_t>(
      codec.kind == CodecKind::kOff ? plain : std::max(plain, encoded_bytes(codec, elements)));
}

int at_a_time(int64_t chunks) { return static_cast<int>(std::min<int64_t>(kChunksLed, chunks)); }

/// How many chunks of the part a rank leads, of islands[which]: leaders take turns.
int64_t chunks_led(const ReductionPart& part, int rank) {
  for (const IslandPart& one : part.islands) {
    const auto turns = static_cast<int64_t>(one.leaders.size());
    if (std::find(one.leaders.begin(), one.leaders.end(), rank) != one.leaders.end())
      return (part.chunks() + turns - 1) / turns;
  }
  return 0;
}

bool has_part(const ReductionPart& part, int island) {
  return std::any_of(part.islands.begin(), part.islands.end(),
                     [&](const IslandPart& one) { return one.island == island; });
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
  const int home = islands.of_rank[static_cast<size_t>(rank)];
  size_t arriving = 0;
  int64_t led = 0, of_island = 0;                    // chunks: any of its ranks may lead any
  const size_t encoded = plan.compressed() ? 1 : 0;  // also of a rank that leads what is not
  for (const ReductionPart& part : plan.parts) {
    if (has_part(part, home)) of_island += part.chunks();
    const int64_t own = chunks_led(part, rank);
    if (own == 0) continue;
    led += own;
    arriving = std::max(arriving, part.islands.size() - 1);
    memory.chunk =
        std::max(memory.chunk, chunk_bytes(part.elements_of(0), plan.element_bytes, part.codec));
  }
  memory.led = static_cast<size_t>(at_a_time(led));
  memory.for_each_led = 2 + arriving + encoded;  // besides the island's sum and the total
  for (const EncodedChunk& chunk : chunks_encoded(plan, rank))
    memory.residual += static_cast<size_t>(chunk.count) * sizeof(float);
  memory.scratch = encoded * kScratchFloats * memory.chunk;
  if (const int members = ranks_in(islands, home); members > 1)
    memory.island = {
        members, at_a_time(of_island),
        largest_chunk(plan, [&](const ReductionPart& part) { return passes_within(part, home); })};
  return memory;
}

Bytes factor_bytes(const FactorElements& elements, const CodecSpec& codec) {
  int64_t floats = elements.matrices + elements.p + elements.q + elements.columns;
  if (codec.values != CodecValues::kFp32) floats += std::max(elements.p, elements.q);
  return Bytes(floats * int64_t{sizeof(float)});
}

Bytes plain_reducer_bytes(int64_t elements, int element_bytes, const PlainRanks& ranks,
                          const CodecSpec& codec) {
  Bytes most{0};
  const int islands = std::min(ranks.count, ranks.hosts);
  for (const int count : {1, islands - 1, islands}) {
    if (count < 1) continue;
    const int least_on_a_host = (ranks.count + count - 1) / count;
    const bool compressed = count > 1 && encodes_spans(codec.kind);
    const CodecSpec used = compressed ? codec : CodecSpec{};
    const ClassSpread spread{count, least_on_a_host, 1, ranks.round_trip_bytes};
    const int64_t chunk =
        std::min(elements, chunk_elements(elements, element_bytes, spread, {}, used));
    ReducerMemory memory;
    const int at_once = at_a_time((elements + chunk - 1) / chunk);
    memory.led = static_cast<size_t>(at_once);
    memory.chunk = chunk_bytes(chunk, element_bytes, used);
    memory.for_each_led = static_cast<size_t>(1 + count + (compressed ? 1 : 0));
    if (ranks.count > count)
      memory.island = {least_on_a_host, at_once, static_cast<size_t>(chunk * element_bytes)};
    if (compressed) {  // a rank alone on its host encodes all
      memory.residual = static_cast<size_t>(elements) * sizeof(float);
      memory.scratch = kScratchFloats * memory.chunk;
    }
    most = std::max(most, memory.total());
  }
  return ranks.count > 1 ? most : Bytes(0);
}

}  // namespace motley
