// What still runs of attempts that are over, or that the database does not know of: it was put back
// from a backup. Until that has ended nobody gets their devices.

#include <algorithm>
#include <utility>

#include "scheduler/service/coordinator.h"
#include "scheduler/service/event_text.h"

namespace motley {
namespace {

std::string attempt_title(AttemptId id) {
  return "attempt " + std::to_string(id.epoch.value()) + " of job " + std::to_string(id.job);
}

/// Nothing where it had devices that are not known any more.
std::string on_devices(const std::vector<std::string>& devices) {
  return devices.empty() ? "" : " on " + joined(devices);
}

}  // namespace

/// At the start, before anything is given away.
void Coordinator::find_leftovers() {
  std::set<AttemptId> known;
  for (const auto& [id, job] : jobs_)
    if (!job.devices.empty()) known.insert({id, job.fsm.status().epoch});
  for (const Leftover& left : around_.launcher.leftovers(known)) {
    const Nanos grace = std::max(rules_.stop_grace, left.stop_grace + rules_.stop_margin);
    set_aside(left.id, left.devices, now() + grace, "runs, which nobody knew of: it is stopped");
    around_.launcher.ask_to_stop(left.id, StopWhy::kNone);
  }
}

void Coordinator::set_aside(AttemptId id, std::vector<std::string> devices, Nanos kill_at,
                            const std::string& why) {
  const std::string text = attempt_title(id) + on_devices(devices) + " " + why;
  devices_.set_aside(devices);
  aside_.insert_or_assign(id, Aside{std::move(devices), kill_at});
  find_demands();
  write_change([text, wall = around_.wall_time()](
                   Database& database) { return add_service_event(database, wall, text); },
               {});
}

void Coordinator::attempt_gone(AttemptId id) {
  const auto found = aside_.find(id);
  if (found == aside_.end()) return;
  const std::string text =
      "nothing runs any more of " + attempt_title(id) + on_devices(found->second.devices);
  devices_.take_back(found->second.devices);
  aside_.erase(found);
  find_demands();
  write_change([text, wall = around_.wall_time()](
                   Database& database) { return add_service_event(database, wall, text); },
               {});
}

/// Its next attempt would find the run's directory taken.
bool Coordinator::has_leftover(int64_t job) const {
  const auto next = aside_.lower_bound({job, Epoch(0)});
  return next != aside_.end() && next->first.job == job;
}

void Coordinator::look_at_leftovers() {
  for (auto& [id, aside] : aside_) {
    if (now() < aside.kill_at) continue;
    aside.kill_at = now() + rules_.kill_again;
    around_.launcher.kill(id);
  }
}

void Coordinator::why_devices_are_aside(WhyJob* why) const {
  for (const auto& [id, aside] : aside_)
    why->reasons.push_back(attempt_title(id) + on_devices(aside.devices) +
                           " is over, but not all of its processes have ended");
}

}  // namespace motley
