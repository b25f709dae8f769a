#pragma once
// The quickest deal at one grain: best_deal, and above it a branch and bound over hosts, because
// what the reduction costs depends on which hosts take part.

#include <memory>
#include <string>
#include <vector>

#include "planner/candidates.h"
#include "planner/deal.h"
#include "planner/grain_table.h"

namespace motley {

/// Seconds of the reduction by number of ranks and pair of hosts, looked up once.
class ReductionTable {
 public:
  ReductionTable(const ReductionModel& model, const std::vector<Candidate>& candidates);

  int host_count() const { return static_cast<int>(hosts_.size()); }
  int host_of(size_t candidate) const { return host_of_[candidate]; }
  double pair_seconds(int ranks, int a, int b) const;
  /// Over the hosts with a true entry.
  double seconds(int ranks, const std::vector<bool>& hosts) const;
  /// A bound on seconds(ranks, hosts) whatever the hosts, if they include `host` and have enough
  /// candidates for the ranks; kNever when no hosts have.
  double least_seconds(int ranks, int host) const;

 private:
  double find_least(int ranks, int host, const std::vector<int>& sizes) const;

  std::vector<std::string> hosts_;
  std::vector<int> host_of_;
  std::vector<std::vector<double>> pairs_;  ///< [ranks][a * host_count + b]
  std::vector<std::vector<double>> least_;  ///< [ranks][host]
};

class GrainSearch {
 public:
  GrainSearch(const PlanRequest& request, const Candidates& candidates,
              const ReductionTable& reduction, int grain);

  /// The quickest deal over all candidates, unless it is slower than `cutoff`; by candidate.
  DealResult run(double cutoff = kNever);
  /// The quickest deal that uses exactly these candidates.
  DealResult run_with_all(const std::vector<bool>& used) const;
  const StepCut& cut() const { return cut_; }

 private:
  struct Pool;
  Pool solve(std::vector<bool> hosts, std::vector<std::pair<int, int>> floors);
  DealProblem problem_over(const std::vector<bool>& candidates, std::vector<size_t>* indices) const;
  double relaxed_reduction(const Pool& pool, int ranks) const;
  std::vector<bool> hosts_of(const Deal& deal) const;
  void branch(const Pool& pool, std::vector<Pool>* open);
  void keep(const Deal& deal);

  const Candidates& candidates_;
  const ReductionTable& reduction_;
  StepCut cut_;
  std::vector<std::shared_ptr<const GrainTable>> tables_;  ///< by candidate; null: cannot use grain
  std::vector<double> section_times_;
  double cutoff_ = kNever;
  DealResult result_;
};

}  // namespace motley
