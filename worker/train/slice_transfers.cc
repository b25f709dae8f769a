#include "worker/train/slice_transfers.h"

#include <algorithm>
#include <utility>

#include "core/holdings.h"
#include "core/rank_memory.h"

namespace motley {
namespace {

ParameterLayout layout_of(const Plan& plan, const ModelSpec& model, Rank rank) {
  const Role role = role_of(plan, rank);
  return ParameterLayout(holdings_of(model, stage_of(plan, role), role.member));
}

/// A run of elements that one rank and the owner of a slice both hold.
struct SharedRun {
  Rank holder;
  Rank owner;
  int64_t at_holder = 0;  ///< offset in its flat buffer
  int64_t at_owner = 0;
  int64_t count = 0;
  bool counted = false;  ///< the holder's copy
};

/// Calls body(SharedRun) for all that concern `self`, in the order of the plan's owners: both ends
/// of a transfer thus know its runs and their order.
template <class Body>
void each_shared_run(const Plan& plan, const ModelSpec& model, Rank self, Body body) {
  std::vector<ParameterLayout> layouts;
  for (int rank = 0; rank < plan.world_size(); ++rank)
    layouts.push_back(layout_of(plan, model, Rank(rank)));
  const auto layout = [&](Rank rank) -> const ParameterLayout& {
    return layouts[static_cast<size_t>(rank.value())];
  };
  for (const Ownership& owned : plan.owners) {
    const FlatTensor& home = *layout(owned.owner).find(owned.tensor);
    for (int rank = 0; rank < plan.world_size(); ++rank) {
      const Rank holder(rank);
      if (holder != self && owned.owner != self) continue;
      const FlatTensor* copy = layout(holder).find(owned.tensor);
      if (copy == nullptr) continue;
      for (const CopyRun& run : copy_runs(copy->slice, home.slice, owned.slice))
        body(SharedRun{.holder = holder,
                       .owner = owned.owner,
                       .at_holder = copy->offset + run.from_offset,
                       .at_owner = home.offset + run.to_offset,
                       .count = run.count,
                       .counted = copy->counted});
    }
  }
}

/// What each rank owns, in the order in which it lies there: at which of its flat offsets, and as
/// which of its elements.
std::vector<std::vector<SliceRun>> owned_runs(const Plan& plan, const ModelSpec& model) {
  std::vector<std::vector<SliceRun>> owned(plan.ranks.size());
  for (size_t rank = 0; rank < owned.size(); ++rank) {
    const ParameterLayout layout = layout_of(plan, model, Rank(static_cast<int>(rank)));
    for (const Ownership& ownership : plan.owners) {
      if (ownership.owner != Rank(static_cast<int>(rank))) continue;
      const FlatTensor& home = *layout.find(ownership.tensor);
      for (const CopyRun& run : copy_runs(ownership.slice, home.slice))
        owned[rank].push_back({.offset = home.offset + run.to_offset, .count = run.count});
    }
    std::sort(owned[rank].begin(), owned[rank].end(),
              [](const SliceRun& a, const SliceRun& b) { return a.offset < b.offset; });
    int64_t at = 0;
    for (SliceRun& run : owned[rank]) run.at = std::exchange(at, at + run.count);
  }
  return owned;
}

/// The number of the element that lies at `offset`, which must be an owned one.
int64_t number_of(const std::vector<SliceRun>& owned, int64_t offset) {
  const auto after =
      std::upper_bound(owned.begin(), owned.end(), offset,
                       [](int64_t place, const SliceRun& run) { return place < run.offset; });
  const SliceRun& run = *std::prev(after);
  return run.at + (offset - run.offset);
}

/// Transfers by peer; an empty one is none.
class ByPeer {
 public:
  explicit ByPeer(int ranks) : transfers_(static_cast<size_t>(ranks)) {}

  void add(Rank peer, const SliceRun& run) {
    SliceTransfer& transfer = transfers_[static_cast<size_t>(peer.value())];
    transfer.runs.push_back(run);
    transfer.elements += run.count;
  }
  std::vector<SliceTransfer> take() {
    std::vector<SliceTransfer> kept;
    for (size_t peer = 0; peer < transfers_.size(); ++peer) {
      if (transfers_[peer].elements == 0) continue;
      transfers_[peer].peer = static_cast<int>(peer);
      join(&transfers_[peer].runs);
      kept.push_back(std::move(transfers_[peer]));
    }
    return kept;
  }

 private:
  static void join(std::vector<SliceRun>* runs) {
    std::sort(runs->begin(), runs->end(),
              [](const SliceRun& a, const SliceRun& b) { return a.at < b.at; });
    std::vector<SliceRun> joined;
    for (const SliceRun& run : *runs) {
      if (!joined.empty() && joined.back().offset + joined.back().count == run.offset &&
          joined.back().at + joined.back().count == run.at)
        joined.back().count += run.count;
      else
        joined.push_back(run);
    }
    *runs = std::move(joined);
  }

  std::vector<SliceTransfer> transfers_;
};

Bytes bytes_of_messages(const std::vector<SliceTransfer>& transfers, bool of_one_run_too,
                        Bytes message, int widest) {
  Bytes bytes{0};
  for (const SliceTransfer& transfer : transfers)
    if (of_one_run_too || transfer.runs.size() > 1)
      bytes += std::min(message, Bytes(transfer.elements * widest));
  return bytes;
}

void add_runs(const std::vector<SliceTransfer>& transfers, std::vector<SliceRun>* runs) {
  for (const SliceTransfer& transfer : transfers)
    runs->insert(runs->end(), transfer.runs.begin(), transfer.runs.end());
}

}  // namespace

SliceTransfers::SliceTransfers(const Plan& plan, const ModelSpec& model, Rank self) {
  const int ranks = plan.world_size();
  const auto owned = owned_runs(plan, model);
  ByPeer to_owner(ranks), from_contributor(ranks), to_holder(ranks), from_owner(ranks);
  each_shared_run(plan, model, self, [&](const SharedRun& run) {
    const int64_t at = number_of(owned[static_cast<size_t>(run.owner.value())], run.at_owner);
    const SliceRun here{
        .offset = run.owner == self ? run.at_owner : run.at_holder, .count = run.count, .at = at};
    if (run.holder == run.owner) {
      if (!run.counted) uncounted.push_back(here);
    } else if (run.owner == self) {
      if (run.counted) from_contributor.add(run.holder, here);
      to_holder.add(run.holder, here);
    } else {
      if (run.counted) to_owner.add(run.owner, here);
      from_owner.add(run.owner, here);
    }
  });
  to_owners = to_owner.take();
  from_contributors = from_contributor.take();
  to_holders = to_holder.take();
  from_owners = from_owner.take();
}

Bytes SliceTransfers::outgoing_bytes(Bytes message, int widest) const {
  return std::max(bytes_of_messages(to_owners, false, message, widest),
                  bytes_of_messages(to_holders, false, message, widest));
}

/// What is added up arrives beside what it is added to.
Bytes SliceTransfers::incoming_bytes(Bytes message, int widest) const {
  return std::max(bytes_of_messages(from_contributors, true, message, widest),
                  bytes_of_messages(from_owners, false, message, widest));
}

std::vector<ParameterRange> ranges_over(std::vector<SliceRun> runs) {
  constexpr int64_t kSmallGap = 16384;
  std::sort(runs.begin(), runs.end(),
            [](const SliceRun& a, const SliceRun& b) { return a.offset < b.offset; });
  std::vector<ParameterRange> ranges;
  for (const SliceRun& run : runs) {
    const int64_t end = run.offset + run.count;
    if (ranges.empty() || run.offset > ranges.back().offset + ranges.back().count + kSmallGap)
      ranges.push_back({run.offset, 0});
    ParameterRange& last = ranges.back();
    last.count = std::max(last.count, end - last.offset);
  }
  return ranges;
}

std::vector<ParameterRange> gradient_ranges(const SliceTransfers& transfers, bool sharded) {
  std::vector<SliceRun> runs = transfers.uncounted;
  add_runs(transfers.to_owners, &runs);
  add_runs(transfers.from_contributors, &runs);
  if (!sharded) {
    add_runs(transfers.to_holders, &runs);
    add_runs(transfers.from_owners, &runs);
  }
  return ranges_over(std::move(runs));
}

std::vector<ParameterRange> weight_ranges(const SliceTransfers& transfers) {
  std::vector<SliceRun> runs;
  add_runs(transfers.to_holders, &runs);
  add_runs(transfers.from_owners, &runs);
  return ranges_over(std::move(runs));
}

Bytes slice_exchange_bytes(const Plan& plan, const ModelSpec& model, Rank self, int widest) {
  const SliceTransfers transfers(plan, model, self);
  const Bytes message = exchange_message_bytes(plan.world_size());
  return transfers.outgoing_bytes(message, widest) + transfers.incoming_bytes(message, widest);
}

}  // namespace motley
