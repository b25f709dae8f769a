#include "comm/chunk_task.h"

#include <algorithm>
#include <cstring>

namespace motley {
namespace {

template <class Body>
void each_run_of(const Chunk& chunk, Body body) {
  each_run_within(*chunk.runs, chunk.first, chunk.count, body);
}

class Follower final : public ChunkTask {
 public:
  Follower(ReductionSite& site, const Chunk& chunk, int64_t order)
      : ChunkTask(site, chunk),
        leader_(chunk.part->leader(chunk.home, chunk.number)),
        order_(order),
        hands_in_(chunk.contributes(site.rank())),
        receives_(chunk.receives(site.rank())) {}

  Result<bool> advance() override {
    if (hands_in_) return hand_in();
    if (receives_) return receive();
    return false;
  }
  bool done() const override { return !hands_in_ && !receives_; }
  ChunkWait waits_for() const override {
    const char* const phase = hands_in_ ? " (contribute)" : " (receive)";
    if (asked_in_vain_) return {"rank " + std::to_string(site_.rank()) + " itself" + phase, 0};
    return {"rank " + std::to_string(leader_) + phase, kFollowersDistance};
  }

 private:
  /// Contributions go in their order: a later chunk never takes the slot that an earlier one needs.
  Result<bool> hand_in() {
    if (site_.handed_in != order_) return false;
    const auto slot = site_.memory->contribution(site_.member(),
                                                 static_cast<int>(order_ % site_.memory->slots()));
    if (slot.tag.load(std::memory_order_acquire) != 0) return false;
    MOTLEY_TRY(const bool readable, site_.readable(chunk_));
    asked_in_vain_ = !readable;
    if (!readable) return false;
    site_.gather(chunk_, slot.data);
    slot.tag.store(chunk_.tag, std::memory_order_release);
    ++site_.handed_in;
    hands_in_ = false;
    return true;
  }

  /// What is only received must not be in anybody else's hands either.
  Result<bool> ask_for_it() {
    MOTLEY_TRY(untouched_, site_.readable(chunk_));
    asked_in_vain_ = !untouched_;
    return untouched_;
  }

  Result<bool> receive() {
    if (!untouched_) return ask_for_it();
    const int member = site_.member_of[static_cast<size_t>(leader_)];
    const int found = site_.memory->find_total(member, chunk_.tag);
    if (found < 0) return false;
    const auto slot = site_.memory->total(member, found);
    site_.scatter(chunk_, slot.data);
    slot.readers.fetch_sub(1, std::memory_order_release);
    receives_ = false;
    MOTLEY_TRY_VOID(site_.written(chunk_));
    return true;
  }

  const int leader_;
  const int64_t order_;
  bool hands_in_, receives_;
  bool untouched_ = hands_in_;  ///< asked for already
  bool asked_in_vain_ = false;  ///< the gate is shut
};

}  // namespace

std::vector<ElementRun> ReductionSite::runs_of(const Chunk& chunk) {
  std::vector<ElementRun> runs;
  each_run_of(chunk, [&](const ElementRun& run) { runs.push_back(run); });
  return runs;
}

size_t ReductionSite::wire_bytes(const Chunk& chunk) const {
  return compresses(chunk) ? static_cast<size_t>(encoded_bytes(codec, chunk.count)) : bytes(chunk);
}

Result<bool> ReductionSite::readable(const Chunk& chunk) const {
  return gate == nullptr ? Result<bool>(true) : gate->readable(runs_of(chunk));
}

Result<Unit> ReductionSite::written(const Chunk& chunk) const {
  return gate == nullptr ? Result<Unit>(Unit{}) : gate->written(runs_of(chunk));
}

std::byte* ReductionSite::in_place(const Chunk& chunk) const {
  int64_t offset = -1;
  each_run_of(chunk, [&](const ElementRun& run) {
    if (run.count == chunk.count) offset = run.offset;
  });
  return offset < 0 ? nullptr : flat.data() + offset * bytes_of(type);
}

void ReductionSite::gather(const Chunk& chunk, std::byte* to) const {
  each_run_of(chunk, [&](const ElementRun& run) {
    std::memcpy(to + (run.at - chunk.first) * bytes_of(type),
                flat.data() + run.offset * bytes_of(type),
                static_cast<size_t>(run.count * bytes_of(type)));
  });
}

void ReductionSite::scatter(const Chunk& chunk, const std::byte* from) const {
  each_run_of(chunk, [&](const ElementRun& run) {
    std::memcpy(flat.data() + run.offset * bytes_of(type),
                from + (run.at - chunk.first) * bytes_of(type),
                static_cast<size_t>(run.count * bytes_of(type)));
  });
}

bool Chunk::contributes(int rank) const {
  return std::binary_search(island().contributors.begin(), island().contributors.end(), rank);
}

bool Chunk::receives(int rank) const {
  return std::binary_search(island().receivers.begin(), island().receivers.end(), rank);
}

std::unique_ptr<ChunkTask> follower_task(ReductionSite& site, const Chunk& chunk, int64_t order) {
  return std::make_unique<Follower>(site, chunk, order);
}

}  // namespace motley
