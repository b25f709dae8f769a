// The machines: who comes, calls, falls silent, is to be empty; and what that means for the jobs.

#include <algorithm>
#include <memory>

#include "core/units.h"
#include "scheduler/service/coordinator.h"
#include "scheduler/service/event_text.h"

namespace motley {
namespace {

constexpr Nanos kKeepDrain{10'000'000'000};

Error no_such_node(const std::string& name) {
  return {ErrorCode::kNotFound, "there is no node " + name + ": see motley nodes", {}};
}

/// For an agent whose session is not the node's. In a database that was put back from a backup the
/// node has the agent of then, which is known to be gone only when it has not called for a while.
Error another_agent(const Node& node) {
  const std::string title = "node " + node.name;
  if (node.state == NodeState::kReady)
    return {ErrorCode::kNotPermitted, title + " has another agent by now", {}};
  if (node.state == NodeState::kAwaited)
    return {ErrorCode::kNoDevice, title + " had another agent, which may still call", {}};
  return {ErrorCode::kNotFound, title + " is lost: its agent is to join again", {}};
}

/// Of a device's id, "a1/0".
std::string host_of(const std::string& device) { return device.substr(0, device.rfind('/')); }

}  // namespace

void Coordinator::begin_with_own() {
  devices_ = DevicePools(own_);
  nodes_.clear();
  for (const std::string& host : own_.hosts()) {
    Node& node = nodes_[host];
    node.name = host;
    node.state = NodeState::kReady;
  }
}

Result<Unit> Coordinator::recover_nodes() {
  MOTLEY_TRY(const std::vector<StoredNode> stored, list_nodes(around_.kept));
  for (const StoredNode& each : stored) {
    MOTLEY_TRY(Node node, node_of(each, now()));
    const auto known = nodes_.find(node.name);
    const bool is_own = known != nodes_.end();
    // One of another fleet than this coordinator's own.
    if (node.is_own() != is_own) continue;
    if (is_own) {
      known->second.draining = node.draining;
      known->second.reason = node.reason;
      known->second.drain_by = node.drain_by;
      known->second.drain_kept = node.drain_kept;
    } else {
      devices_.put(node.name, node.fleet, node.access());
      nodes_.emplace(node.name, node);
    }
    devices_.set_access(node.name, nodes_.at(node.name).access());
  }
  return Unit{};
}

Node* Coordinator::find_node(const std::string& name) {
  const auto found = nodes_.find(name);
  return found == nodes_.end() ? nullptr : &found->second;
}

// --- what agents say ---

Result<Unit> Coordinator::may_join(const NodeJoin& join) const {
  const auto known = nodes_.find(join.name);
  if (known != nodes_.end() && known->second.is_own())
    return fail(ErrorCode::kNotPermitted, "node " + join.name +
                                              " is a host of the coordinator's own fleet; "
                                              "another name with --name");
  const bool alive = known != nodes_.end() && known->second.state == NodeState::kReady;
  if (alive && known->second.session != join.session)
    return fail(ErrorCode::kNotPermitted, "node " + join.name +
                                              " is registered by another agent, "
                                              "which calls; another name with --name");
  for (const DeviceSpec& device : join.fleet.devices)
    for (const DeviceSpec& other : devices_.fleet().devices)
      if (!device.uuid.empty() && device.uuid == other.uuid && other.host != join.name)
        return fail(ErrorCode::kNotPermitted,
                    "the device " + device.uuid + " of node " + join.name + " is also " + other.id);
  return check_pace(join);
}

/// Speeds of paced devices mean something only beside each other.
Result<Unit> Coordinator::check_pace(const NodeJoin& join) const {
  const auto paced = [](const DeviceSpec& device) { return device.paced.has_value(); };
  const FleetSpec& fleet = devices_.fleet();
  const bool ours = std::any_of(fleet.devices.begin(), fleet.devices.end(), paced);
  const bool theirs = std::any_of(join.fleet.devices.begin(), join.fleet.devices.end(), paced);
  if (ours && theirs &&
      (fleet.clock != join.fleet.clock || fleet.pace_flops != join.fleet.pace_flops))
    return fail(ErrorCode::kInvalidSpec,
                "'pace' of node " + join.name + " is not that of the service's devices");
  return Unit{};
}

void Coordinator::join(NodeJoin join, Answered done) {
  if (broken_) return done(fail(*broken_));
  if (const auto fine = may_join(join); !fine) return done(fine);
  Node& node = nodes_[join.name];
  const bool is_new = node.session.empty();
  const bool again = node.session == join.session;
  if (!is_new && !again)
    give_up_attempts_on(node.name, "the agent of node " + node.name + " was started again");
  node.name = join.name;
  node.session = join.session;
  node.fleet = std::move(join.fleet);
  node.labels = std::move(join.labels);
  if (node.state == NodeState::kLost) node.cause.clear();
  if (!again || node.state == NodeState::kLost) node.state = NodeState::kAwaited;
  node.heard = now();
  devices_.put(node.name, node.fleet, node.access());
  keep(node, is_new ? "registered" : "registered again", std::move(done));
}

Result<std::vector<AttemptId>> Coordinator::hear(const NodeReport& report) {
  Node* node = find_node(report.name);
  if (node == nullptr || node->is_own()) return fail(no_such_node(report.name));
  if (node->session != report.session) return fail(another_agent(*node));
  node->heard = now();
  node->gauges = report.gauges;
  std::vector<AttemptId> allowed = attempts_on(report.name);
  // While nothing can be kept all stays as it is.
  if (node->state == NodeState::kReady || broken_) return allowed;
  // What an agent still runs of older attempts ends before anything else is run there.
  const bool clean = std::all_of(report.running.begin(), report.running.end(), [&](AttemptId id) {
    return std::find(allowed.begin(), allowed.end(), id) != allowed.end();
  });
  if (clean) {
    node->state = NodeState::kReady;
    node->cause.clear();
    keep(*node, "ready", {});
  }
  return allowed;
}

void Coordinator::leave(const std::string& name, const std::string& session, Answered done) {
  Node* node = find_node(name);
  if (broken_ || node == nullptr || node->session != session || session.empty())
    return done(fail(broken_ ? *broken_ : no_such_node(name)));
  lose(*node, "its agent has ended", std::move(done));
}

// --- what people want ---

void Coordinator::drain(const std::string& name, const DrainRequest& request, Answered done) {
  Node* node = find_node(name);
  if (broken_ || node == nullptr) return done(fail(broken_ ? *broken_ : no_such_node(name)));
  node->draining = true;
  node->reason = request.reason;
  node->drain_by.reset();
  std::string text =
      "draining" + asked_by(request.by) + (request.reason.empty() ? "" : ": " + request.reason);
  if (request.deadline) {
    node->drain_by = now() + *request.deadline;
    node->drain_kept = now();
    text += "; what runs there is stopped in " + format_seconds(seconds_of(*request.deadline));
  }
  keep(*node, text, std::move(done));
}

void Coordinator::undrain(const std::string& name, Answered done, const std::string& by) {
  Node* node = find_node(name);
  if (broken_ || node == nullptr) return done(fail(broken_ ? *broken_ : no_such_node(name)));
  node->draining = false;
  node->reason.clear();
  node->drain_by.reset();
  keep(*node, "drained no more" + asked_by(by), std::move(done));
}

Result<Unit> Coordinator::may_forget(const Node& node) const {
  if (node.is_own())
    return fail(ErrorCode::kNotPermitted,
                "node " + node.name + " is a host of the coordinator's own fleet");
  if (node.state != NodeState::kLost)
    return fail(ErrorCode::kNotPermitted,
                "node " + node.name + " is " + node.state_name() +
                    "; only one that is lost can be forgotten: end its agent first");
  for (const auto& [id, job] : jobs_)
    for (const std::string& device : job.devices)
      if (host_of(device) == node.name)
        return fail(ErrorCode::kNotPermitted,
                    "job " + std::to_string(id) + " still has " + device + ": try again");
  return Unit{};
}

void Coordinator::forget_node(const std::string& name, Answered done, const std::string& by) {
  const Node* node = find_node(name);
  if (broken_ || node == nullptr) return done(fail(broken_ ? *broken_ : no_such_node(name)));
  if (const auto fine = may_forget(*node); !fine) return done(fine);
  nodes_.erase(name);
  devices_.remove(name);
  find_demands();
  write_change(
      [name, by, wall = around_.wall_time()](Database& database) -> Result<Unit> {
        MOTLEY_TRY_VOID(remove_node(database, name));
        return add_node_event(database, name, wall, "forgotten" + asked_by(by));
      },
      std::move(done));
}

// --- what follows ---

/// In memory at once, as with jobs; `done` when it is on disk.
void Coordinator::keep(const Node& node, const std::string& text, Answered done) {
  devices_.set_access(node.name, node.access());
  find_demands();
  write_change(
      [stored = stored_of(node, now(), around_.wall_time()),
       text](Database& database) -> Result<Unit> {
        MOTLEY_TRY_VOID(save_node(database, stored));
        return add_node_event(database, stored.name, stored.changed, text);
      },
      std::move(done));
}

void Coordinator::write_change(GroupCommit::Change change, Answered done) {
  around_.store.write(std::move(change), [this, done = std::move(done)](Result<Unit> written) {
    if (!written) {
      break_off(written.error());
      written = fail(*broken_);
    }
    if (done) done(std::move(written));
  });
}

/// So that a restarted coordinator goes on with about what is left.
void Coordinator::keep_deadline(Node& node) {
  if (now() < node.drain_kept + kKeepDrain) return;
  node.drain_kept = now();
  write_change([stored = stored_of(node, now(), around_.wall_time())](
                   Database& database) { return save_node(database, stored); },
               {});
}

void Coordinator::lose(Node& node, const std::string& cause, Answered done) {
  node.state = NodeState::kLost;
  node.cause = cause;
  keep(node, "lost: " + cause, std::move(done));
  give_up_attempts_on(node.name, "node " + node.name + " is lost: " + cause);
}

/// They are over when their processes here are; the devices of other nodes are free then.
void Coordinator::give_up_attempts_on(const std::string& name, const std::string& cause) {
  std::vector<AttemptId> ended;
  for (const AttemptId id : attempts_on(name)) {
    jobs_.at(id.job).node_fault = cause;
    ended.push_back(id);
  }
  if (ended.empty()) return;
  around_.store.write([](Database&) { return Result<Unit>(Unit{}); },
                      [this, ended](Result<Unit> written) {
                        if (!written) break_off(written.error());
                        for (const AttemptId id : ended)
                          if (written) around_.launcher.kill(id);
                      });
}

std::vector<AttemptId> Coordinator::attempts_on(const std::string& name) const {
  std::vector<AttemptId> attempts;
  const auto here = on_node_.find(name);
  if (here == on_node_.end()) return attempts;
  for (const int64_t id : here->second) {
    const Job& job = jobs_.at(id);
    if (job.node_fault.empty()) attempts.push_back({id, job.fsm.status().epoch});
  }
  return attempts;
}

void Coordinator::set_devices(Job& job, std::vector<std::string> devices) {
  for (const std::string& device : job.devices) {
    const auto here = on_node_.find(host_of(device));
    if (here == on_node_.end()) continue;
    here->second.erase(job.id);
    if (here->second.empty()) on_node_.erase(here);
  }
  for (const std::string& device : devices) on_node_[host_of(device)].insert(job.id);
  job.devices = std::move(devices);
}

bool Coordinator::may_run(AttemptId attempt, const std::string& node) const {
  const auto here = on_node_.find(node);
  if (here == on_node_.end() || !here->second.contains(attempt.job)) return false;
  const Job& job = jobs_.at(attempt.job);
  return job.node_fault.empty() && job.fsm.status().epoch == attempt.epoch;
}

// --- time ---

void Coordinator::was_away() {
  for (auto& [name, node] : nodes_) node.heard = now();
}

std::optional<Nanos> Coordinator::next_node_due() const {
  std::optional<Nanos> next;
  const auto at = [&](Nanos when) { next = next ? std::min(*next, when) : when; };
  for (const auto& [name, node] : nodes_) {
    if (!node.is_own() && node.state != NodeState::kLost) at(node.heard + rules_.node_silence);
    if (node.drain_by) at(std::min(*node.drain_by, node.drain_kept + kKeepDrain));
  }
  return next;
}

void Coordinator::look_at_nodes() {
  for (auto& [name, node] : nodes_) {
    const bool watched = !node.is_own() && node.state != NodeState::kLost;
    if (watched && now() - node.heard >= rules_.node_silence)
      lose(node, "silent for " + format_seconds(seconds_of(rules_.node_silence)), {});
    if (!node.drain_by) continue;
    if (now() < *node.drain_by) {
      keep_deadline(node);
      continue;
    }
    node.drain_by.reset();
    for (const AttemptId id : attempts_on(name)) apply(jobs_.at(id.job), NodeDrained{});
    keep(node, "its deadline has passed", {});
  }
}

}  // namespace motley
