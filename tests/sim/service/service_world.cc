#include "tests/sim/service/service_world.h"

#include <algorithm>
#include <cstdio>
#include <optional>

namespace motley::testing {
namespace {

constexpr size_t kTraceLines = 60;
constexpr double kGather = 0.002;
constexpr double kAskAgain = 1;
constexpr double kUpdateAgain = 2;  ///< any message has arrived by then
constexpr int kPeople = 3;
constexpr double kNodesCome = 10;

FleetSpec fleet_at(const std::string& host, const std::vector<std::string>& types) {
  FleetSpec fleet;
  for (const std::string& type : types) {
    DeviceSpec device;
    device.id = host + "/" + std::to_string(fleet.devices.size());
    device.host = host;
    device.kind = DeviceKind::kCpu;
    device.type = type;
    fleet.devices.push_back(device);
  }
  return fleet;
}

}  // namespace

/// On disk after a while; told after another. A kill between the two loses the answer, one before
/// loses the change.
class SlowWriter final : public ChangeWriter {
 public:
  SlowWriter(EventQueue& events, Chance& chance, Database& database, std::function<void()> after)
      : events_(events), chance_(chance), database_(database), after_(std::move(after)) {}

  void write(GroupCommit::Change change, GroupCommit::Done done) override {
    wishes_.emplace_back(std::move(change), std::move(done));
    if (wishes_.size() == 1) soon();
  }
  void set_self(std::weak_ptr<SlowWriter> self) { self_ = std::move(self); }

 private:
  using Answers = std::vector<std::pair<GroupCommit::Done, Result<Unit>>>;
  void soon() {
    events_.in(chance_.between(0.001, 0.02), [weak = self_] {
      if (const auto self = weak.lock()) self->commit();
    });
  }
  void commit() {
    auto answers = std::make_shared<Answers>();
    for (auto& [change, done] : std::exchange(wishes_, {})) {
      auto written = change(database_);
      answers->emplace_back(std::move(done), std::move(written));
    }
    told_at_ = std::max(told_at_, events_.now() + nanos_of_seconds(chance_.between(0, 0.005)));
    events_.at(told_at_, [weak = self_, answers] {
      const auto self = weak.lock();
      if (!self) return;
      for (auto& [done, written] : *answers) done(std::move(written));
      self->after_();
    });
  }

  EventQueue& events_;
  Chance& chance_;
  Database& database_;
  std::function<void()> after_;
  std::vector<std::pair<GroupCommit::Change, GroupCommit::Done>> wishes_;
  Nanos told_at_{0};
  std::weak_ptr<SlowWriter> self_;
};

/// The coordinator, killed and started again; its database stays.
class ServiceWorld::Head {
 public:
  Head(EventQueue& events, Chance& chance, FakeLauncher& launcher, const std::string& policy)
      : events_(events),
        chance_(chance),
        launcher_(launcher),
        policy_(std::move(*make_policy(policy))),
        database_(std::move(*Database::open(":memory:", Database::Mode::kWrite))) {
    if (const auto made = migrate(database_); !made) throw Violation{made.error().message};
  }

  void start() {
    writer_ = std::make_shared<SlowWriter>(events_, chance_, database_, [this] { arm(); });
    writer_->set_self(writer_);
    coordinator_ = std::make_unique<Coordinator>(
        fleet_at("head", {"fast", "slow"}),
        Coordinator::Surroundings{events_.clock(), database_, *writer_, launcher_, *policy_,
                                  [this] { return events_.now().value(); }});
    if (const auto found = coordinator_->recover(); !found)
      throw Violation{"cannot recover: " + found.error().to_string()};
    arm();
  }
  void kill() {
    writer_.reset();
    coordinator_.reset();
    ++life_;
  }
  Coordinator* coordinator() { return coordinator_.get(); }
  int life() const { return life_; }
  Database& database() { return database_; }

  /// After whatever may have given it something to do.
  void arm() {
    if (!coordinator_) return;
    if (coordinator_->broken()) throw Violation{"broken: " + coordinator_->broken()->to_string()};
    const auto next = coordinator_->next_wake();
    if (!next) return;
    const Nanos when = std::max(*next, events_.now() + nanos_of_seconds(kGather));
    if (armed_ > events_.now() && armed_ <= when && armed_life_ == life_) return;
    armed_ = when;
    armed_life_ = life_;
    events_.at(when, [this, when, life = life_] {
      if (life != life_ || armed_ != when) return;
      armed_ = Nanos(0);
      coordinator_->on_time();
      arm();
    });
  }

 private:
  EventQueue& events_;
  Chance& chance_;
  FakeLauncher& launcher_;
  std::unique_ptr<Policy> policy_;
  Database database_;
  std::shared_ptr<SlowWriter> writer_;
  std::unique_ptr<Coordinator> coordinator_;
  int life_ = 0;
  Nanos armed_{0};
  int armed_life_ = 0;
};

ServiceWorld::ServiceWorld(const WorldOptions& options)
    : options_(options),
      chance_(options.seed),
      launcher_(events_, chance_, occupancy_, nodes_),
      head_(std::make_unique<Head>(events_, chance_, launcher_, options.policy)) {
  const std::vector<std::vector<std::string>> fleets = {
      {"fast", "fast"}, {"slow"}, {"fast", "slow", "slow"}};
  for (size_t i = 0; i < fleets.size(); ++i) {
    const std::string name = "n" + std::to_string(i + 1);
    nodes_.emplace(name, FakeNode(name, fleet_at(name, fleets[i]), occupancy_));
  }
  launcher_.connect(
      [this](const AttemptOrder& order, FakeNode& node) {
        Coordinator* coordinator = head_->coordinator();
        return coordinator != nullptr && coordinator->may_run(order.id, node.name()) &&
               node.start_ranks(order);
      },
      [this](int64_t job, const AttemptOver& over) {
        if (head_->coordinator() == nullptr) return;
        say("over: job " + std::to_string(job) + " attempt " + std::to_string(over.epoch.value()) +
            " " + over.cause);
        head_->coordinator()->attempt_over(job, over);
        head_->arm();
      });
  launcher_.set_mishaps(mishaps_);
}

ServiceWorld::~ServiceWorld() = default;

void ServiceWorld::say(const std::string& text) {
  char time[32];
  std::snprintf(time, sizeof time, "%10.3f ", events_.seconds());
  trace_.push_back(time + text);
  if (trace_.size() > kTraceLines) trace_.pop_front();
}

std::string ServiceWorld::trace() const {
  std::string text;
  for (const std::string& line : trace_) text += line + "\n";
  return text;
}

void ServiceWorld::send(std::function<void(Coordinator&)> message) {
  if (chance_.happens(mishaps_.lost_message)) return;
  events_.in(chance_.between(0, 0.1), [this, message = std::move(message)] {
    if (head_->coordinator() == nullptr) return;
    message(*head_->coordinator());
    head_->arm();
  });
}

void ServiceWorld::answer(std::function<void()> message) {
  if (chance_.happens(mishaps_.lost_message)) return;
  events_.in(chance_.between(0, 0.1), std::move(message));
}

// --- people ---

DeviceFilter ServiceWorld::some_filter() {
  DeviceFilter filter;
  const int least = 1 + chance_.up_to(2);
  filter.count = CountRange{least, least + chance_.up_to(2)};
  if (chance_.happens(0.3)) filter.types = {"fast"};
  if (filter.types.empty() && chance_.happens(0.3)) filter.limits = {{"slow", 1}};
  return filter;
}

std::vector<JobSpec> ServiceWorld::some_array() {
  const int size = 2 + chance_.up_to(4), at_once = chance_.up_to(2);
  std::vector<JobSpec> jobs(static_cast<size_t>(size), some_job());
  for (int index = 0; index < size; ++index) {
    JobSpec& job = jobs[static_cast<size_t>(index)];
    job.name += "-" + std::to_string(index);
    job.array = {index, size, at_once};
  }
  return jobs;
}

JobSpec ServiceWorld::some_job() {
  JobSpec job;
  job.name = "job-" + std::to_string(submissions_.size());
  job.model = {.type = "gpt", .layers = 1, .heads = 1, .width = 8, .context = 8, .vocab = 256};
  job.model.width = 8 * (1 + chance_.up_to(5));  // several things to be measured
  job.data.text = {"text.txt"};
  job.data.files = {"/data/text.txt"};
  job.train.global_batch = 4;
  job.train.steps = 1 + chance_.up_to(39);
  job.devices = some_filter();
  if (chance_.happens(0.25)) {
    job.any_of = {some_filter(), some_filter()};
    for (size_t i = 0; i < job.any_of.size(); ++i)
      job.any_of[i].key = "any_of." + std::to_string(i);
    job.devices = {};
  }
  job.service.priority = 10 * chance_.up_to(10);
  job.service.preemptible = chance_.happens(0.5);
  if (chance_.happens(0.1)) job.service.max_duration = nanos_of_seconds(chance_.between(2, 60));
  const bool has_before = !submissions_.empty() && submissions_.back().id > 0;
  if (has_before && chance_.happens(0.15)) job.service.after = {submissions_.back().id};
  return job;
}

void ServiceWorld::person(int number) {
  if (events_.seconds() > options_.troubled_seconds) return;
  const double what = chance_.between(0, 1);
  if (what < 0.55)
    submit_something();
  else if (what < 0.85)
    ask_something();
  else if (what < 0.95)
    update_something();
  else
    drain_something();
  events_.in(chance_.wait(4), [this, number] { person(number); });
}

void ServiceWorld::submit_something() {
  std::vector<JobSpec> jobs = chance_.happens(0.15) ? some_array() : std::vector{some_job()};
  submissions_.push_back({"key-" + std::to_string(submissions_.size()), std::move(jobs)});
  try_submission(submissions_.size() - 1);
}

/// Again and again under its key, until it is acknowledged.
void ServiceWorld::try_submission(size_t index) {
  if (submissions_[index].settled()) return;
  send([this, index](Coordinator& coordinator) {
    const Acknowledged& wanted = submissions_[index];
    coordinator.submit({wanted.jobs, "somebody", wanted.key, false},
                       [this, index](Result<int64_t> id) {
                         if (!id) return refused(index, id.error());
                         answer([this, index, id = *id] {
                           Acknowledged& mine = submissions_[index];
                           if (mine.id != 0 && mine.id != id)
                             throw Violation{mine.key + " became two jobs"};
                           if (mine.id == 0) ++report_.submitted;
                           mine.id = id;
                           say("acknowledged: " + mine.key + " is job " + std::to_string(id));
                         });
                       });
  });
  events_.in(kAskAgain, [this, index] { try_submission(index); });
}

/// Only where what it is to come after has failed.
void ServiceWorld::refused(size_t index, const Error& error) {
  Acknowledged& mine = submissions_[index];
  if (mine.jobs.front().service.after.empty() || error.code != ErrorCode::kInvalidSpec)
    throw Violation{"a submission was refused: " + error.to_string()};
  answer([this, index, text = error.message] {
    submissions_[index].refused = true;
    say("refused: " + submissions_[index].key + ": " + text);
  });
}

/// 0: there is none.
int64_t ServiceWorld::some_acknowledged_job() {
  if (submissions_.empty()) return 0;
  const auto any = [&](size_t size) {
    return static_cast<size_t>(chance_.up_to(static_cast<int>(size) - 1));
  };
  const std::vector<int64_t> ids = submissions_[any(submissions_.size())].ids();
  return ids.empty() ? 0 : ids[any(ids.size())];
}

void ServiceWorld::update_something() {
  const int64_t job = some_acknowledged_job();
  if (job == 0 || updates_[job].last + kUpdateAgain > events_.seconds()) return;
  updates_[job].last = events_.seconds();
  const int number = ++updates_[job].sent;
  std::vector<Override> changes = {{"labels.update", "'" + std::to_string(number) + "'"},
                                   {"priority", std::to_string(10 * chance_.up_to(10))}};
  if (chance_.happens(0.4)) changes.push_back({"resources.devices.count", "1..2"});
  send([this, job, number, changes](Coordinator& coordinator) {
    coordinator.update(job, changes, [this, job, number](Result<Unit> done) {
      const bool refused = !done && (done.error().code == ErrorCode::kNotPermitted ||
                                     done.error().code == ErrorCode::kInvalidSpec);
      if (refused) return;
      if (!done) throw Violation{"job " + std::to_string(job) + ": " + done.error().to_string()};
      answer([this, job, number] {
        ++report_.updated;
        updates_[job].acknowledged = number;
        say("acknowledged: update " + std::to_string(number) + " of job " + std::to_string(job));
      });
    });
  });
}

void ServiceWorld::ask_something() {
  const int64_t job = some_acknowledged_job();
  if (job == 0) return;
  const double what = chance_.between(0, 1);
  const JobRequest request = what < 0.25  ? JobRequest::kCancel
                             : what < 0.5 ? JobRequest::kHold
                             : what < 0.8 ? JobRequest::kRelease
                                          : JobRequest::kRequeue;
  send([this, job, request](Coordinator& coordinator) {
    coordinator.ask(job, request, [this, job, request](Result<Unit> done) {
      if (!done && done.error().code != ErrorCode::kNotPermitted)
        throw Violation{"job " + std::to_string(job) + ": " + done.error().to_string()};
      if (!done) return;
      answer([this, job, request] {
        ++report_.asked;
        if (request == JobRequest::kCancel) launcher_.forbid(job);
        say("acknowledged: request " + std::to_string(static_cast<int>(request)) + " of job " +
            std::to_string(job));
      });
    });
  });
}

void ServiceWorld::drain_something() {
  const std::string name = "n" + std::to_string(1 + chance_.up_to(2));
  DrainRequest request;
  if (chance_.happens(0.5)) request.deadline = nanos_of_seconds(chance_.between(0, 20));
  send([this, name, request](Coordinator& coordinator) {
    coordinator.drain(name, request, [](Result<Unit>) {});
    say("drain " + name);
  });
  events_.in(chance_.between(5, 40), [this, name] {
    send([name](Coordinator& coordinator) { coordinator.undrain(name, [](Result<Unit>) {}); });
  });
}

// --- nodes ---

void ServiceWorld::agent_loop(FakeNode& node) {
  if (node.alive()) call(node);
  events_.in(1, [this, &node] { agent_loop(node); });
}

void ServiceWorld::call(FakeNode& node) {
  if (!node.reachable()) return;
  const std::string session = node.session();
  const auto still = [&node, session] { return node.reachable() && node.session() == session; };
  send([this, &node, session, still](Coordinator& coordinator) {
    if (!still()) return;
    if (!node.joined)
      return coordinator.join({node.name(), session, node.fleet(), {}},
                              [this, &node, still](Result<Unit> joined) {
                                if (joined) answer([&node, still] { node.joined |= still(); });
                              });
    const auto allowed = coordinator.hear({node.name(), session, node.running()});
    if (!allowed) return answer([&node, still] { node.joined &= !still(); });
    answer([&node, still, allowed = *allowed] {
      if (still()) node.end_others(allowed);
    });
  });
}

void ServiceWorld::crash_node(FakeNode& node) {
  if (mishaps_.agent_crash_every <= 0) return;
  if (node.alive()) {
    say("crash of " + node.name());
    ++report_.nodes_lost;
    node.crash();
    events_.in(chance_.between(0.2, 30), [&node] { node.come_back(); });
  }
  events_.in(chance_.wait(mishaps_.agent_crash_every), [this, &node] { crash_node(node); });
}

void ServiceWorld::partition_node(FakeNode& node) {
  if (mishaps_.partition_every <= 0) return;
  say(node.name() + " is cut off");
  ++report_.nodes_lost;
  node.cut_off(true);
  events_.in(chance_.between(0.5, 20), [&node] { node.cut_off(false); });
  events_.in(chance_.wait(mishaps_.partition_every), [this, &node] { partition_node(node); });
}

void ServiceWorld::crash_coordinator() {
  if (mishaps_.coordinator_crash_every <= 0) return;
  if (head_->coordinator() != nullptr) {
    say("crash of the coordinator");
    ++report_.coordinator_crashes;
    head_->kill();
    events_.in(chance_.between(0.1, 8), [this] {
      say("start of the coordinator");
      head_->start();
    });
  }
  events_.in(chance_.wait(mishaps_.coordinator_crash_every), [this] { crash_coordinator(); });
}

// --- what must be ---

/// What was acknowledged is there; what has ended stays as it is.
void ServiceWorld::check_jobs() {
  for (const Acknowledged& each : submissions_) {
    for (const int64_t id : each.ids()) check_job(id);
    if (each.id != 0 && find_job(head_->database(), each.id)->key != each.key)
      throw Violation{"job " + std::to_string(each.id) + " of " + each.key + " is another one"};
  }
  check_updates();
}

void ServiceWorld::check_job(int64_t id) {
  const auto job = find_job(head_->database(), id);
  if (!job) throw Violation{"job " + std::to_string(id) + " is lost"};
  const JobState state = job->status.state;
  const auto seen = ended_.find(id);
  if (seen != ended_.end() && seen->second != state)
    throw Violation{"job " + std::to_string(id) + " was " + name_of(seen->second) + " and is " +
                    name_of(state)};
  if (is_final(state)) ended_[id] = state;
}

void ServiceWorld::check_updates() {
  for (const auto& [id, updates] : updates_) {
    if (updates.acknowledged == 0) continue;
    bool found = false;
    for (int number = updates.acknowledged; number <= updates.sent && !found; ++number) {
      const auto jobs =
          list_jobs(head_->database(), {.label = "update=" + std::to_string(number)}, id + 1, 1);
      found = jobs && !jobs->jobs.empty() && jobs->jobs.front().id == id;
    }
    if (!found) throw Violation{"an update of job " + std::to_string(id) + " is lost"};
  }
}

/// Nothing goes wrong any more, and nobody holds anything back.
void ServiceWorld::come_to_rest() {
  say("nothing goes wrong any more");
  mishaps_ = Mishaps::none();
  launcher_.set_mishaps(mishaps_);
  for (auto& [name, node] : nodes_) {
    node.cut_off(false);
    node.come_back();
  }
}

/// Again and again: a coordinator that was just killed hears nobody.
void ServiceWorld::release_all() {
  for (auto& [name, node] : nodes_)
    send([name = name](Coordinator& coordinator) {
      coordinator.undrain(name, [](Result<Unit>) {});
    });
  for (const Acknowledged& each : submissions_)
    for (const int64_t id : each.ids())
      if (ended_.count(id) == 0)
        send([id](Coordinator& coordinator) {
          coordinator.ask(id, JobRequest::kRelease, [](Result<Unit>) {});
        });
}

bool ServiceWorld::at_rest() {
  return std::all_of(submissions_.begin(), submissions_.end(), [&](const Acknowledged& each) {
    const std::vector<int64_t> ids = each.ids();
    return each.settled() &&
           std::all_of(ids.begin(), ids.end(), [&](int64_t id) { return ended_.count(id) != 0; });
  });
}

void ServiceWorld::begin() {
  head_->start();
  for (auto& [name, node] : nodes_)
    events_.in(chance_.between(0, 1), [this, &node = node] { agent_loop(node); });
  // A submission that no node known so far would do for is refused: let them come first.
  events_.in(kNodesCome, [this] {
    for (int i = 0; i < kPeople; ++i) person(i);
    for (auto& [name, node] : nodes_) {
      events_.in(chance_.wait(mishaps_.agent_crash_every),
                 [this, &node = node] { crash_node(node); });
      events_.in(chance_.wait(mishaps_.partition_every),
                 [this, &node = node] { partition_node(node); });
    }
    events_.in(chance_.wait(mishaps_.coordinator_crash_every), [this] { crash_coordinator(); });
  });
}

WorldReport ServiceWorld::run() {
  begin();
  const auto until = [&](double seconds, auto&& enough) {
    for (double mark = events_.seconds(); mark < seconds && !enough(); mark += 5) {
      while (events_.step(nanos_of_seconds(mark + 5))) {
      }
      check_jobs();
    }
  };
  until(options_.troubled_seconds, [] { return false; });
  come_to_rest();
  until(options_.most_seconds, [&] {
    release_all();
    return at_rest();
  });
  for (const Acknowledged& each : submissions_) {
    if (!each.settled()) throw Violation{each.key + " was never answered"};
    for (const int64_t id : each.ids())
      if (ended_.count(id) == 0)
        throw Violation{"job " + std::to_string(id) + " of " + each.key + " has not ended"};
  }
  until(events_.seconds() + 30, [] { return false; });
  check_nothing_left();
  report_.attempts = launcher_.begun();
  report_.most_attempts = launcher_.most_of_a_job();
  report_.seconds = events_.seconds();
  return report_;
}

void ServiceWorld::check_nothing_left() {
  if (!launcher_.all_over()) throw Violation{"an attempt runs of a job that has ended"};
  if (!occupancy_.idle()) throw Violation{"a process is left on a device"};
  const DevicePools& devices = head_->coordinator()->devices();
  for (size_t i = 0; i < devices.fleet().devices.size(); ++i)
    if (devices.owner_of(i) != 0)
      throw Violation{"device " + devices.fleet().devices[i].id + " is not free"};
}

}  // namespace motley::testing
