#pragma once
// A coordinator among stand-ins: a clock by hand, a database in memory whose commits wait to be let
// through, attempts that do what the test says.

#include <deque>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "scheduler/service/coordinator.h"
#include "scheduler/service/retention.h"

namespace motley::testing {

/// Changes that are handed in are on disk when the test says so; what is not is lost in a crash.
class HeldWriter final : public ChangeWriter {
 public:
  explicit HeldWriter(Database& database) : database_(database) {}

  void write(GroupCommit::Change change, GroupCommit::Done done) override {
    held_.emplace_back(std::move(change), std::move(done));
  }
  size_t held() const { return held_.size(); }
  void fail_next(Error error) { fault_ = std::move(error); }
  /// Every change fails, until nothing is said.
  void fail_all(std::optional<Error> error) { lasting_fault_ = std::move(error); }

  /// One after the other, and what they lead to.
  void commit_all() {
    while (!held_.empty()) {
      auto [change, done] = std::move(held_.front());
      held_.pop_front();
      if (fault_) {
        done(fail(*std::exchange(fault_, std::nullopt)));
        continue;
      }
      done(lasting_fault_ ? Result<Unit>(fail(*lasting_fault_)) : change(database_));
    }
  }

 private:
  Database& database_;
  std::deque<std::pair<GroupCommit::Change, GroupCommit::Done>> held_;
  std::optional<Error> fault_, lasting_fault_;
};

/// Directories that go when somebody looks: what was asked for, and what became of it.
class HeldRemover final : public DirectoryRemover {
 public:
  void remove(const std::string& path, std::function<void(Result<Unit>)> done) override {
    asked.push_back(path);
    held_.push_back(std::move(done));
  }
  void remove_all() {
    while (!held_.empty()) {
      const auto done = std::move(held_.front());
      held_.pop_front();
      done(Unit{});
    }
  }
  bool idle() const { return held_.empty(); }

  std::vector<std::string> asked;

 private:
  std::deque<std::function<void(Result<Unit>)>> held_;
};

class ScriptedLauncher final : public AttemptLauncher {
 public:
  Result<Nanos> begin(const AttemptOrder& order) override {
    if (refusal) return fail(*refusal);
    orders.push_back(order);
    begun.insert(order.id);
    return Nanos(0);
  }
  void ask_to_stop(AttemptId id, StopWhy why) override {
    stopped.push_back(id);
    stopped_why.push_back(why);
  }
  std::vector<Leftover> leftovers(const std::set<AttemptId>& known) override {
    std::vector<Leftover> unknown = left;
    std::erase_if(unknown, [&](const Leftover& each) { return known.contains(each.id); });
    return unknown;
  }
  void kill(AttemptId id) override { killed.push_back(id); }
  Epoch newest(int64_t) const override { return Epoch(known_attempts); }

  std::vector<AttemptOrder> orders;
  std::set<AttemptId> begun;
  std::vector<AttemptId> stopped, killed;
  std::vector<StopWhy> stopped_why;
  std::vector<Leftover> left;
  int known_attempts = 0;
  std::optional<Error> refusal;
};

inline FleetSpec fleet_of(const std::vector<std::string>& types) {
  FleetSpec fleet;
  for (const std::string& type : types) {
    DeviceSpec device;
    device.id = "here/" + std::to_string(fleet.devices.size());
    device.host = "here";
    device.kind = DeviceKind::kCpu;
    device.type = type;
    fleet.devices.push_back(device);
  }
  return fleet;
}

/// What the agent of a node says when it comes.
inline NodeJoin node_of_types(const std::string& name, const std::vector<std::string>& types,
                              const std::string& session = "first") {
  NodeJoin join{name, session, fleet_of(types), {}};
  for (size_t i = 0; i < join.fleet.devices.size(); ++i) {
    join.fleet.devices[i].host = name;
    join.fleet.devices[i].id = name + "/" + std::to_string(i);
  }
  return join;
}

inline JobSpec job_on(int devices, const std::string& name = "job") {
  JobSpec job;
  job.name = name;
  job.model = {.type = "gpt", .layers = 1, .heads = 1, .width = 8, .context = 8, .vocab = 256};
  job.data.text = {"text.txt"};
  job.data.files = {"/data/text.txt"};
  job.train.global_batch = 4;
  job.train.steps = 10;
  if (devices > 0) job.devices.count = CountRange{devices, devices};
  return job;
}

/// An array's jobs on a device each.
inline std::vector<JobSpec> array_of(int size, int at_once = 0) {
  std::vector<JobSpec> jobs;
  for (int index = 0; index < size; ++index) {
    jobs.push_back(job_on(1, "task-" + std::to_string(index)));
    jobs.back().array = {index, size, at_once};
  }
  return jobs;
}

class FakeService {
 public:
  /// `measured`: the jobs of job_on() have been, on devices of the types "a" and "b", which are
  /// equally fast.
  explicit FakeService(FleetSpec fleet, const std::string& policy = "backfill",
                       bool measured = true)
      : fleet_(std::move(fleet)),
        policy_(std::move(*make_policy(policy))),
        database_(std::move(*Database::open(":memory:", Database::Mode::kWrite))) {
    (void)migrate(database_);
    for (const std::string type : {"a", "b"})
      if (measured) know_speed(job_on(1), type, 4);
    restart();
  }

  /// Samples a second of one device of the type; before it is asked for.
  void know_speed(const JobSpec& job, const std::string& type, double speed) {
    (void)save_speed(database_, {.workload = workload_of(job),
                                 .traits = DevicePools(fleet_of({type})).traits(0),
                                 .type = type,
                                 .samples_per_second = speed});
  }

  void forget_speeds() { (void)remove_speeds(database_, INT64_MAX); }

  /// As after a kill: what was not committed is lost, what runs runs on.
  void restart() {
    writer_ = std::make_unique<HeldWriter>(database_);
    coordinator_ = std::make_unique<Coordinator>(
        fleet_, Coordinator::Surroundings{clock, database_, *writer_, launcher, *policy_,
                                          [this] { return wall_time; }});
    (void)coordinator_->recover();
    run();
  }

  void restart(FleetSpec fleet) {
    fleet_ = std::move(fleet);
    restart();
  }

  /// Until nothing is left to do now.
  void run() {
    do {
      writer_->commit_all();
      coordinator_->on_time();
      remover.remove_all();
    } while (writer_->held() > 0);
  }

  Result<int64_t> submit(JobSpec job, const std::string& key = "", bool held = false,
                         const std::string& owner = "ana") {
    return submit_all({std::move(job)}, key, held, owner);
  }
  /// An array: the number of the first.
  Result<int64_t> submit_all(std::vector<JobSpec> jobs, const std::string& key = "",
                             bool held = false, const std::string& owner = "ana") {
    Result<int64_t> answer = fail(ErrorCode::kInternal, "not answered");
    coordinator_->submit({std::move(jobs), owner, key, held},
                         [&](Result<int64_t> result) { answer = std::move(result); });
    run();
    return answer;
  }
  Result<Unit> update(int64_t job, const std::vector<Override>& changes) {
    return answered([&](auto done) { coordinator_->update(job, changes, done); });
  }

  Result<Unit> ask(int64_t job, JobRequest request) {
    Result<Unit> answer = fail(ErrorCode::kInternal, "not answered");
    coordinator_->ask(job, request, [&](Result<Unit> result) { answer = std::move(result); });
    run();
    return answer;
  }

  // Agents of nodes.
  Result<Unit> join(NodeJoin join) {
    return answered([&](auto done) { coordinator_->join(std::move(join), done); });
  }
  Result<std::vector<AttemptId>> hear(const std::string& node, std::vector<AttemptId> running = {},
                                      const std::string& session = "first") {
    auto allowed = coordinator_->hear({node, session, std::move(running)});
    run();
    return allowed;
  }
  /// It joins and is ready.
  void come(const std::string& node, const std::vector<std::string>& types) {
    (void)join(node_of_types(node, types));
    (void)hear(node);
  }
  Result<Unit> drain(const std::string& node, DrainRequest request = {}) {
    return answered([&](auto done) { coordinator_->drain(node, request, done); });
  }
  Result<Unit> undrain(const std::string& node) {
    return answered([&](auto done) { coordinator_->undrain(node, done); });
  }
  Result<Unit> forget(const std::string& node) {
    return answered([&](auto done) { coordinator_->forget_node(node, done); });
  }
  Result<Unit> leave(const std::string& node) {
    return answered([&](auto done) { coordinator_->leave(node, "first", done); });
  }
  const Node& node(const std::string& name) const { return coordinator_->nodes().at(name); }
  std::vector<std::string> node_events(const std::string& node) const {
    std::vector<std::string> texts;
    const auto events = list_events(database_, 0, 0, 1000);
    for (const StoredEvent& event : *events)
      if (event.node == node) texts.push_back(event.text);
    return texts;
  }

  void end(int64_t job, AttemptOutcome outcome, bool hopeless = false, std::string cause = "") {
    const Epoch epoch = status(job).epoch;
    launcher.begun.erase({job, epoch});
    coordinator_->attempt_over(job, {epoch, outcome, true, hopeless, std::move(cause)});
    run();
  }

  /// The attempt was to measure: samples a second by device id.
  void measured(int64_t job, const std::map<std::string, double>& speeds) {
    AttemptOver over{status(job).epoch, AttemptOutcome::kDone, false, false, ""};
    over.speeds = speeds;
    launcher.begun.erase({job, over.epoch});
    coordinator_->attempt_over(job, over);
    run();
  }

  void end_in_vain(int64_t job) {
    const Epoch epoch = status(job).epoch;
    launcher.begun.erase({job, epoch});
    coordinator_->attempt_over(job, {epoch, AttemptOutcome::kFailed, false, false, "killed"});
    run();
  }

  void pass(double seconds) {
    clock.advance(nanos_of_seconds(seconds));
    run();
  }

  JobStatus status(int64_t job) const { return find_job(database_, job)->status; }
  JobState state(int64_t job) const { return status(job).state; }
  std::vector<std::string> events(int64_t job) const {
    std::vector<std::string> texts;
    const auto events = list_events(database_, job, 0, 1000);
    for (const StoredEvent& event : *events) texts.push_back(event.text);
    return texts;
  }
  std::vector<StoredAttempt> attempts(int64_t job) const { return *list_attempts(database_, job); }

  const Database& database() const { return database_; }
  Coordinator& coordinator() { return *coordinator_; }
  HeldWriter& writer() { return *writer_; }

  template <class Ask>
  Result<Unit> answered(Ask ask) {
    Result<Unit> answer = fail(ErrorCode::kInternal, "not answered");
    ask([&](Result<Unit> result) { answer = std::move(result); });
    run();
    return answer;
  }

  ManualClock clock;
  ScriptedLauncher launcher;
  HeldRemover remover;
  int64_t wall_time = 1'000;

 private:
  FleetSpec fleet_;
  std::unique_ptr<Policy> policy_;
  Database database_;
  std::unique_ptr<HeldWriter> writer_;
  std::unique_ptr<Coordinator> coordinator_;
};

}  // namespace motley::testing
