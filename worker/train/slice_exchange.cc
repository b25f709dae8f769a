#include "worker/train/slice_exchange.h"

#include <algorithm>
#include <cstring>

#include "core/holdings.h"
#include "worker/program/parameters.h"

namespace motley {
namespace {

ParameterLayout layout_of(const Plan& plan, const ModelSpec& model, Rank rank) {
  const Role role = role_of(plan, rank);
  return ParameterLayout(holdings_of(model, stage_of(plan, role), role.member));
}

/// Fixed-point sums may wrap; an overflow is found and repeated by those who use them.
template <class T>
T added(T a, T b) {
  return a + b;
}
int64_t added(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}

template <class T>
std::span<std::byte> bytes_of(std::span<T> values) {
  return std::as_writable_bytes(values);
}

}  // namespace

void SliceExchange::Transfer::add(int64_t offset, int64_t count) {
  elements += count;
  if (!runs.empty() && runs.back().offset + runs.back().count == offset)
    runs.back().count += count;
  else
    runs.push_back({offset, count});
}

namespace {

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

}  // namespace

/// Transfers by peer; an empty one is none.
class SliceExchange::ByPeer {
 public:
  explicit ByPeer(int ranks) : transfers_(static_cast<size_t>(ranks)) {}

  void add(Rank peer, int64_t offset, int64_t count) {
    transfers_[static_cast<size_t>(peer.value())].add(offset, count);
  }
  /// Those that are not empty go to `kept`; returns their elements.
  int64_t move_to(std::vector<Transfer>* kept) {
    int64_t elements = 0;
    for (size_t peer = 0; peer < transfers_.size(); ++peer) {
      if (transfers_[peer].elements == 0) continue;
      transfers_[peer].peer = static_cast<int>(peer);
      elements += transfers_[peer].elements;
      kept->push_back(std::move(transfers_[peer]));
    }
    return elements;
  }

 private:
  std::vector<Transfer> transfers_;
};

SliceExchange::SliceExchange(const Plan& plan, const ModelSpec& model, Communicator& world)
    : world_(world) {
  const Rank self(world.rank());
  const int ranks = plan.world_size();
  ByPeer to_owner(ranks), from_contributor(ranks), to_holder(ranks), from_owner(ranks);
  each_shared_run(plan, model, self, [&](const SharedRun& run) {
    if (run.holder == run.owner) {
      if (!run.counted) uncounted_.push_back({run.at_owner, run.count});
    } else if (run.owner == self) {
      if (run.counted) from_contributor.add(run.holder, run.at_owner, run.count);
      to_holder.add(run.holder, run.at_owner, run.count);
    } else {
      if (run.counted) to_owner.add(run.owner, run.at_holder, run.count);
      from_owner.add(run.owner, run.at_holder, run.count);
    }
  });
  const int64_t most_out = std::max(to_owner.move_to(&to_owners_), to_holder.move_to(&to_holders_));
  const int64_t most_in =
      std::max(from_contributor.move_to(&from_contributors_), from_owner.move_to(&from_owners_));
  outgoing_.resize(static_cast<size_t>(most_out) * sizeof(int64_t));
  incoming_.resize(static_cast<size_t>(most_in) * sizeof(int64_t));
}

void SliceExchange::pack(std::span<const std::byte> flat, int element_bytes,
                         const Transfer& transfer, std::byte* to) const {
  for (const Run& run : transfer.runs) {
    const auto bytes = static_cast<size_t>(run.count * element_bytes);
    std::memcpy(to, flat.data() + run.offset * element_bytes, bytes);
    to += bytes;
  }
}

void SliceExchange::unpack(std::span<std::byte> flat, int element_bytes, const Transfer& transfer,
                           const std::byte* from) const {
  for (const Run& run : transfer.runs) {
    const auto bytes = static_cast<size_t>(run.count * element_bytes);
    std::memcpy(flat.data() + run.offset * element_bytes, from, bytes);
    from += bytes;
  }
}

/// One exchange with all peers. A single run travels from where it lies, several are packed first.
/// `in_place`: what arrives replaces this rank's runs; else it stays in incoming_, by peer.
Result<Unit> SliceExchange::move(std::span<std::byte> flat, int element_bytes,
                                 const std::vector<Transfer>& outgoing,
                                 const std::vector<Transfer>& incoming, bool in_place,
                                 const std::string& operation) {
  sends_.clear();
  receives_.clear();
  const auto size_of = [&](const Transfer& transfer) {
    return static_cast<size_t>(transfer.elements * element_bytes);
  };
  const auto lies_at = [&](const Transfer& transfer) {
    return flat.data() + transfer.runs[0].offset * element_bytes;
  };
  std::byte* free = outgoing_.data();
  for (const Transfer& transfer : outgoing) {
    const bool packed = transfer.runs.size() > 1;
    if (packed) pack(flat, element_bytes, transfer, free);
    const std::byte* from = packed ? free : lies_at(transfer);
    sends_.push_back({transfer.peer, std::span(from, size_of(transfer))});
    if (packed) free += size_of(transfer);
  }
  free = incoming_.data();
  for (const Transfer& transfer : incoming) {
    const bool direct = in_place && transfer.runs.size() == 1;
    std::byte* into = direct ? lies_at(transfer) : free;
    receives_.push_back({transfer.peer, std::span(into, size_of(transfer))});
    if (!direct) free += size_of(transfer);
  }
  MOTLEY_TRY_VOID(world_.exchange(receives_, sends_, operation));
  for (size_t i = 0; i < incoming.size() && in_place; ++i)
    if (incoming[i].runs.size() > 1)
      unpack(flat, element_bytes, incoming[i], receives_[i].into.data());
  return Unit{};
}

template <class T>
Result<Unit> SliceExchange::reduce_all(std::span<T> flat) {
  for (const Run& run : uncounted_) std::fill_n(flat.begin() + run.offset, run.count, T{});
  MOTLEY_TRY_VOID(move(bytes_of(flat), sizeof(T), to_owners_, from_contributors_, false,
                       "reduction of gradients"));
  const auto* arrived = reinterpret_cast<const T*>(incoming_.data());
  for (const Transfer& transfer : from_contributors_) {
    for (const Run& run : transfer.runs) {
      T* sum = flat.data() + run.offset;
      for (int64_t i = 0; i < run.count; ++i) sum[i] = added(sum[i], arrived[i]);
      arrived += run.count;
    }
  }
  return Unit{};
}

Result<Unit> SliceExchange::reduce(const GradientSpans& gradients) {
  if (!gradients.fixed.empty()) return reduce_all(gradients.fixed);
  if (!gradients.doubles.empty()) return reduce_all(gradients.doubles);
  return reduce_all(gradients.floats);
}

Result<Unit> SliceExchange::distribute(const GradientSpans& gradients) {
  if (!gradients.fixed.empty()) return distribute(bytes_of(gradients.fixed), sizeof(int64_t));
  if (!gradients.doubles.empty()) return distribute(bytes_of(gradients.doubles), sizeof(double));
  return distribute(bytes_of(gradients.floats), sizeof(float));
}

Result<Unit> SliceExchange::distribute(std::span<std::byte> flat, int element_bytes) {
  return move(flat, element_bytes, to_holders_, from_owners_, true, "distribution of slices");
}

}  // namespace motley
