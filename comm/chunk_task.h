#pragma once
// What one rank does for one chunk of a reduction (core/reduction.h): it hands in its elements and
// takes the total, or it is the chunk's leader. Tasks never wait; a Reducer calls those under way
// in turn.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/island_memory.h"
#include "comm/reducer.h"
#include "comm/transport.h"

namespace motley {

/// Calls body(run) for what of the runs of a class is among `count` elements from number `first`,
/// by rising number.
template <class Body>
void each_run_within(const std::vector<ElementRun>& runs, int64_t first, int64_t count, Body body) {
  const int64_t end = first + count;
  auto run = std::partition_point(runs.begin(), runs.end(), [&](const ElementRun& other) {
    return other.at + other.count <= first;
  });
  for (; run != runs.end() && run->at < end; ++run) {
    const int64_t begin = std::max(run->at, first);
    body(ElementRun{.offset = run->offset + (begin - run->at),
                    .count = std::min(run->at + run->count, end) - begin,
                    .at = begin});
  }
}

/// A chunk, as this rank sees it.
struct Chunk {
  const ReductionPart* part = nullptr;
  const std::vector<ElementRun>* runs = nullptr;  ///< of the class, here
  int64_t number = 0;                             ///< within its part
  int64_t first = 0;                              ///< elements of the class
  int64_t count = 0;
  int home = 0;         ///< this rank's island among those of the part
  uint64_t tag = 0;     ///< no other chunk of this group has it
  int message_tag = 0;  ///< and the next one; of chunks under way together no two have the same

  const IslandPart& island() const { return part->islands[static_cast<size_t>(home)]; }
  int islands() const { return static_cast<int>(part->islands.size()); }
  bool encodes() const { return part->encodes(home, number); }
  bool contributes(int rank) const;
  bool receives(int rank) const;
};

class LinkResiduals;

/// What the tasks of a reduction share. The elements of this rank, and the ways to the others.
struct ReductionSite {
  Transport& transport;
  IslandMemory* memory = nullptr;      ///< null: alone on its island
  std::vector<int> member_of = {};     ///< number of each rank within its island
  LinkResiduals* residuals = nullptr;  ///< null: nothing is compressed

  std::span<std::byte> flat = {};
  SumType type = SumType::kFloat32;
  ElementGate* gate = nullptr;
  CodecSpec codec = {};  ///< of parts that are compressed; off: they are not this time

  int64_t handed_in = 0;   ///< contributions of this rank so far
  int64_t bytes_sent = 0;  ///< between islands

  int rank() const { return transport.rank(); }
  int member() const { return member_of[static_cast<size_t>(rank())]; }
  size_t bytes(const Chunk& chunk) const {
    return static_cast<size_t>(chunk.count * bytes_of(type));
  }
  bool compresses(const Chunk& chunk) const {
    return chunk.part->compressed() && codec.kind != CodecKind::kOff;
  }
  /// Where it crosses a link.
  size_t wire_bytes(const Chunk& chunk) const;
  std::span<float> floats(const Chunk& chunk, std::byte* elements) const {
    return {reinterpret_cast<float*>(elements), static_cast<size_t>(chunk.count)};
  }
  static std::vector<ElementRun> runs_of(const Chunk& chunk);
  Result<bool> readable(const Chunk& chunk) const;
  Result<Unit> written(const Chunk& chunk) const;
  /// Where the chunk's elements lie, if side by side; null: they do not.
  std::byte* in_place(const Chunk& chunk) const;
  void gather(const Chunk& chunk, std::byte* to) const;
  void scatter(const Chunk& chunk, const std::byte* from) const;
};

/// Whom a task waits for. Ranks wait for each other in a row, at whose end is the one that is lost:
/// who stands next to it must give up first, or an innocent one is named.
struct ChunkWait {
  std::string whom;  ///< "rank 3 (contribute)"
  int distance = 0;  ///< from the end of the longest such row
};
/// A follower waits for its chunk's leader, which may wait for another's total (3), for another
/// island's sum (2), for a contribution (1) of one who has no room as a third does not receive (0).
inline constexpr int kFollowersDistance = 4;

class ChunkTask {
 public:
  ChunkTask(ReductionSite& site, const Chunk& chunk) : site_(site), chunk_(chunk) {}
  virtual ~ChunkTask() = default;

  /// Whether anything moved.
  virtual Result<bool> advance() = 0;
  virtual bool done() const = 0;
  virtual ChunkWait waits_for() const = 0;

 protected:
  ReductionSite& site_;
  const Chunk chunk_;
};

/// Hands in its elements, takes the total, or both. `order`: how many contributions of this rank
/// come before.
std::unique_ptr<ChunkTask> follower_task(ReductionSite& site, const Chunk& chunk, int64_t order);

/// Memory of a leader's task while it is under way, each of the largest chunk's bytes.
struct LeaderBuffers {
  std::byte* sum = nullptr;          ///< of the island
  std::byte* total = nullptr;        ///< where there is no other place for it
  std::byte* encoded = nullptr;      ///< what it sends; null where nothing is compressed
  std::vector<std::byte*> received;  ///< as many as other islands in any part
  int slot = 0;                      ///< of the island's memory, for the total
};
/// Posts what it receives; kPeerLost where that fails.
Result<std::unique_ptr<ChunkTask>> leader_task(ReductionSite& site, const Chunk& chunk,
                                               const LeaderBuffers& buffers);

}  // namespace motley
