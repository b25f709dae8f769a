#pragma once
// How many of the model's elements ranks hold.

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "core/plan.h"

namespace motley {

/// As holdings_of() has them, without a list of all: blocks are alike.
class HeldElements {
 public:
  /// `model` must outlive it.
  explicit HeldElements(const ModelSpec& model) : model_(model) {}

  /// By that member of a stage.
  int64_t of(const StagePlan& stage, int member);

 private:
  struct Parts {
    int64_t embedding = 0, block = 0, head = 0;
    int64_t tied = 0;  ///< of embedding and head both
  };
  Parts parts_of(const std::vector<double>& shares, int member) const;

  const ModelSpec& model_;
  std::map<std::pair<std::vector<double>, int>, Parts> known_;
};

}  // namespace motley
