#pragma once
// The quickest deal at one grain: best_deal, and above it a branch and bound over hosts, because
// what the reduction costs depends on which hosts take part. Where sums go on beside computing what
// is left of them depends on each section, so that the tables have it: every set of a few devices
// is then looked at, of more the numbers whose sums take unlike times one by one.

#include <memory>
#include <vector>

#include "planner/costs/reduction_table.h"
#include "planner/plain/candidates.h"
#include "planner/plain/deal.h"
#include "planner/plain/grain_table.h"

namespace motley {

class GrainSearch {
 public:
  /// Of so many devices at most every set is looked at where sums go on beside computing.
  static constexpr size_t kFewDevices = 8;
  GrainSearch(const PlanRequest& request, const Candidates& candidates,
              const ReductionTable& reduction, int grain, size_t few = kFewDevices);

  /// The quickest deal over all candidates, unless it is slower than `cutoff`; by candidate. With
  /// `enough` it ends where that, or the cutoff, is no further above the bound.
  DealResult run(double cutoff = kNever, double enough = 0);
  /// The quickest deal that uses exactly these candidates.
  DealResult run_with_all(const std::vector<bool>& used, double cutoff = kNever) const;
  const StepCut& cut() const { return cut_; }
  const GrainTables& tables() const { return tables_; }  ///< by candidate
  /// Whether sums between hosts are part of sections, as SumsBeside has it.
  bool sums_beside() const { return beside_; }
  const ReductionTable& reduction() const { return reduction_; }

 private:
  struct Pool;
  std::vector<Pool> first_pools();
  Pool all_pool() const;
  Pool solve(Pool pool);
  DealResult solve_beside(const Pool& pool, const std::vector<bool>& candidates,
                          std::vector<size_t>* indices);
  DealProblem problem_over(const std::vector<bool>& candidates, std::vector<size_t>* indices,
                           double sums = 0) const;
  DealProblem problem_of_all(const std::vector<bool>& used, const std::vector<bool>& hosts,
                             double reduction, std::vector<size_t>* indices) const;
  double relaxed_reduction(const Pool& pool, int low, int high) const;
  std::vector<bool> hosts_of(const Deal& deal) const;
  double price(const Pool& pool);
  void branch(const Pool& pool, double reduction, std::vector<Pool>* open);
  void branch_from_one_host(const Pool& pool, std::vector<Pool>* open);
  void keep(const Deal& deal);
  void search_pools();
  void search_sets();

  const Candidates& candidates_;
  const ReductionTable& reduction_;
  StepCut cut_;
  bool beside_;
  size_t few_;
  GrainTables tables_;  ///< by candidate
  double cutoff_ = kNever, enough_ = 0;
  double unexplored_ = kNever;  ///< the least bound of pools that were left
  DealResult result_;
};

}  // namespace motley
