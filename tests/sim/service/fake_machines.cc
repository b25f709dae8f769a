#include "tests/sim/service/fake_machines.h"

#include <algorithm>

namespace motley::testing {
namespace {

const std::string kOwnHost = "head";
constexpr double kLookAgain = 0.2;
constexpr double kStartWithin = 60;     ///< seconds until an attempt gives up on its ranks
constexpr double kNoticesLoss = 2;      ///< of a rank
constexpr double kNoticesSilence = 5;   ///< of a rank behind a cut link
constexpr double kMostExit = 1.5;       ///< of ranks whose attempt has gone
constexpr double kCheckpointEvery = 5;  ///< of work

std::string text_of(AttemptId id) {
  return "attempt " + std::to_string(id.epoch.value()) + " of job " + std::to_string(id.job);
}

std::vector<std::string> devices_on(const AttemptOrder& order, const std::string& host) {
  std::vector<std::string> devices;
  for (const DeviceSpec& device : order.fleet.devices)
    if (device.host == host) devices.push_back(device.id);
  return devices;
}

/// Hosts of it that are nodes with agents.
std::vector<std::string> nodes_of(const AttemptOrder& order) {
  std::vector<std::string> hosts = order.fleet.hosts();
  std::erase(hosts, kOwnHost);
  return hosts;
}

}  // namespace

void Occupancy::enter(AttemptId attempt, const std::string& device) {
  const auto [found, is_new] = users_.try_emplace(device, attempt);
  if (!is_new && found->second != attempt)
    throw Violation{"device " + device + " is used by " + text_of(found->second) + " and " +
                    text_of(attempt)};
}

void Occupancy::leave(AttemptId attempt, const std::string& device) {
  const auto found = users_.find(device);
  if (found != users_.end() && found->second == attempt) users_.erase(found);
}

// --- nodes ---

std::vector<AttemptId> FakeNode::running() const {
  std::vector<AttemptId> ids;
  for (const auto& [id, devices] : ranks_) ids.push_back(id);
  return ids;
}

bool FakeNode::start_ranks(const AttemptOrder& order) {
  if (!reachable() || !joined) return false;
  const std::vector<std::string> devices = devices_on(order, name_);
  // Ranks of an attempt that is over are gone before others compute in their place.
  for (const auto& [id, used] : ranks_)
    for (const std::string& device : used)
      if (id != order.id && std::find(devices.begin(), devices.end(), device) != devices.end())
        return false;
  for (const std::string& device : devices) occupancy_.enter(order.id, device);
  ranks_[order.id] = devices;
  return true;
}

void FakeNode::end_ranks(AttemptId attempt) {
  const auto found = ranks_.find(attempt);
  if (found == ranks_.end()) return;
  for (const std::string& device : found->second) occupancy_.leave(attempt, device);
  ranks_.erase(found);
}

void FakeNode::end_others(const std::vector<AttemptId>& allowed) {
  for (const AttemptId id : running())
    if (std::find(allowed.begin(), allowed.end(), id) == allowed.end()) end_ranks(id);
}

void FakeNode::crash() {
  alive_ = joined = false;
  end_others({});
}

void FakeNode::come_back() {
  if (!alive_) ++lives_;
  alive_ = true;
}

// --- attempts ---

Result<Nanos> FakeLauncher::begin(const AttemptOrder& order) {
  for (const auto& [id, attempt] : attempts_) {
    if (id.job != order.id.job || id == order.id) continue;
    if (!attempt.over)
      throw Violation{text_of(order.id) + " begins while " + text_of(id) + " runs"};
    if (id.epoch > order.id.epoch)
      throw Violation{text_of(order.id) + " comes after " + text_of(id)};
  }
  const auto [found, is_new] = attempts_.try_emplace(order.id);
  Attempt& attempt = found->second;
  if (!is_new) {
    if (attempt.over) events_.in(0, [this, id = order.id] { report(id); });
    return events_.now() - attempt.begun;
  }
  if (forbidden_.count(order.id.job) != 0)
    throw Violation{text_of(order.id) + " begins after it was cancelled"};
  for (const DeviceSpec& device : order.fleet.devices)
    if (!order.measure && measured_.count({workload_of(order.job), device.type}) == 0)
      throw Violation{text_of(order.id) + " was promised " + device.id +
                      ", where nobody had measured it"};
  if (!order.measure) check_devices(order);
  check_at_once(order);
  attempt.order = order;
  attempt.begun = events_.now();
  for (const DeviceSpec& device : order.fleet.devices)
    if (device.host == kOwnHost) occupancy_.enter(order.id, device.id);
  // About as long as one of the slower devices would take: not what anybody has foretold.
  work_left_.try_emplace(order.id.job,
                         static_cast<double>(order.job.train.steps) * chance_.between(0.5, 1.5));
  find_ranks(order.id);
  return Nanos(0);
}

void FakeLauncher::check_devices(const AttemptOrder& order) const {
  const auto fit = admitted(order.fleet, order.job);
  const auto& count = order.job.devices.count;
  const bool all = fit && fit->devices.size() == order.fleet.devices.size();
  if (!all || !order.job.any_of.empty() || (count && std::ssize(fit->devices) > count->high))
    throw Violation{text_of(order.id) + " has devices that its job does not ask for"};
}

/// Indices of arrays are 0, 1 and so on here.
void FakeLauncher::check_at_once(const AttemptOrder& order) const {
  const auto first_of = [](const AttemptOrder& of) { return of.id.job - of.job.array.index; };
  int others = 0;
  for (const auto& [id, attempt] : attempts_)
    if (id != order.id && !attempt.over && attempt.order.job.array.size > 0)
      others += first_of(attempt.order) == first_of(order) ? 1 : 0;
  const ArrayTask& array = order.job.array;
  if (array.at_once > 0 && others >= array.at_once)
    throw Violation{text_of(order.id) + " begins besides " + std::to_string(others) +
                    " others of its array"};
}

/// Until the ranks run on all nodes; then it trains.
void FakeLauncher::find_ranks(AttemptId id) {
  Attempt& attempt = attempts_.at(id);
  if (attempt.over) return;
  for (const std::string& host : nodes_of(attempt.order))
    if (attempt.started.count(host) == 0 && start_through_(attempt.order, nodes_.at(host)))
      attempt.started.insert(host);
  if (attempt.started.size() == nodes_of(attempt.order).size())
    return attempt.order.measure ? measure(id) : train(attempt);
  if (events_.now() - attempt.begun > nanos_of_seconds(kStartWithin))
    return finish(id, AttemptOutcome::kFailed, "ranks did not start");
  events_.in(kLookAgain, [this, id] { find_ranks(id); });
}

void FakeLauncher::measure(AttemptId id) {
  events_.in(chance_.between(0.5, 3), [this, id] {
    Attempt& attempt = attempts_.at(id);
    if (attempt.over) return;
    const bool fails = chance_.happens(mishaps_.attempt_fails);
    if (!fails)
      for (const DeviceSpec& device : attempt.order.fleet.devices) {
        attempt.end.speeds[device.id] = device.type == "fast" ? 8 : 4;
        measured_.emplace(workload_of(attempt.order.job), device.type);
      }
    finish(id, fails ? AttemptOutcome::kFailed : AttemptOutcome::kDone, fails ? "busy" : "");
  });
  watch(id);
}

void FakeLauncher::train(Attempt& attempt) {
  const AttemptId id = attempt.order.id;
  attempt.training = true;
  const double left = work_left_.at(id.job);
  const bool fails = chance_.happens(mishaps_.attempt_fails);
  events_.in(fails ? chance_.between(0, left) : left, [this, id, fails, left] {
    if (attempts_.at(id).over) return;
    if (!fails) work_left_[id.job] = 0;
    const double saved =
        kCheckpointEvery * chance_.up_to(static_cast<int>(left / kCheckpointEvery));
    if (fails) work_left_[id.job] -= std::min(left, saved);
    finish(id, fails ? AttemptOutcome::kFailed : AttemptOutcome::kDone, fails ? "NaN" : "",
           fails && chance_.happens(0.3));
  });
  watch(id);
}

/// A rank that is gone, or cannot be heard, ends the attempt.
void FakeLauncher::watch(AttemptId id) {
  const Attempt& attempt = attempts_.at(id);
  if (attempt.over) return;
  for (const std::string& host : attempt.started) {
    const FakeNode& node = nodes_.at(host);
    if (node.reachable() && node.runs(id)) continue;
    const double notices = node.runs(id) ? kNoticesSilence : chance_.between(0, kNoticesLoss);
    events_.in(notices, [this, id, host] {
      const FakeNode& lost = nodes_.at(host);
      if (attempts_.at(id).over) return;
      if (lost.reachable() && lost.runs(id)) return watch(id);
      finish(id, AttemptOutcome::kFailed, "a rank on " + host + " is lost");
    });
    return;
  }
  events_.in(kLookAgain, [this, id] { watch(id); });
}

void FakeLauncher::ask_to_stop(AttemptId id, StopWhy) {
  const auto found = attempts_.find(id);
  if (found == attempts_.end() || found->second.over) return;
  if (chance_.happens(mishaps_.ignores_stop)) return;
  events_.in(chance_.between(0, 2), [this, id] {
    Attempt& attempt = attempts_.at(id);
    if (attempt.over) return;
    const double trained = attempt.training ? 1 : 0;
    work_left_[id.job] = std::max(0.1, work_left_[id.job] - trained);
    finish(id, AttemptOutcome::kStopped, "");
  });
}

void FakeLauncher::kill(AttemptId id) {
  const auto found = attempts_.find(id);
  if (found == attempts_.end() || found->second.over) return;
  events_.in(chance_.between(0, 0.5), [this, id] {
    if (!attempts_.at(id).over) finish(id, AttemptOutcome::kFailed, "its process was killed");
  });
}

void FakeLauncher::finish(AttemptId id, AttemptOutcome outcome, const std::string& cause,
                          bool hopeless) {
  Attempt& attempt = attempts_.at(id);
  attempt.over = true;
  attempt.end.epoch = id.epoch;
  attempt.end.outcome = outcome;
  attempt.end.progressed = outcome != AttemptOutcome::kFailed || chance_.happens(0.5);
  attempt.end.hopeless = hopeless;
  attempt.end.cause = cause;
  for (const DeviceSpec& device : attempt.order.fleet.devices)
    if (device.host == kOwnHost) occupancy_.leave(id, device.id);
  // Ranks that can tell that their attempt has gone end by themselves; others are the agent's.
  for (const std::string& host : attempt.started)
    events_.in(chance_.between(0, kMostExit), [this, id, host] {
      FakeNode& node = nodes_.at(host);
      if (node.reachable()) node.end_ranks(id);
    });
  report(id);
}

void FakeLauncher::report(AttemptId id) {
  events_.in(0.001, [this, id] { told_(id.job, attempts_.at(id).end); });
}

int FakeLauncher::most_of_a_job() const {
  std::map<int64_t, int> counts;
  int most = 0;
  for (const auto& [id, attempt] : attempts_) most = std::max(most, ++counts[id.job]);
  return most;
}

bool FakeLauncher::all_over() const {
  return std::all_of(attempts_.begin(), attempts_.end(),
                     [](const auto& entry) { return entry.second.over; });
}

}  // namespace motley::testing
