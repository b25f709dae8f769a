// The oracle: every grain, every subset of devices, every division of the grains, everyone who
// could take the short grain. Shares with the search only the formulas of the cost model.

#include <algorithm>
#include <cmath>
#include <set>

#include "planner/costs/layer_times.h"
#include "planner/costs/links.h"
#include "planner/costs/plain_memory.h"
#include "planner/costs/sums_beside.h"
#include "planner/plain/candidates.h"
#include "planner/plain/deal.h"
#include "planner/plain/grains.h"
#include "planner/plain/search.h"

namespace motley {
namespace {

constexpr double kMostDivisions = 1e8;

/// All divisions of one grain, one device after the other.
class Enumeration {
 public:
  Enumeration(const PlanRequest& request, const Candidates& candidates, int grain)
      : request_(request),
        candidates_(candidates),
        cut_{request.job.train.global_batch, grain},
        reduction_(request.profile, gradient_bytes(request.job),
                   shortened_links(compression_wanted(request.job), request.job.model),
                   sync_wanted(request)),
        beside_(plans_with_sums_beside(request) == PlansBeside::kAll),
        first_layer_(part_of_first_layer(request.job.model, 0, layer_count(request.job.model) - 1)),
        busy_share_(busy_share(request.profile)) {
    for (const Candidate& candidate : candidates.devices) {
      const std::vector<int> sizes =
          micro_batch_sizes(*candidate.profile, micro_batch_rule(request, grain));
      const size_t grains = static_cast<size_t>(cut_.grains()) + 1;
      whole_.emplace_back(grains, kNever);
      short_.emplace_back(grains, kNever);
      for (int g = 1; g <= cut_.grains() && !sizes.empty(); ++g) {
        const auto at = static_cast<size_t>(g);
        const DeviceProfile& device = *candidate.profile;
        whole_.back()[at] = section(device, cut_.samples(g, false), sizes);
        short_.back()[at] = section(device, cut_.samples(g, true), sizes);
      }
    }
    choice_.grain = grain;
    choice_.grains.assign(candidates.devices.size(), 0);
  }

  void run() { extend(0, cut_.grains()); }
  double step() const { return best_step_; }
  const Choice& choice() const { return best_; }
  int64_t divisions() const { return divisions_; }

 private:
  static double section(const DeviceProfile& device, int samples, const std::vector<int>& sizes) {
    return section_seconds(best_micro_batch(device, samples, sizes).seconds, device.update_seconds);
  }

  void extend(size_t device, int left) {
    if (device == choice_.grains.size()) {
      if (left == 0) score_all();
      return;
    }
    for (int grains = 0; grains <= left; ++grains) {
      choice_.grains[device] = grains;
      extend(device + 1, left - grains);
    }
    choice_.grains[device] = 0;
  }

  void score_all() {
    choice_.short_device = -1;
    if (cut_.missing() == 0) return score();
    for (size_t device = 0; device < choice_.grains.size(); ++device) {
      if (choice_.grains[device] == 0) continue;
      choice_.short_device = static_cast<int>(device);
      score();
    }
  }

  void score() {
    ++divisions_;
    double slowest = 0;
    int ranks = 0;
    for (size_t i = 0; i < choice_.grains.size(); ++i) {
      if (choice_.grains[i] == 0) continue;
      const bool has_short = choice_.short_device == static_cast<int>(i);
      const auto at = static_cast<size_t>(choice_.grains[i]);
      slowest = std::max(slowest, (has_short ? short_ : whole_)[i][at]);
      ++ranks;
    }
    if (ranks < candidates_.least_devices || ranks > candidates_.most_devices) return;

    std::set<std::string> hosts;
    for (size_t i = 0; i < choice_.grains.size(); ++i) {
      if (choice_.grains[i] > 0) hosts.insert(candidates_.devices[i].spec->host);
    }
    const double reduction = reduction_.seconds(ranks, {hosts.begin(), hosts.end()});
    const double step =
        beside_ && hosts.size() > 1 ? beside_seconds(reduction) : step_seconds(slowest, reduction);
    if (step >= best_step_) return;
    best_step_ = step;
    best_ = choice_;
  }

  /// Of the choice, each device in micro-batches of its own.
  double beside_seconds(double reduction) const {
    double last = 0;
    for (size_t i = 0; i < choice_.grains.size(); ++i) {
      if (choice_.grains[i] == 0) continue;
      const bool has_short = choice_.short_device == static_cast<int>(i);
      last = std::max(last, beside_seconds(*candidates_.devices[i].profile,
                                           cut_.samples(choice_.grains[i], has_short), reduction));
    }
    return last;
  }

  double beside_seconds(const DeviceProfile& device, int samples, double reduction) const {
    const ModelSpec& model = request_.job.model;
    const StagePlan whole{0, layer_count(model) - 1, {Rank(0)}, {1.0}};
    double least = kNever;
    for (const int size : micro_batch_sizes(device, micro_batch_rule(request_, cut_.grain))) {
      const double end =
          section_seconds(device_seconds(device, samples, size), device.update_seconds);
      const int last = samples % size > 0 ? samples % size : size;
      const double backward =
          device.curve("model")->seconds_at(last) - forward_seconds(device, model, whole, last);
      least = std::min(
          least, end_with_sums({reduction, first_layer_, busy_share_}, {end - backward, end}));
    }
    return least;
  }

  const PlanRequest& request_;
  const Candidates& candidates_;
  StepCut cut_;
  ReductionModel reduction_;
  const bool beside_;  ///< sums between hosts go on beside computing
  const double first_layer_, busy_share_;
  std::vector<std::vector<double>> whole_, short_;  ///< section by device and grains
  Choice choice_, best_;
  double best_step_ = kNever;
  int64_t divisions_ = 0;
};

/// Ways to deal `grains` over `devices`, none or more each.
double division_count(int grains, int devices) {
  double count = 1;
  for (int i = 1; i < devices; ++i) count = count * (grains + i) / i;
  return count;
}

Result<Plan> exhaust_within_tables(const PlanRequest& request) {
  MOTLEY_TRY(const Candidates candidates, find_candidates(request));
  const std::vector<int> grains = candidate_grains(request, candidates);
  double divisions = 0;
  for (const int grain : grains) {
    const StepCut cut{request.job.train.global_batch, grain};
    const auto devices = static_cast<int>(candidates.devices.size());
    divisions += division_count(cut.grains(), devices) * (cut.missing() > 0 ? devices : 1);
  }
  if (divisions > kMostDivisions) {
    return fail(ErrorCode::kUnsupported, "too many divisions of the batch to try every one");
  }
  SearchRecord record;
  record.space = "exhaustive";
  record.step_seconds = kNever;
  Choice best;
  for (const int grain : grains) {
    Enumeration enumeration(request, candidates, grain);
    enumeration.run();
    record.nodes += enumeration.divisions();
    if (enumeration.step() >= record.step_seconds) continue;
    record.step_seconds = enumeration.step();
    best = enumeration.choice();
  }
  if (record.step_seconds == kNever) {
    return fail(ErrorCode::kNoPlan, "no division of the batch uses that many devices");
  }
  record.lower_bound_step_seconds = record.step_seconds;
  MOTLEY_TRY(Plan plan, assemble(request, candidates, best));
  plan.search = record;
  plan.id = plan_id(plan);
  return plan;
}

}  // namespace

Result<Plan> plan_exhaustive(const PlanRequest& request) {
  return best_over_ranks(request, exhaust_within_tables);
}

}  // namespace motley
