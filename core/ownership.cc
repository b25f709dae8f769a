// even_ownership() of core/plan.h.

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>

#include "core/holdings.h"
#include "core/plan.h"
#include "core/reduction.h"

namespace motley {
namespace {

using Holders = std::vector<Rank>;

struct HeldSlice {
  Slice slice;
  Rank rank;
};

/// A box of a tensor that the same ranks hold all of.
struct Box {
  size_t tensor = 0;
  Slice slice;

  int64_t row_elements() const { return slice.elements() / slice.extent[0]; }
};

std::map<std::string, std::vector<HeldSlice>> holders_of(const Plan& plan, const ModelSpec& model) {
  std::map<std::string, std::vector<HeldSlice>> held;
  using Shape = std::tuple<LayerIndex, LayerIndex, std::vector<double>, size_t>;
  std::map<Shape, std::vector<Holding>> known;  // many replicas are cut alike
  for (const ReplicaPlan& replica : plan.replicas)
    for (const StagePlan& stage : replica.stages)
      for (size_t member = 0; member < stage.ranks.size(); ++member) {
        const auto [found, is_new] =
            known.try_emplace({stage.first_layer, stage.last_layer, stage.shares, member});
        if (is_new) found->second = holdings_of(model, stage, static_cast<int>(member));
        for (const Holding& holding : found->second)
          held[holding.tensor.name].push_back({holding.slice, stage.ranks[member]});
      }
  return held;
}

/// [0, extent) cut wherever a holder's slice begins or ends.
std::vector<int64_t> cuts_of(const std::vector<HeldSlice>& held, size_t dimension) {
  std::set<int64_t> cuts;
  for (const HeldSlice& each : held) {
    cuts.insert(each.slice.start[dimension]);
    cuts.insert(each.slice.start[dimension] + each.slice.extent[dimension]);
  }
  return {cuts.begin(), cuts.end()};
}

/// The boxes between the cuts of all dimensions, in row-major order.
std::vector<Slice> boxes_of(const std::vector<HeldSlice>& held, size_t dimensions) {
  std::vector<Slice> boxes = {{}};
  for (size_t d = 0; d < dimensions; ++d) {
    const std::vector<int64_t> cuts = cuts_of(held, d);
    std::vector<Slice> finer;
    for (const Slice& box : boxes) {
      for (size_t i = 0; i + 1 < cuts.size(); ++i) {
        finer.push_back(box);
        finer.back().start.push_back(cuts[i]);
        finer.back().extent.push_back(cuts[i + 1] - cuts[i]);
      }
    }
    boxes = std::move(finer);
  }
  return boxes;
}

/// How often each of so many holders has its turn where they alternate over the boxes: in stretches
/// that are worth a few messages, and much longer than the rows to which they are rounded.
int64_t rounds_over(const std::vector<Box>& boxes, int64_t total, int64_t holders) {
  constexpr int64_t kLeastElements = 128 << 10;
  constexpr int64_t kLeastRows = 8;
  int64_t least = kLeastElements;
  for (const Box& box : boxes) least = std::max(least, kLeastRows * box.row_elements());
  return std::clamp<int64_t>(total / (holders * least), 1, rounds_over_model(holders));
}

/// Deals a group's boxes to its holders in contiguous stretches, in turn: of n stretches number k
/// ends where (k + 1) / n of all elements are dealt, rounded to a row.
void deal(const std::vector<Box>& boxes, const Holders& holders, bool alternate,
          const std::vector<LogicalTensor>& tensors,
          std::map<size_t, std::vector<Ownership>>* dealt) {
  int64_t total = 0;
  for (const Box& box : boxes) total += box.slice.elements();
  const auto owners = static_cast<int64_t>(holders.size());
  const bool in_turn = alternate && owners > 1;
  const int64_t count = owners * (in_turn ? rounds_over(boxes, total, owners) : 1);
  int64_t before = 0;  // elements of the boxes so far
  int64_t stretch = 0;
  for (const Box& box : boxes) {
    const int64_t rows = box.slice.extent[0];
    for (int64_t row = 0; row < rows;) {
      const int64_t boundary =
          total / count * (stretch + 1) + total % count * (stretch + 1) / count - before;
      const int64_t row_elements = box.row_elements();
      const int64_t end =
          stretch + 1 == count
              ? rows
              : std::clamp<int64_t>((boundary + row_elements / 2) / row_elements, row, rows);
      if (end > row) {
        Slice slice = box.slice;
        slice.start[0] += row;
        slice.extent[0] = end - row;
        (*dealt)[box.tensor].push_back(
            {tensors[box.tensor].name, slice, holders[static_cast<size_t>(stretch % owners)]});
        row = end;
      }
      if (row < rows) ++stretch;
    }
    before += box.slice.elements();
  }
}

}  // namespace

std::vector<Ownership> even_ownership(const Plan& plan, const ModelSpec& model) {
  const std::vector<LogicalTensor> tensors = logical_tensors(model);
  const auto held = holders_of(plan, model);
  std::map<Holders, std::vector<Box>> groups;
  for (size_t tensor = 0; tensor < tensors.size(); ++tensor) {
    const std::vector<HeldSlice>& slices = held.at(tensors[tensor].name);
    for (const Slice& box : boxes_of(slices, tensors[tensor].shape.size())) {
      Holders holders;
      for (const HeldSlice& each : slices)
        if (contains(each.slice, box)) holders.push_back(each.rank);
      std::sort(holders.begin(), holders.end());
      groups[holders].push_back({tensor, box});
    }
  }
  std::map<size_t, std::vector<Ownership>> dealt;
  for (const auto& [holders, boxes] : groups)
    deal(boxes, holders, plan.shard_optimizer, tensors, &dealt);
  std::vector<Ownership> owners;  // in canonical order
  for (auto& [tensor, slices] : dealt) owners.insert(owners.end(), slices.begin(), slices.end());
  return owners;
}

}  // namespace motley
