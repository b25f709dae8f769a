#include "planner/pipelines/sharing_bound.h"

#include <algorithm>
#include <queue>
#include <vector>

#include "planner/pipelines/least_sums.h"
#include "planner/pipelines/step_bound.h"
#include "planner/pipelines/tensor_sets.h"

namespace motley {
namespace {

/// How often a part of all plans is divided into parts that are bounded by themselves.
constexpr int kMostSplits = 4;
/// Of more, few as they may be, packings by stages are too many.
constexpr int kFewDevices = 8;
constexpr int64_t kNodesToProve = 500;

bool holds_all(const PipelineSpace& space, const PipelineCosts& costs) {
  for (int group = 0; group < costs.groups(); ++group)
    if (costs.priced(group) &&
        costs.fits(PipelineStage{group, 0, costs.layers() - 1}, space.micro_batches.front(), 1))
      return true;
  return false;
}

PipelineCosts shared_for_free(PipelineCosts costs, const SharingDevices& sharing) {
  costs.share_for_free(sharing.of_groups);
  return costs;
}

PipelineCosts shared_at_best(PipelineCosts costs, const SharingDevices& sharing) {
  costs.add_shared_at_best(sharing.of_groups);
  return costs;
}

/// Of plans that share stages.
class SharingBound {
 public:
  SharingBound(const PipelineSpace& space, const PipelineCosts& costs,
               const SharingDevices& sharing, double step)
      : space_(space),
        free_(shared_for_free(costs, sharing)),
        at_best_(shared_at_best(costs, sharing)),
        cut_(!holds_all(space, costs)),
        sums_(space.request, space.groups, space.longest, cut_),
        hosts_(space.request, space.groups, costs, sums_, space.request.least_replicas > 1),
        times_(free_, space.sets(space.longest), space.micro_batches, space.few, step),
        shared_times_(at_best_, space.sets(space.longest), space.micro_batches, space.few, step) {
    times_.want_stages(space.wanted().pipeline);
    problem_ = space.packing(space.wanted().data.value_or(1), space.most_replicas(), kNearly);
    const std::vector<int> none(space.groups.size(), 0);
    least_ = costs.least_seconds_sharing(none, space.there, space.batch());
  }

  /// Those that may be quickest are looked at ever closer.
  double seconds(double step) {
    const int devices = problem_.most_devices;
    std::priority_queue<Part, std::vector<Part>, Later> parts;
    if (devices < 2) return step;
    // Of few devices parts are bounded the quicker the less is shared in them.
    for (int low = 1, high = 1; low < devices; low = high + 1) {
      high = space_.few ? std::min(2 * low - 1, devices - 1) : devices - 1;
      Part part{.more_low = low, .more_high = high, .single_high = high};
      part.least = least(part, step);
      if (is_one(part)) step = std::min(step, part.least);  // more of others helps nobody
      parts.push(part);
    }
    for (int left = kMostSplits; left > 0; --left) {
      const Part part = parts.top();
      if (part.least >= step || is_one(part)) break;
      parts.pop();
      for (Part half : halves(part)) {
        half.least = std::max(part.least, least(half, step));
        parts.push(half);
      }
    }
    return std::min(step, parts.top().least);
  }

 private:
  /// Plans by how many devices there are besides one of each stage, and how many replicas are a
  /// single stage.
  struct Part {
    int more_low = 1, more_high = 0;
    int single_low = 0, single_high = 0;
    double least = 0;  ///< seconds of a step
  };
  struct Later {
    bool operator()(const Part& a, const Part& b) const { return a.least > b.least; }
  };

  /// Of few devices single stages are not told apart.
  bool are_singles_alike(const Part& part) const {
    return !cut_ || space_.few || part.single_low == part.single_high;
  }
  bool is_one(const Part& part) const {
    return part.more_low == part.more_high && are_singles_alike(part);
  }

  /// The first one is at most as large as all below it.
  static int end_of_first(int low, int high) {
    return high >= 2 * low ? std::max(low, 2 * low - 1) : low + (high - low) / 2;
  }

  std::vector<Part> halves(const Part& part) const {
    Part first = part, second = part;
    const bool coarse = part.more_high >= 2 * part.more_low;
    if (part.more_low < part.more_high &&
        (coarse || are_singles_alike(part) || part.single_high < 2 * part.single_low)) {
      first.more_high = end_of_first(part.more_low, part.more_high);
      second.more_low = first.more_high + 1;
      first.single_high = std::min(first.single_high, first.more_high);
    } else {
      first.single_high = end_of_first(part.single_low, part.single_high);
      second.single_low = first.single_high + 1;
    }
    return {first, second};
  }

  double least(const Part& part, double step) {
    LeastSums sums = sums_;
    sums.share(part.more_high, cut_ && !space_.few ? part.single_high : part.more_high);
    PackingProblem problem = problem_;
    problem.single_stages = cut_ && !space_.few ? part.single_low : 0;
    const double seconds = least_for_free(part, problem, sums, step);
    if (seconds >= step || !are_sets_cut()) return seconds;
    return std::max(seconds, least_sharing(part, problem, sums, step));
  }

  /// As if devices that share were as quick as all of them, and the others missing.
  double least_for_free(const Part& part, PackingProblem problem, const LeastSums& sums,
                        double step) {
    problem.most_devices -= part.more_low;
    const std::vector<int> none(space_.groups.size(), 0);
    const double computed =
        free_.least_seconds_sharing(none, space_.there, space_.batch(), problem.most_devices);
    return StepBound(problem, &times_, sums, hosts_, computed).seconds(step);
  }

  bool are_sets_cut() const { return !space_.few || space_.devices() <= kFewDevices; }

  /// By what stages take that are shared.
  double least_sharing(const Part& part, PackingProblem problem, const LeastSums& sums,
                       double step) {
    problem.least_more = part.more_low;
    problem.most_more = part.more_high;
    StepBound bound(problem, &shared_times_, sums, hosts_, least_);
    std::vector<std::pair<size_t, Pipeline>> found;
    if (bound.seconds(step) < step) bound.tighten(step, kNodesToProve, &found);
    return bound.seconds(step);
  }

  const PipelineSpace& space_;
  const PipelineCosts free_, at_best_;
  const bool cut_;  ///< no replica is a single device
  const LeastSums sums_;
  const HostSums hosts_;
  SetTimes times_, shared_times_;
  PackingProblem problem_;
  double least_ = 0;  ///< seconds that any plan computes
};

}  // namespace

double bound_of_sharing(const PipelineSpace& space, const PipelineCosts& costs, double step) {
  const SharingDevices sharing = sharing_devices(space, costs, step);
  if (!sharing.all) return 0;
  if (sharing.of_groups.empty()) return step;
  return SharingBound(space, costs, sharing, step).seconds(step);
}

}  // namespace motley
