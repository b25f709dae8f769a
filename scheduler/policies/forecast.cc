#include "scheduler/policies/forecast.h"

#include <algorithm>

namespace motley {
namespace {

/// Jobs looked at in all decisions together: about 50 ms.
constexpr size_t kMostLooks = 200'000;

/// Who runs from now on; jobs that run keep their devices as long as they do.
void carry_out(const Schedule& schedule, QueueView* view) {
  std::vector<const PoolCounts*> wanted(view->jobs.size(), nullptr);
  for (const Placement& placement : schedule.run) wanted[placement.job] = &placement.devices;
  for (size_t i = 0; i < view->jobs.size(); ++i) {
    JobView& job = view->jobs[i];
    if (wanted[i] == nullptr)
      job.held.clear();
    else if (!job.runs())
      job.held = *wanted[i];
  }
}

/// On to when the next one ends, and without it; false where nobody knows when that is.
bool pass_to_next_end(QueueView* view) {
  double next = kUnknownSeconds;
  for (const JobView& job : view->jobs)
    if (job.runs()) next = std::min(next, job.seconds_on(job.held));
  if (next == kUnknownSeconds) return false;
  view->now += next;
  std::erase_if(view->jobs,
                [&](const JobView& job) { return job.runs() && job.seconds_on(job.held) <= next; });
  for (JobView& job : view->jobs) {
    if (!job.runs()) continue;
    job.work_left -= job.speeds.rate(job.held) * next;
    job.longest -= next;
  }
  return true;
}

}  // namespace

std::optional<double> seconds_until_start(Policy& policy, QueueView view, int64_t job) {
  const double begin = view.now;
  for (size_t looks = 0; looks <= kMostLooks; looks += view.jobs.size()) {
    carry_out(schedule(policy, view), &view);
    const auto found = std::find_if(view.jobs.begin(), view.jobs.end(),
                                    [&](const JobView& other) { return other.id == job; });
    if (found == view.jobs.end()) return std::nullopt;
    if (found->runs()) return view.now - begin;
    if (!pass_to_next_end(&view)) return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace motley
