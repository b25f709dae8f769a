#include "core/holdings.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"

namespace motley {
namespace {

UnitRange part_of(int64_t units, const std::vector<double>& shares, int member) {
  double before = 0;
  double total = 0;
  for (size_t i = 0; i < shares.size(); ++i) {
    if (static_cast<int>(i) < member) before += shares[i];
    total += shares[i];
  }
  const auto boundary = [&](double share) {
    return std::llround(static_cast<double>(units) * share / total);
  };
  const bool last = member + 1 == static_cast<int>(shares.size());
  const int64_t first = boundary(before);
  const int64_t end = last ? units : boundary(before + shares[static_cast<size_t>(member)]);
  return {first, end - first};
}

/// The member's part of a tensor's split dimension; all of it where there is none.
UnitRange units_of(const LogicalTensor& tensor, const MemberShape& shape) {
  switch (tensor.split) {
    case Split::kHeads:
      return shape.heads;
    case Split::kColumns:
      return shape.columns;
    case Split::kVocabulary:
      return shape.vocabulary;
    case Split::kNone:
    case Split::kFirst:
      break;
  }
  return {0, tensor.shape[static_cast<size_t>(tensor.split_dimension)]};
}

}  // namespace

MemberShape member_shape(const ModelSpec& model, const std::vector<double>& shares, int member) {
  MemberShape shape;
  shape.members = static_cast<int>(shares.size());
  shape.member = member;
  shape.heads = part_of(model.heads, shares, member);
  shape.columns = part_of(int64_t{4} * model.width, shares, member);
  shape.vocabulary = part_of(model.vocab, shares, member);
  return shape;
}

const char* lack_of(const ModelSpec& model, const StagePlan& stage, int member) {
  if (stage.shares.size() == 1) return nullptr;
  const MemberShape shape = member_shape(model, stage.shares, member);
  for (const LogicalTensor& tensor : logical_tensors(model, stage.first_layer, stage.last_layer)) {
    if (units_of(tensor, shape).count > 0) continue;
    if (tensor.split == Split::kHeads) return "no attention head";
    if (tensor.split == Split::kColumns) return "no column of the MLP";
    if (tensor.split == Split::kVocabulary) return "nothing of the vocabulary";
  }
  return nullptr;
}

StagePlan whole_model(const ModelSpec& model) {
  StagePlan stage;
  stage.last_layer = layer_count(model) - 1;
  stage.ranks = {Rank(0)};
  stage.shares = {1.0};
  return stage;
}

std::optional<HeldPart> part_of(const LogicalTensor& tensor, const StagePlan& stage,
                                const MemberShape& member) {
  const auto has = [&](LayerIndex layer) {
    return layer >= stage.first_layer && layer <= stage.last_layer;
  };
  if (std::none_of(tensor.layers.begin(), tensor.layers.end(), has)) return std::nullopt;
  if (tensor.split == Split::kFirst && !member.first()) return std::nullopt;
  const auto dimension = static_cast<size_t>(tensor.split_dimension);
  const UnitRange units = units_of(tensor, member);
  HeldPart part{whole(tensor.shape), tensor.split != Split::kNone || member.first()};
  part.slice.start[dimension] = units.first;
  part.slice.extent[dimension] = units.count;
  return part;
}

std::vector<Holding> holdings_of(const ModelSpec& model, const StagePlan& stage, int member) {
  const MemberShape shape = member_shape(model, stage.shares, member);
  std::vector<Holding> holdings;
  for (LogicalTensor& tensor : logical_tensors(model, stage.first_layer, stage.last_layer))
    if (std::optional<HeldPart> part = part_of(tensor, stage, shape))
      holdings.push_back({std::move(tensor), std::move(part->slice), part->counted});
  return holdings;
}

Role role_of(const Plan& plan, Rank rank) {
  for (size_t replica = 0; replica < plan.replicas.size(); ++replica) {
    const auto& stages = plan.replicas[replica].stages;
    for (size_t stage = 0; stage < stages.size(); ++stage) {
      const auto& ranks = stages[stage].ranks;
      const auto found = std::find(ranks.begin(), ranks.end(), rank);
      if (found == ranks.end()) continue;
      return {static_cast<int>(replica), static_cast<int>(stage),
              static_cast<int>(found - ranks.begin())};
    }
  }
  MOTLEY_CHECK(false, "a rank without work: the plan was not validated");
  return {};
}

const StagePlan& stage_of(const Plan& plan, const Role& role) {
  return plan.replicas[static_cast<size_t>(role.replica)].stages[static_cast<size_t>(role.stage)];
}

}  // namespace motley
