#pragma once
// Memory that the ranks of one host share: slots in which chunks pass from one to another without
// passing through the transport.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "comm/communicator.h"
#include "core/reducer_memory.h"
#include "core/result.h"

namespace motley {

class IslandMemory {
 public:
  /// Collective over `island`, whose ranks are on one host; all get the same or all fail:
  /// kUnsupported where the host has no room for it. Nothing of it has a name in the file system
  /// when this returns, so nothing is left behind by ranks that die.
  static Result<std::unique_ptr<IslandMemory>> open(Communicator& island,
                                                    const IslandMemoryShape& shape);
  ~IslandMemory();
  IslandMemory(const IslandMemory&) = delete;
  IslandMemory& operator=(const IslandMemory&) = delete;

  /// Of one chunk at a time. Whoever fills it stores the tag last (release), whoever reads it loads
  /// the tag first (acquire).
  struct Slot {
    std::byte* data;
    std::atomic_ref<uint64_t> tag;     ///< of the chunk that is in it; 0: free
    std::atomic_ref<int64_t> readers;  ///< of a total: who has not read it yet
  };
  Slot contribution(int member, int slot) const { return at(2 * member, slot); }
  Slot total(int member, int slot) const { return at(2 * member + 1, slot); }
  int slots() const { return shape_.slots; }
  /// The slot of a member that holds this chunk, or -1.
  int find_contribution(int member, uint64_t tag) const { return find(2 * member, tag); }
  int find_total(int member, uint64_t tag) const { return find(2 * member + 1, tag); }

 private:
  IslandMemory(std::byte* mapped, const IslandMemoryShape& shape)
      : mapped_(mapped), shape_(shape) {}
  Slot at(int row, int slot) const;
  int find(int row, uint64_t tag) const;

  std::byte* const mapped_;
  const IslandMemoryShape shape_;
};

}  // namespace motley
