#include "worker/engine/staged_view.h"

#include <algorithm>

namespace motley {

StagedView::StagedView(Device& device, SharedMemory& memory, int element_bytes)
    : memory_(&memory),
      element_bytes_(element_bytes),
      fetch_of_(static_cast<size_t>((memory.size().value() + kBlock - 1) / kBlock)),
      computed_(device.make_mark()),
      given_back_(device.make_mark()) {
  for (auto& mark : fetched_) mark = device.make_mark();
}

void StagedView::begin() {
  std::fill(fetch_of_.begin(), fetch_of_.end(), 0);
  fetches_ = 0;
  computed_->set();
}

StagedView::Blocks StagedView::blocks_of(const ParameterRange& range) const {
  const int64_t begin = range.offset * element_bytes_;
  const int64_t end = begin + range.count * element_bytes_;
  return {static_cast<size_t>(begin / kBlock), static_cast<size_t>((end + kBlock - 1) / kBlock)};
}

Result<Unit> StagedView::pull(const Blocks& blocks) {
  const auto begin = static_cast<int64_t>(blocks.begin) * kBlock;
  const int64_t end = std::min(static_cast<int64_t>(blocks.end) * kBlock, memory_->size().value());
  std::fill(fetch_of_.begin() + static_cast<int64_t>(blocks.begin),
            fetch_of_.begin() + static_cast<int64_t>(blocks.end), fetches_);
  return memory_->pull_beside(Bytes(begin), Bytes(end - begin), *computed_, fetched(fetches_));
}

Result<Unit> StagedView::fetch(std::span<const ParameterRange> ranges) {
  const auto is_missing = [&](size_t block) { return fetch_of_[block] == 0; };
  const int64_t before = fetches_;
  for (const ParameterRange& range : ranges) {
    const Blocks all = blocks_of(range);
    // Of those that are missing, neighbours together.
    for (Blocks some{all.begin, all.begin}; some.end < all.end; some.begin = some.end) {
      while (some.end < all.end && is_missing(some.end)) ++some.end;
      if (some.end > some.begin) {
        fetches_ = before + 1;
        MOTLEY_TRY_VOID(pull(some));
      }
      while (some.end < all.end && !is_missing(some.end)) ++some.end;
    }
  }
  return Unit{};
}

bool StagedView::begun(std::span<const ParameterRange> ranges) const {
  return std::all_of(ranges.begin(), ranges.end(), [&](const ParameterRange& range) {
    const Blocks all = blocks_of(range);
    return std::all_of(fetch_of_.begin() + static_cast<int64_t>(all.begin),
                       fetch_of_.begin() + static_cast<int64_t>(all.end),
                       [](int64_t fetch) { return fetch != 0; });
  });
}

Result<Unit> StagedView::wait(std::span<const ParameterRange> ranges) {
  MOTLEY_TRY_VOID(fetch(ranges));
  int64_t last = 0;
  for (const ParameterRange& range : ranges) {
    const Blocks all = blocks_of(range);
    for (size_t block = all.begin; block < all.end; ++block)
      last = std::max(last, fetch_of_[block]);
  }
  return last == 0 ? Result<Unit>(Unit{}) : fetched(last).wait();
}

Result<Unit> StagedView::give_back(std::span<const ParameterRange> ranges) {
  MOTLEY_TRY_VOID(wait(ranges));  // of what lies between, which goes with it
  for (const ParameterRange& range : ranges)
    MOTLEY_TRY_VOID(memory_->push_beside(Bytes(range.offset * element_bytes_),
                                         Bytes(range.count * element_bytes_), *computed_,
                                         *given_back_));
  return Unit{};
}

void StagedView::end() { given_back_->hold_stream(); }

}  // namespace motley
