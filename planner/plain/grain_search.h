#pragma once
// The quickest deal at one grain: best_deal, and above it a branch and bound over hosts, because
// what the reduction costs depends on which hosts take part.

#include <memory>
#include <vector>

#include "planner/costs/reduction_table.h"
#include "planner/plain/candidates.h"
#include "planner/plain/deal.h"
#include "planner/plain/grain_table.h"

namespace motley {

class GrainSearch {
 public:
  GrainSearch(const PlanRequest& request, const Candidates& candidates,
              const ReductionTable& reduction, int grain);

  /// The quickest deal over all candidates, unless it is slower than `cutoff`; by candidate. With
  /// `enough` it ends where that, or the cutoff, is no further above the bound.
  DealResult run(double cutoff = kNever, double enough = 0);
  /// The quickest deal that uses exactly these candidates.
  DealResult run_with_all(const std::vector<bool>& used) const;
  const StepCut& cut() const { return cut_; }
  const GrainTables& tables() const { return tables_; }  ///< by candidate
  const ReductionTable& reduction() const { return reduction_; }

 private:
  struct Pool;
  Pool solve(std::vector<bool> hosts, std::vector<std::pair<int, int>> floors);
  DealProblem problem_over(const std::vector<bool>& candidates, std::vector<size_t>* indices) const;
  double relaxed_reduction(const Pool& pool, int low, int high) const;
  std::vector<bool> hosts_of(const Deal& deal) const;
  double price(const Pool& pool);
  void branch(const Pool& pool, double reduction, std::vector<Pool>* open);
  void keep(const Deal& deal);
  void search_pools();

  const Candidates& candidates_;
  const ReductionTable& reduction_;
  StepCut cut_;
  GrainTables tables_;  ///< by candidate
  double cutoff_ = kNever, enough_ = 0;
  DealResult result_;
};

}  // namespace motley
