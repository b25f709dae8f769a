#include "core/ownership.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "core/check.h"
#include "core/holdings.h"
#include "core/reduction.h"

namespace motley {
namespace {

using Holders = std::vector<Rank>;

struct HeldSlice {
  const Slice* slice = nullptr;
  Rank rank;
};

/// A box of a tensor that the same ranks hold all of.
struct Box {
  Box(size_t number, Slice box)
      : tensor(number), elements(box.elements()), rows(box.extent[0]), slice(std::move(box)) {}
  /// All of a tensor, where nobody asks which of its elements are whose.
  explicit Box(const LogicalTensor& whole) : elements(whole.elements()), rows(whole.shape[0]) {}

  size_t tensor = 0;
  int64_t elements = 0, rows = 0;
  Slice slice;

  int64_t row_elements() const { return elements / rows; }
};

/// Who holds which slices of each tensor, by its number in `tensors`.
class Held {
 public:
  Held(const Plan& plan, const ModelSpec& model, const std::vector<LogicalTensor>& tensors)
      : tensors_(tensors), of_(tensors.size()) {
    for (const ReplicaPlan& replica : plan.replicas)
      for (const StagePlan& stage : replica.stages)
        for (size_t member = 0; member < stage.ranks.size(); ++member)
          for (const auto& [tensor, slice] : slices_of(stage, member, model))
            of_[tensor].push_back({&slice, stage.ranks[member]});
  }

  const std::vector<HeldSlice>& of(size_t tensor) const { return of_[tensor]; }

 private:
  using Slices = std::vector<std::pair<size_t, Slice>>;
  using Shape = std::tuple<LayerIndex, LayerIndex, std::vector<double>, size_t>;

  /// By tensor.
  const Slices& slices_of(const StagePlan& stage, size_t member, const ModelSpec& model) {
    const auto [found, is_new] =
        known_.try_emplace({stage.first_layer, stage.last_layer, stage.shares, member});
    if (!is_new) return found->second;
    const MemberShape shape = member_shape(model, stage.shares, static_cast<int>(member));
    for (size_t tensor = 0; tensor < tensors_.size(); ++tensor)
      if (std::optional<HeldPart> part = part_of(tensors_[tensor], stage, shape))
        found->second.emplace_back(tensor, std::move(part->slice));
    return found->second;
  }

  const std::vector<LogicalTensor>& tensors_;
  std::map<Shape, Slices> known_;  ///< many replicas are cut alike
  std::vector<std::vector<HeldSlice>> of_;
};

/// [0, extent) cut wherever a holder's slice begins or ends.
std::vector<int64_t> cuts_of(const std::vector<HeldSlice>& held, size_t dimension) {
  std::set<int64_t> cuts;
  for (const HeldSlice& each : held) {
    cuts.insert(each.slice->start[dimension]);
    cuts.insert(each.slice->start[dimension] + each.slice->extent[dimension]);
  }
  return {cuts.begin(), cuts.end()};
}

/// The boxes between the cuts of all dimensions, in row-major order.
std::vector<Slice> boxes_of(const std::vector<HeldSlice>& held, size_t dimensions) {
  const auto same = [&](const HeldSlice& each) { return *each.slice == *held.front().slice; };
  if (std::all_of(held.begin(), held.end(), same)) return {*held.front().slice};
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

int64_t elements_of(const std::vector<Box>& boxes) {
  return std::accumulate(boxes.begin(), boxes.end(), int64_t{0},
                         [](int64_t sum, const Box& box) { return sum + box.elements; });
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

/// Deals a group's boxes to its holders, of which each has so many parts, in contiguous stretches,
/// in turn: those of one round end where the parts of the holders so far are dealt, rounded to a
/// row. `take(box, row, end, holder)`: rows from `row` to `end` are that holder's.
template <class Take>
void deal(const std::vector<Box>& boxes, const std::vector<int64_t>& parts, bool alternate,
          const Take& take) {
  const int64_t total = elements_of(boxes);
  const auto owners = std::ssize(parts);
  const bool in_turn = alternate && owners > 1;
  const int64_t rounds = in_turn ? rounds_over(boxes, total, owners) : 1;
  const int64_t count = owners * rounds;
  std::vector<int64_t> until(parts.size());  // of a round, in parts
  std::partial_sum(parts.begin(), parts.end(), until.begin());
  const int64_t all = until.back() * rounds;
  int64_t before = 0;  // elements of the boxes so far
  int64_t stretch = 0;
  for (const Box& box : boxes) {
    const int64_t rows = box.rows;
    for (int64_t row = 0; row < rows;) {
      const int64_t so_far =
          stretch / owners * until.back() + until[static_cast<size_t>(stretch % owners)];
      const int64_t boundary = total / all * so_far + total % all * so_far / all - before;
      const int64_t row_elements = box.row_elements();
      const int64_t end =
          stretch + 1 == count
              ? rows
              : std::clamp<int64_t>((boundary + row_elements / 2) / row_elements, row, rows);
      if (end > row) {
        take(box, row, end, static_cast<size_t>(stretch % owners));
        row = end;
      }
      if (row < rows) ++stretch;
    }
    before += box.elements;
  }
}

using Groups = std::map<Holders, std::vector<Box>>;

/// All of the model by who holds it.
Groups groups_of(const Plan& plan, const ModelSpec& model,
                 const std::vector<LogicalTensor>& tensors) {
  const Held held(plan, model, tensors);
  Groups groups;
  for (size_t tensor = 0; tensor < tensors.size(); ++tensor) {
    const std::vector<HeldSlice>& slices = held.of(tensor);
    for (Slice& box : boxes_of(slices, tensors[tensor].shape.size())) {
      Holders holders;
      for (const HeldSlice& each : slices)
        if (contains(*each.slice, box)) holders.push_back(each.rank);
      std::sort(holders.begin(), holders.end());
      groups[holders].emplace_back(tensor, std::move(box));
    }
  }
  return groups;
}

/// Fine enough that what rounds it off is less than a row of most tensors, and so that products of
/// it and of rounds stay within 64 bits.
constexpr int64_t kParts = int64_t{1} << 20;

/// Of `shares`, which are not all 0, in whole parts.
std::vector<int64_t> parts_of(const std::vector<double>& shares) {
  const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
  std::vector<int64_t> parts;
  double so_far = 0;
  int64_t dealt = 0;
  for (const double share : shares) {
    so_far += share;
    const int64_t until = std::llround(so_far / sum * static_cast<double>(kParts));
    parts.push_back(until - dealt);
    dealt = until;
  }
  return parts;
}

/// `parts_for` says of each group of holders how many parts each is to own.
template <class PartsFor>
std::vector<Ownership> dealt_by(const Plan& plan, const ModelSpec& model,
                                const PartsFor& parts_for) {
  const std::vector<LogicalTensor> tensors = logical_tensors(model);
  std::vector<std::vector<Ownership>> dealt(tensors.size());
  for (const auto& [holders, boxes] : groups_of(plan, model, tensors))
    deal(boxes, parts_for(holders), plan.shard_optimizer,
         [&](const Box& box, int64_t row, int64_t end, size_t holder) {
           Slice slice = box.slice;
           slice.start[0] += row;
           slice.extent[0] = end - row;
           dealt[box.tensor].push_back(
               {tensors[box.tensor].name, std::move(slice), holders[holder]});
         });
  std::vector<Ownership> owners;  // in canonical order
  owners.reserve(tensors.size());
  for (std::vector<Ownership>& slices : dealt)
    std::move(slices.begin(), slices.end(), std::back_inserter(owners));
  return owners;
}

/// Those that have each layer whole, rising.
std::vector<Holders> holders_of_layers(const Plan& plan, const ModelSpec& model) {
  std::vector<Holders> holders(static_cast<size_t>(layer_count(model)));
  for (const ReplicaPlan& replica : plan.replicas)
    for (const StagePlan& stage : replica.stages)
      for (LayerIndex layer = stage.first_layer; layer <= stage.last_layer; ++layer)
        holders[static_cast<size_t>(layer)].push_back(stage.ranks.front());
  for (Holders& one : holders) std::sort(one.begin(), one.end());
  return holders;
}

/// Of all layers with some of a tensor.
Holders holders_of(const std::vector<LayerIndex>& layers, const std::vector<Holders>& of_layers) {
  Holders all;
  for (const LayerIndex layer : layers) {
    const Holders& own = of_layers[static_cast<size_t>(layer)];
    all.insert(all.end(), own.begin(), own.end());
  }
  std::sort(all.begin(), all.end());
  all.erase(std::unique(all.begin(), all.end()), all.end());
  return all;
}

/// Boxes of whole tensors by who holds them, in the order of their first ones.
class WholeGroups {
 public:
  WholeGroups(const Plan& plan, const ModelSpec& model) {
    const std::vector<Holders> of_layers = holders_of_layers(plan, model);
    ModelSpec one = model;  // blocks are alike
    one.layers = 1;
    std::vector<Box> block;
    for (LogicalTensor& tensor : logical_tensors(one)) {
      if (tensor.layers.front() == one.layers) {
        block.emplace_back(tensor);
        continue;
      }
      if (!block.empty()) add_blocks(std::exchange(block, {}), of_layers);
      for (LayerIndex& layer : tensor.layers)
        if (layer > 0) layer = layer_count(model) - 1;
      add({Box(tensor)}, holders_of(tensor.layers, of_layers));
    }
  }

  std::vector<std::pair<Holders, std::vector<Box>>> take() { return std::move(groups_); }

 private:
  void add_blocks(const std::vector<Box>& block, const std::vector<Holders>& of_layers) {
    for (size_t layer = 1; layer + 1 < of_layers.size(); ++layer) add(block, of_layers[layer]);
  }
  void add(const std::vector<Box>& boxes, const Holders& holders) {
    const auto [found, is_new] = numbers_.emplace(holders, groups_.size());
    if (is_new) groups_.emplace_back(holders, std::vector<Box>());
    std::vector<Box>& own = groups_[found->second].second;
    own.insert(own.end(), boxes.begin(), boxes.end());
  }

  std::vector<std::pair<Holders, std::vector<Box>>> groups_;
  std::map<Holders, size_t> numbers_;
};

}  // namespace

std::vector<OwnedAlike> even_elements(const Plan& plan, const ModelSpec& model) {
  std::vector<OwnedAlike> all;
  for (auto& [holders, boxes] : WholeGroups(plan, model).take()) {
    std::vector<int64_t> owned(holders.size(), 0);
    deal(boxes, std::vector<int64_t>(holders.size(), 1), plan.shard_optimizer,
         [&](const Box& box, int64_t row, int64_t end, size_t holder) {
           owned[holder] += (end - row) * box.row_elements();
         });
    all.push_back({{std::move(holders), elements_of(boxes)}, std::move(owned)});
  }
  return all;
}

std::vector<Ownership> even_ownership(const Plan& plan, const ModelSpec& model) {
  return dealt_by(plan, model,
                  [](const Holders& holders) { return std::vector<int64_t>(holders.size(), 1); });
}

std::vector<HeldAlike> held_alike(const Plan& plan, const ModelSpec& model) {
  std::vector<HeldAlike> groups;
  for (const auto& [holders, boxes] : groups_of(plan, model, logical_tensors(model)))
    groups.push_back({holders, elements_of(boxes)});
  return groups;
}

std::vector<Ownership> uneven_ownership(const Plan& plan, const ModelSpec& model,
                                        const std::vector<OwnerShares>& shares) {
  size_t next = 0;  // held_alike() has the same groups in the same order
  return dealt_by(plan, model, [&](const Holders& holders) {
    MOTLEY_CHECK(next < shares.size() && shares[next].size() == holders.size(),
                 "shares of other holders than the plan's");
    return parts_of(shares[next++]);
  });
}

}  // namespace motley
