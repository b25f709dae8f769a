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

// Every rank finds its transfers by walking the owners in the plan's order, so both ends of each
// know its runs and their order.
SliceExchange::SliceExchange(const Plan& plan, const ModelSpec& model, Communicator& world)
    : world_(world) {
  const Rank self(world.rank());
  std::vector<ParameterLayout> layouts;
  for (int rank = 0; rank < plan.world_size(); ++rank)
    layouts.push_back(layout_of(plan, model, Rank(rank)));
  const auto size = static_cast<size_t>(plan.world_size());
  std::vector<Transfer> gather(size), scatter(size), to(size), from(size);
  const auto at = [](Rank rank) { return static_cast<size_t>(rank.value()); };
  for (const Ownership& owned : plan.owners) {
    const FlatTensor& home = *layouts[at(owned.owner)].find(owned.tensor);
    for (int rank = 0; rank < plan.world_size(); ++rank) {
      const Rank holder(rank);
      if (holder != self && owned.owner != self) continue;
      const FlatTensor* copy = layouts[at(holder)].find(owned.tensor);
      if (copy == nullptr) continue;
      for (const CopyRun& run : copy_runs(copy->slice, home.slice, owned.slice)) {
        const int64_t there = copy->offset + run.from_offset;
        const int64_t here = home.offset + run.to_offset;
        if (holder == owned.owner) {
          if (!copy->counted) uncounted_.push_back({there, run.count});
        } else if (owned.owner == self) {
          if (copy->counted) gather[at(holder)].add(here, run.count);
          scatter[at(holder)].add(here, run.count);
        } else {
          if (copy->counted) to[at(owned.owner)].add(there, run.count);
          from[at(owned.owner)].add(there, run.count);
        }
      }
    }
  }
  int64_t most_out = 0, most_in = 0;
  const auto keep = [](std::vector<Transfer>& all, std::vector<Transfer>* kept) {
    int64_t elements = 0;
    for (size_t peer = 0; peer < all.size(); ++peer) {
      if (all[peer].elements == 0) continue;
      all[peer].peer = static_cast<int>(peer);
      elements += all[peer].elements;
      kept->push_back(std::move(all[peer]));
    }
    return elements;
  };
  most_out = std::max(keep(to, &to_owners_), keep(scatter, &to_holders_));
  most_in = std::max(keep(gather, &from_contributors_), keep(from, &from_owners_));
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
