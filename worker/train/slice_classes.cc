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

/// Of all tensors of a model, in its order.
struct ModelHolders {
  ModelHolders(const Plan& plan, const ModelSpec& model) : tensors(logical_tensors(model)) {
    for (const LogicalTensor& tensor : tensors) by_name[tensor.name];
    for (int rank = 0; rank < plan.world_size(); ++rank) {
      const ParameterLayout layout = layout_of(plan, model, Rank(rank));
      for (const FlatTensor& flat : layout.tensors())
        by_name[flat.tensor.name].holders.push_back({rank, flat.slice, flat.counted});
    }
    for (const Ownership& owned : plan.owners)
      by_name[owned.tensor].owned_slices.emplace_back(owned.slice, owned.owner.value());
  }

  std::vector<LogicalTensor> tensors;
  std::map<std::string, TensorHolders> by_name;
};

namespace {

/// Calls body(box) for the boxes of a tensor that no holder's slice ends within, or with `owned` no
/// owner's either, in row-major order.
class Boxes {
 public:
  Boxes(const TensorHolders& tensor, size_t dimensions, bool owned) : cuts_(dimensions) {
    for (const TensorHolders::Holder& holder : tensor.holders) add(holder.slice);
    for (const auto& [slice, owner] : tensor.owned_slices)
      if (owned) add(slice);
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

bool is_in(int rank, const ReductionClass& one) {
  return std::binary_search(one.contributors.begin(), one.contributors.end(), rank) ||
         std::binary_search(one.receivers.begin(), one.receivers.end(), rank);
}

class Classes {
 public:
  Classes(SliceUse use, const DeviceIslands& islands, std::vector<int> group_of_rank)
      : use_(use), islands_(islands), group_of_rank_(std::move(group_of_rank)) {}

  /// `place`: of the box's first element in the model; `mine`: a rank's part of the tensor; null:
  /// it has none, or its runs are not asked for.
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
    for (size_t i = 0; i < found_.classes.size(); ++i)
      if (!is_in(self, found_.classes[i])) found_.runs[i].clear();
    return std::move(found_);
  }
  std::vector<ReductionClass> take() { return std::move(found_.classes); }

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

/// `mine`: null where no rank's runs are asked for.
void add_all(const ModelHolders& model, SliceUse use, const std::set<std::string>& without,
             const ParameterLayout* mine, Classes* classes) {
  int64_t place = 0;  // of the tensor
  for (const LogicalTensor& tensor : model.tensors) {
    const TensorHolders& holders = model.by_name.at(tensor.name);
    const FlatTensor* const own = mine == nullptr ? nullptr : mine->find(tensor.name);
    const Boxes boxes(holders, tensor.shape.size(), use != SliceUse::kSumsToHolders);
    if (!without.contains(tensor.name))
      boxes.each([&](const Slice& box) {
        classes->add(holders, box, place + offset_in(tensor.shape, box), own);
      });
    place += tensor.elements();
  }
}

}  // namespace

bool SliceClasses::any() const {
  return std::any_of(runs.begin(), runs.end(), [](const auto& some) { return !some.empty(); });
}

PlanClasses::PlanClasses(const Plan& plan, const ModelSpec& model, DeviceIslands islands)
    : plan_(plan), model_(model), islands_(std::move(islands)) {}

PlanClasses::~PlanClasses() = default;

const std::vector<ReductionClass>& PlanClasses::of(SliceUse use,
                                                   const std::set<std::string>& without) {
  const auto [found, is_new] = found_.try_emplace({use, without});
  if (is_new) {
    if (holders_ == nullptr) holders_ = std::make_unique<ModelHolders>(plan_, model_);
    Classes classes(use, islands_, group_of_ranks(plan_));
    add_all(*holders_, use, without, nullptr, &classes);
    found->second = classes.take();
  }
  return found->second;
}

bool PlanClasses::has_part(Rank rank, SliceUse use) {
  const std::vector<ReductionClass>& classes = of(use);
  return std::any_of(classes.begin(), classes.end(),
                     [&](const ReductionClass& one) { return is_in(rank.value(), one); });
}

SliceClasses slice_classes(const Plan& plan, const ModelSpec& model, Rank self, SliceUse use,
                           const DeviceIslands& islands, const std::set<std::string>& without) {
  const ParameterLayout mine = layout_of(plan, model, self);
  Classes classes(use, islands, group_of_ranks(plan));
  add_all(ModelHolders(plan, model), use, without, &mine, &classes);
  return classes.take(self.value());
}

}  // namespace motley
