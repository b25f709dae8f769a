#include "planner/pipelines/even_replicas.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include "planner/pipelines/least_sums.h"
#include "planner/pipelines/packed_plan.h"

namespace motley {
namespace {

constexpr int64_t kMostNodesOfARow = 200, kMostNodesOfMany = 60;
/// Of the groups between the ends.
constexpr size_t kMostOrders = 24;
/// For each number of replicas, those that could compute soonest; the same of many devices.
constexpr size_t kMostSetsOfANumber = 64, kMostSetsOfMany = 8;
/// With what was learnt of memory by counting, and of each time the quickest that are counted.
constexpr int kMostTimes = 3;
constexpr size_t kMostCounted = 4;

/// Of many replicas not all numbers are tried.
int next_number(int replicas) {
  constexpr int kAll = 8;
  constexpr double kTogether = 1.25;
  return replicas < kAll ? replicas + 1 : static_cast<int>(replicas * kTogether);
}

/// Devices of a group one after another: what goes from stage to stage then leaves hosts seldom.
std::vector<StageRow> rows_between(int first, int last, const GroupCounts& between) {
  std::vector<int> groups(between.size());
  std::iota(groups.begin(), groups.end(), 0);
  std::erase_if(groups, [&](int group) { return between[static_cast<size_t>(group)] == 0; });
  std::vector<StageRow> rows;
  do {
    StageRow& row = rows.emplace_back(1, first);
    for (const int group : groups)
      row.insert(row.end(), static_cast<size_t>(between[static_cast<size_t>(group)]), group);
    row.push_back(last);
  } while (rows.size() < kMostOrders && std::next_permutation(groups.begin(), groups.end()));
  return rows;
}

class EvenReplicas {
 public:
  EvenReplicas(const PipelineSpace& space, const CountMemory& count, PipelineCosts costs,
               double below)
      : space_(space),
        maker_(space, count),
        costs_(std::move(costs)),
        sums_(space.request, space.groups, space.most_stages(), true),
        below_(below) {}

  Result<std::vector<Plan>> run() {
    std::vector<Plan> plans;
    for (int times = 0; times < kMostTimes && plans.empty(); ++times) {
      MOTLEY_TRY(std::vector<PackedPlan> quicker, all_quicker());
      if (quicker.empty()) break;
      std::reverse(quicker.begin(), quicker.end());
      quicker.resize(std::min(quicker.size(), kMostCounted));
      for (PackedPlan& packed : quicker) {
        const auto is_alike = [&](const Plan& plan) {
          return plan.replicas.size() == packed.plan.replicas.size();
        };
        if (std::any_of(plans.begin(), plans.end(), is_alike)) continue;
        MOTLEY_TRY(const bool fits, maker_.count_memory(times, &costs_, &packed));
        if (fits) plans.push_back(std::move(packed.plan));
      }
    }
    return plans;
  }
  int64_t nodes() const { return nodes_ + maker_.nodes(); }

 private:
  /// Each quicker than those before it.
  Result<std::vector<PackedPlan>> all_quicker() {
    known_.clear();
    std::vector<PackedPlan> quicker;
    const int least = space_.wanted().data.value_or(std::max(1, space_.request.least_replicas));
    const int most = std::min(space_.most_replicas(), space_.devices() / 2);
    for (int replicas = least; replicas <= most; replicas = next_number(replicas))
      for (const GroupCounts& set : sets_for(replicas)) {
        const double enough = quicker.empty() ? below_ : quicker.back().seconds();
        if (least_seconds(set, replicas) >= enough) break;  // so do the others
        MOTLEY_TRY_VOID(try_ends(set, replicas, &quicker));
      }
    return quicker;
  }

  double least_seconds(GroupCounts set, int replicas) const {
    for (int& devices : set) devices *= replicas;
    return sums_.step_seconds(costs_.least_seconds(set, space_.batch()), sums_.seconds(replicas));
  }

  /// The likely first.
  std::vector<GroupCounts> sets_for(int replicas) const {
    GroupCounts part;
    for (const int devices : space_.there) part.push_back(devices / replicas);
    const auto& count = space_.request.job.devices.count;
    std::vector<std::pair<double, GroupCounts>> sets;
    for (GroupCounts& set : sets_of(part, space_.most_stages())) {
      const int stages = number_of(set), devices = stages * replicas;
      if (stages < 2 || stages > costs_.layers()) continue;
      if (space_.wanted().pipeline.value_or(stages) != stages) continue;
      if (count && (devices < count->low || devices > count->high)) continue;
      const double seconds = least_seconds(set, replicas);
      if (seconds < below_) sets.emplace_back(seconds, std::move(set));
    }
    std::stable_sort(sets.begin(), sets.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    sets.resize(std::min(sets.size(), space_.few ? kMostSetsOfANumber : kMostSetsOfMany));
    std::vector<GroupCounts> likely;
    for (auto& [seconds, set] : sets) likely.push_back(std::move(set));
    return likely;
  }

  Result<Unit> try_ends(const GroupCounts& set, int replicas, std::vector<PackedPlan>* quicker) {
    const int samples = (space_.grains() + replicas - 1) / replicas * space_.grain;
    for (size_t first = 0; first < set.size(); ++first)
      for (size_t last = 0; last < set.size(); ++last) {
        GroupCounts between = set;
        if (--between[first] < 0 || --between[last] < 0) continue;
        const double enough = quicker->empty() ? below_ : quicker->back().seconds();
        const Pipeline row = quickest_between(static_cast<int>(first), static_cast<int>(last),
                                              between, samples, enough);
        if (row.stages.empty()) continue;
        std::vector<ReplicaDesigns> sets{{costs_, set, std::vector{row}}};
        Result<PackedPlan> made =
            maker_.make(Packing(static_cast<size_t>(replicas), 0), costs_, &sets);
        if (!made && made.error().code != ErrorCode::kNoPlan) return fail(made.error());
        if (made && made->seconds() < enough) quicker->push_back(*std::move(made));
      }
    return Unit{};
  }

  /// Without stages where none computes in less than `enough`.
  Pipeline quickest_between(int first, int last, const GroupCounts& between, int samples,
                            double enough) {
    const std::vector<StageRow> rows = rows_between(first, last, between);
    PipelineCut best;
    best.seconds = enough;
    for (const int micro_batch : space_.micro_batches) {
      StageCosts& known =
          known_.try_emplace({micro_batch, samples}, costs_, micro_batch, samples).first->second;
      for (const StageRow& row : rows) {
        PipelineCut cut =
            best_cut(&known, row, best.seconds, space_.few ? kMostNodesOfARow : kMostNodesOfMany);
        nodes_ += cut.nodes;
        if (cut.seconds < best.seconds) best = std::move(cut);
      }
      if (micro_batch >= samples) break;
    }
    return std::move(best.pipeline);
  }

  const PipelineSpace& space_;
  PlanMaker maker_;
  PipelineCosts costs_;
  const LeastSums sums_;
  const double below_;
  std::map<std::pair<int, int>, StageCosts> known_;  ///< by micro-batch and samples
  int64_t nodes_ = 0;
};

}  // namespace

Result<std::vector<Plan>> search_even_replicas(const PipelineSpace& space, const CountMemory& count,
                                               const PipelineCosts& costs, double below,
                                               int64_t* nodes) {
  EvenReplicas search(space, count, costs, below);
  MOTLEY_TRY(std::vector<Plan> plans, search.run());
  *nodes += search.nodes();
  return plans;
}

}  // namespace motley
