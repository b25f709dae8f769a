#pragma once
// What links between hosts carry of activations and their gradients, of all replicas together: a
// host's is one, however many stages send over it at once.

#include <vector>

#include "core/plan.h"
#include "core/units.h"
#include "planner/costs/replica_times.h"

namespace motley {

class LinkLoad {
 public:
  /// `ranks`: of the plan; outlived by them, as by the model.
  LinkLoad(const ModelSpec& model, const KnownRanks& ranks) : model_(model), ranks_(ranks) {}

  void add(const Plan& plan, int replica);
  /// That the busiest host sends or receives in a step; over links that nobody measured none.
  Nanos busiest() const;

 private:
  struct Busy {
    Nanos sending{0}, receiving{0};
  };
  void add_ways(const StagePlan& from, const StagePlan& to, double samples);

  const ModelSpec& model_;
  const KnownRanks& ranks_;
  std::vector<Busy> hosts_;  ///< by number of those with links
};

}  // namespace motley
