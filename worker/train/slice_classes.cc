#include "worker/train/slice_classes.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "core/holdings.h"
#include "core/sync_groups.h"

namespace motley {

ParameterLayout layout_of(const Plan& plan, const ModelSpec& model, Rank rank) {
  const Role role = role_of(plan, rank);
  return ParameterLayout(holdings_of(model, stage_of(plan, role), role.member));
}

namespace {

/// Who holds a part of one tensor, and who owns one.
struct TensorHolders {
  struct Holder {
    int rank = 0;
    Slice slice;
    bool counted = false;
  };
  std::vector<Holder> holders;                      // by rising rank
  std::vector<std::pair<Slice, int>> owned_slices;  // and their owners
};

/// Calls body(box) for the boxes of a tensor that no slice ends within, in row-major order.
class Boxes {
 public:
  Boxes(const TensorHolders& tensor, size_t dimensions) : cuts_(dimensions) {
    for (const TensorHolders::Holder& holder : tensor.holders) add(holder.slice);
    for (const auto& [slice, owner] : tensor.owned_slices) add(slice);
  }

  template <class Body>
  void each(Body body) const {
    Slice box{std::vector<int64_t>(cuts_.size()), std::vector<int64_t>(cuts_.size())};
    each_from(0, &box, body);
  }

 private:
  void add(const Slice& slice) {
    for (size_t d = 0; d < cuts_.size(); ++d) {
      cuts_[d].insert(slice.start[d]);
      cuts_[d].insert(slice.start[d] + slice.extent[d]);
    }
  }
  template <class Body>
  void each_from(size_t dimension, Slice* box, Body& body) const {
    if (dimension == cuts_.size()) return body(*box);
    const auto& cuts = cuts_[dimension];
    for (auto cut = cuts.begin(); cut != cuts.end() && std::next(cut) != cuts.end(); ++cut) {
      box->start[dimension] = *cut;
      box->extent[dimension] = *std::next(cut) - *cut;
      each_from(dimension + 1, box, body);
    }
  }

  std::vector<std::set<int64_t>> cuts_;
};

/// Those who hold, and who owns, all of a box.
struct BoxHolders {
  std::vector<int> counted, all;
  int owner = -1;
};
BoxHolders holders_of(const TensorHolders& tensor, const Slice& box) {
  BoxHolders found;
  for (const TensorHolders::Holder& holder : tensor.holders) {
    if (!contains(holder.slice, box)) continue;
    found.all.push_back(holder.rank);
    if (holder.counted) found.counted.push_back(holder.rank);
  }
  for (const auto& [slice, owner] : tensor.owned_slices)
    if (contains(slice, box)) found.owner = owner;
  return found;
}

/// Of these ranks.
std::vector<int> first_of_each_group(const std::vector<int>& ranks,
                                     const std::vector<int>& group_of_rank) {
  std::set<int> seen;
  std::vector<int> firsts;
  for (const int rank : ranks)
    if (seen.insert(group_of_rank[static_cast<size_t>(rank)]).second) firsts.push_back(rank);
  return firsts;
}

/// What is to be done with a box; without contributors nothing, as where one rank, or one island,
/// alone has it.
ReductionClass class_of(const BoxHolders& box, SliceUse use, const DeviceIslands& islands,
                        const std::vector<int>& group_of_rank) {
  ReductionClass one;
  switch (use) {
    case SliceUse::kSumsToHolders:
      one = {islands.speakers(box.counted), islands.speakers(box.all), std::nullopt, 0};
      break;
    case SliceUse::kSumsToOwners:
      one = {islands.speakers(box.counted, box.owner), {box.owner}, box.owner, 0};
      break;
    case SliceUse::kAllToOwners:
      one = {box.all, {box.owner}, box.owner, 0};
      break;
    case SliceUse::kOwnersToHolders:
      one = {{box.owner}, box.all, box.owner, 0};
      std::erase(one.receivers, box.owner);
      break;
    case SliceUse::kGroupsToHolders:
      one = {first_of_each_group(box.all, group_of_rank), box.all, std::nullopt, 0};
      break;
  }
  if (one.receivers.empty() || (one.contributors.size() == 1 && one.contributors == one.receivers))
    one.contributors.clear();
  return one;
}

/// Of the box's first element in a row-major tensor.
int64_t offset_in(const std::vector<int64_t>& shape, const Slice& box) {
  int64_t offset = 0;
  for (size_t d = 0; d < shape.size(); ++d) offset = offset * shape[d] + box.start[d];
  return offset;
}

class Classes {
 public:
  Classes(SliceUse use, const DeviceIslands& islands, std::vector<int> group_of_rank)
      : use_(use), islands_(islands), group_of_rank_(std::move(group_of_rank)) {}

  /// `place`: of the box's first element in the model; `mine`: this rank's part of the tensor;
  /// null: it has none.
  void add(const TensorHolders& tensor, const Slice& box, int64_t place, const FlatTensor* mine) {
    const ReductionClass one = class_of(holders_of(tensor, box), use_, islands_, group_of_rank_);
    if (one.contributors.empty()) return;
    const auto [number, is_new] = number_.try_emplace(
        {one.contributors, one.receivers, one.owner.value_or(-1)}, found_.classes.size());
    if (is_new) {
      found_.classes.push_back(one);
      found_.runs.emplace_back();
    }
    int64_t& elements = found_.classes[number->second].elements;
    append(&found_.classes[number->second].places, {elements, place});
    if (mine != nullptr)
      for (const CopyRun& run : copy_runs(mine->slice, box))
        append(&found_.runs[number->second], {.offset = mine->offset + run.from_offset,
                                              .count = run.count,
                                              .at = elements + run.to_offset});
    elements += box.elements();
  }
  /// Those this rank has a part in keep their runs.
  SliceClasses take(int self) {
    for (size_t i = 0; i < found_.classes.size(); ++i) {
      const ReductionClass& one = found_.classes[i];
      const auto has = [self](const std::vector<int>& ranks) {
        return std::binary_search(ranks.begin(), ranks.end(), self);
      };
      if (!has(one.contributors) && !has(one.receivers)) found_.runs[i].clear();
    }
    return std::move(found_);
  }

 private:
  static void append(std::vector<ElementRun>* runs, const ElementRun& run) {
    if (!runs->empty()) {
      ElementRun& last = runs->back();
      if (last.offset + last.count == run.offset && last.at + last.count == run.at) {
        last.count += run.count;
        return;
      }
    }
    runs->push_back(run);
  }

  static void append(std::vector<ElementPlace>* places, const ElementPlace& one) {
    if (!places->empty() && places->back().place - places->back().at == one.place - one.at) return;
    places->push_back(one);
  }

  const SliceUse use_;
  const DeviceIslands& islands_;
  const std::vector<int> group_of_rank_;
  std::map<std::tuple<std::vector<int>, std::vector<int>, int>, size_t> number_;
  SliceClasses found_;
};

}  // namespace

bool SliceClasses::any() const {
  return std::any_of(runs.begin(), runs.end(), [](const auto& some) { return !some.empty(); });
}

SliceClasses slice_classes(const Plan& plan, const ModelSpec& model, Rank self, SliceUse use,
                           const DeviceIslands& islands, const std::set<std::string>& without) {
  std::map<std::string, TensorHolders> tensors;
  for (int rank = 0; rank < plan.world_size(); ++rank) {
    const ParameterLayout layout = layout_of(plan, model, Rank(rank));
    for (const FlatTensor& flat : layout.tensors())
      tensors[flat.tensor.name].holders.push_back({rank, flat.slice, flat.counted});
  }
  if (use != SliceUse::kSumsToHolders)
    for (const Ownership& owned : plan.owners)
      tensors[owned.tensor].owned_slices.emplace_back(owned.slice, owned.owner.value());
  const ParameterLayout mine = layout_of(plan, model, self);
  Classes classes(use, islands, group_of_ranks(plan));
  int64_t place = 0;  // of the tensor
  for (const LogicalTensor& logical : logical_tensors(model)) {
    const TensorHolders& tensor = tensors[logical.name];
    if (!without.contains(logical.name))
      Boxes(tensor, logical.shape.size()).each([&](const Slice& box) {
        classes.add(tensor, box, place + offset_in(logical.shape, box), mine.find(logical.name));
      });
    place += logical.elements();
  }
  return classes.take(self.value());
}

}  // namespace motley
