#pragma once
// A host view that an exchange between ranks brings up to date piece by piece while it goes on:
// what it needs next is on its way from the device, and what it is through with on its way back,
// while ranks pass on what is there.

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/device.h"
#include "worker/engine/shared_memory.h"
#include "worker/program/parameters.h"

namespace motley {

class StagedView {
 public:
  /// Of memory with a view of its own, of elements of so many bytes; both outlive this.
  StagedView(Device& device, SharedMemory& memory, int element_bytes);

  /// The device's contents as of what is enqueued now; nothing of them is in the view yet.
  void begin();
  /// Gets under way to the view what is neither there nor under way. Ranges are rising.
  Result<Unit> fetch(std::span<const ParameterRange> ranges);
  /// Whether all of it is there or under way.
  bool begun(std::span<const ParameterRange> ranges) const;
  /// Until it is there; of what is not even under way, too.
  Result<Unit> wait(std::span<const ParameterRange> ranges);
  /// What the host has made of it gets under way to the device; the host may change it again, and
  /// give it again.
  Result<Unit> give_back(std::span<const ParameterRange> ranges);
  /// What is enqueued from here on finds what was given back; the host has no need to wait.
  void end();

 private:
  /// Copies move whole blocks, so that short ranges beside each other cost one copy.
  static constexpr int64_t kBlock = 1 << 20;
  struct Blocks {
    size_t begin = 0;
    size_t end = 0;
  };
  Blocks blocks_of(const ParameterRange& range) const;
  Result<Unit> pull(const Blocks& blocks);
  StreamMark& fetched(int64_t number) const {
    return *fetched_[static_cast<size_t>(number) % fetched_.size()];
  }

  SharedMemory* memory_;
  int element_bytes_;
  /// By block: the number of the fetch that brings it, from 1 on; 0: none.
  std::vector<int64_t> fetch_of_;
  int64_t fetches_ = 0;
  /// Of the last fetches. One that stands behind a later fetch is waited for longer than need be,
  /// but never too short.
  std::array<std::unique_ptr<StreamMark>, 4> fetched_;
  std::unique_ptr<StreamMark> computed_, given_back_;
};

}  // namespace motley
