#pragma once
// How many of the model's elements ranks hold.

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "core/plan.h"

namespace motley {

/// By a member of a stage, of the layers that it has.
struct HeldByKind {
  int64_t embedding = 0, block = 0, head = 0;  ///< of each, without what is tied
  int64_t tied = 0;                            ///< of embedding or head or both
};
HeldByKind held_by_kind(const ModelSpec& model, const std::vector<double>& shares, int member);

/// As holdings_of() has them, without a list of all: blocks are alike.
class HeldElements {
 public:
  /// `model` must outlive it.
  explicit HeldElements(const ModelSpec& model) : model_(model) {}

  /// By that member of a stage.
  int64_t of(const StagePlan& stage, int member);

 private:
  const ModelSpec& model_;
  std::map<std::pair<std::vector<double>, int>, HeldByKind> known_;
};

}  // namespace motley
