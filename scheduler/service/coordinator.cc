#include "scheduler/service/coordinator.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <nlohmann/json.hpp>
#include <system_error>
#include <thread>

#include "core/file_system.h"
#include "core/json_fields.h"
#include "core/spec/json.h"
#include "scheduler/service/event_text.h"

namespace motley {
namespace {

constexpr int kRecoveredAtOnce = 2000;
constexpr const char* kMeasured = "measured";
constexpr const char* kNotMeasured = "not measured";

const char* outcome_name(AttemptOutcome outcome) {
  switch (outcome) {
    case AttemptOutcome::kDone:
      return "done";
    case AttemptOutcome::kStopped:
      return "stopped";
    case AttemptOutcome::kFailed:
      return "failed";
  }
  return "?";
}

JobEvent event_of(JobRequest request) {
  switch (request) {
    case JobRequest::kCancel:
      return CancelAsked{};
    case JobRequest::kHold:
      return HoldAsked{};
    case JobRequest::kRelease:
      return ReleaseAsked{};
    case JobRequest::kRequeue:
      return RequeueAsked{};
  }
  return ReleaseAsked{};
}

Result<SharedSpec> spec_of(const StoredJob& job) {
  MOTLEY_TRY(const nlohmann::json document, parse_json(job.spec));
  MOTLEY_TRY(JobSpec spec, job_from_json(document));
  return std::make_shared<const JobSpec>(std::move(spec));
}

/// Most of what it takes to go on with a long queue: by as many threads as there are.
std::vector<Result<SharedSpec>> specs_of(const std::vector<StoredJob>& jobs) {
  std::vector<Result<SharedSpec>> specs(jobs.size(), SharedSpec());
  std::atomic<size_t> next{0};
  const auto read = [&] {
    for (size_t i = next++; i < jobs.size(); i = next++) specs[i] = spec_of(jobs[i]);
  };
  const size_t threads = std::min<size_t>(jobs.size() / 100, std::thread::hardware_concurrency());
  std::vector<std::thread> others;
  try {
    while (others.size() + 1 < threads) others.emplace_back(read);
  } catch (const std::system_error&) {
    // There are no more to be had: those there are read all.
  }
  read();
  for (std::thread& other : others) other.join();
  return specs;
}

bool has_saved(const Database& kept, int64_t job) {
  const auto attempts = list_attempts(kept, job);
  return attempts && std::any_of(attempts->begin(), attempts->end(),
                                 [](const StoredAttempt& one) { return one.saved_step > 0; });
}

}  // namespace

Coordinator::Coordinator(FleetSpec fleet, Surroundings surroundings, Rules rules)
    : own_(std::move(fleet)), around_(std::move(surroundings)), rules_(rules) {
  begin_with_own();
}

// --- what there is ---

Result<Unit> Coordinator::recover() {
  MOTLEY_TRY_VOID(recover_nodes());
  MOTLEY_TRY_VOID(recover_usage());
  MOTLEY_TRY(const auto counts, count_jobs(around_.kept));
  counters_.jobs.clear();
  for (const auto& [state, count] : counts) counters_.jobs[state] = count;
  std::vector<StoredJob> page;
  do {
    const int64_t last = page.empty() ? 0 : page.back().id;
    MOTLEY_TRY(page, unfinished_jobs(around_.kept, last, kRecoveredAtOnce));
    std::vector<Result<SharedSpec>> specs = specs_of(page);
    for (size_t i = 0; i < page.size(); ++i) {
      MOTLEY_TRY(const SharedSpec spec, std::move(specs[i]));
      MOTLEY_TRY_VOID(recover(page[i], spec));
    }
  } while (!page.empty());
  for (auto& [id, job] : jobs_) {
    const auto left = dependencies(job.after);
    if (left && !job.after.empty()) apply(job, *left);
  }
  // Whoever was killed between the loss of a node and what follows from it.
  for (const auto& [name, node] : nodes_)
    if (node.state == NodeState::kLost) give_up_attempts_on(name, node.fault());
  find_leftovers();
  undecided_ = true;
  return Unit{};
}

Result<Unit> Coordinator::recover(const StoredJob& stored, const SharedSpec& spec) {
  const int64_t id = stored.id;
  std::vector<StoredAttempt> attempts;  // most jobs of a long queue have none
  if (stored.status.epoch > Epoch(0)) {
    MOTLEY_TRY(attempts, list_attempts(around_.kept, id));
  }
  JobStatus status = stored.status;
  status.not_before += now();
  const JobFsm fsm(RetryRule{.most_restarts = spec->retry.max_restarts}, std::move(status));
  enter(make_job(id, spec, stored.owner, fsm));
  Job& job = jobs_.at(id);
  job.array = stored.array.first;
  for (const StoredAttempt& attempt : attempts) {
    if (attempt.outcome != kMeasured && attempt.outcome != kNotMeasured) job.served += attempt.took;
    job.saved_step = std::max(job.saved_step, attempt.saved_step);
  }
  if (job.fsm.status().not_before > now()) wake(job.fsm.status().not_before, id);
  find_attempt(job, attempts);
  return Unit{};
}

void Coordinator::find_attempt(Job& job, const std::vector<StoredAttempt>& attempts) {
  const JobState state = job.fsm.status().state;
  const bool has_attempt = state == JobState::kProfiling || state == JobState::kLaunching ||
                           state == JobState::kRunning || state == JobState::kStopping;
  if (!has_attempt) {
    // What is neither waiting nor an attempt was in the coordinator that is gone.
    if (state != JobState::kWaiting && state != JobState::kQueued) apply(job, Preempted{});
    return;
  }
  const Epoch epoch = job.fsm.status().epoch;
  for (const StoredAttempt& attempt : attempts)
    if (attempt.epoch == epoch) set_devices(job, attempt.devices);
  devices_.give(job.devices, job.id);
  find_demand(job);
  perform(job, LaunchAttempt{epoch});
  if (state == JobState::kStopping) perform(job, StopAttempt{epoch});
}

Coordinator::Job Coordinator::make_job(int64_t id, SharedSpec spec, const std::string& owner,
                                       JobFsm fsm) {
  Job job;
  job.id = id;
  job.owner = owner;
  job.fsm = std::move(fsm);
  adopt(std::move(spec), job);
  return job;
}

void Coordinator::adopt(SharedSpec spec, Job& job) {
  job.priority = spec->service.priority;
  job.preemptible = spec->service.preemptible;
  job.after = spec->service.after;
  job.longest = spec->service.max_duration;
  job.workload = workload_of(*spec);
  job.spec = std::move(spec);
  know_speeds(job.workload);
  find_demand(job);
}

void Coordinator::find_demand(Job& job) const {
  job.demand = devices_.demand(*job.spec, unfit_for(job));
  // It keeps what it has, also what others would not get any more.
  if (!job.devices.empty()) job.demand.any_of.push_back(devices_.demand_held(job.id));
}

void Coordinator::find_demands() {
  for (auto& [id, job] : jobs_) find_demand(job);
  undecided_ = true;
}

void Coordinator::enter(Job job) {
  note_dependent(job);
  jobs_.insert_or_assign(job.id, std::move(job));
  undecided_ = true;
}

/// Those that have ended will tell nobody.
void Coordinator::note_dependent(const Job& job) {
  for (const int64_t before : job.after)
    if (jobs_.count(before) != 0) dependents_.emplace(before, job.id);
}

void Coordinator::forget_dependent(int64_t before, int64_t job) {
  const auto [begin, end] = dependents_.equal_range(before);
  const auto found =
      std::find_if(begin, end, [&](const auto& entry) { return entry.second == job; });
  if (found != end) dependents_.erase(found);
}

Result<JobState> Coordinator::state_of(int64_t id) const {
  if (const auto found = jobs_.find(id); found != jobs_.end())
    return found->second.fsm.status().state;
  MOTLEY_TRY(const StoredJob stored, find_job(around_.kept, id));
  return stored.status.state;
}

/// Once submitted: a job that is kept no longer had succeeded, or who came after it was cancelled.
Result<DependenciesLeft> Coordinator::dependencies(const std::vector<int64_t>& after) const {
  DependenciesLeft left;
  for (const int64_t id : after) {
    const auto found = state_of(id);
    if (!found && found.error().code != ErrorCode::kNotFound) return fail(found.error());
    const JobState state = found.value_or(JobState::kSucceeded);
    left.unfinished += is_final(state) ? 0 : 1;
    if (left.failed.empty()) left.failed = why_not_after(id, state);
  }
  return left;
}

// --- a disk that is full ---

void Coordinator::break_off(const Error& error) {
  if (broken_) return;
  broken_ = Error{error.code,
                  "nothing can be kept at the moment, so nothing is changed; it goes on by itself "
                  "when that is over: " +
                      error.message,
                  {}};
  write_again_ = now() + rules_.write_again;
}

/// Whatever was handed in before has been answered when this is.
void Coordinator::try_to_write_again() {
  if (!write_again_ || *write_again_ > now()) return;
  write_again_.reset();
  around_.store.write([](Database& database) { return try_to_write(database); },
                      [this](const Result<Unit>& written) {
                        if (written) return begin_again();
                        write_again_ = now() + rules_.write_again;
                      });
}

/// As one does who was killed: only what is kept counts, and attempts are found where they are.
void Coordinator::begin_again() {
  broken_.reset();
  jobs_.clear();
  on_node_.clear();
  dependents_.clear();
  due_ = {};
  aside_.clear();
  speeds_.clear();
  begin_with_own();
  if (const auto recovered = recover(); !recovered) break_off(recovered.error());
}

// --- what people want ---

Result<Coordinator::Job*> Coordinator::find_unended(int64_t id) {
  MOTLEY_TRY(const JobState state, state_of(id));
  const auto found = jobs_.find(id);
  if (!is_final(state) && found != jobs_.end()) return &found->second;
  return fail(ErrorCode::kNotPermitted,
              "job " + std::to_string(id) + " has ended: it is " + name_of(state));
}

void Coordinator::ask(int64_t id, JobRequest request, Answered done, const std::string& by) {
  const auto job = find_unended(id);
  if (!job) {
    Error error = job.error();
    const bool to_go_on = request == JobRequest::kRelease || request == JobRequest::kRequeue;
    const auto state = state_of(id);
    if (to_go_on && state && *state != JobState::kSucceeded && has_saved(around_.kept, id))
      error.message +=
          "; a new job can go on from its checkpoint: motley resume " + std::to_string(id);
    return done(fail(std::move(error)));
  }
  if (request == JobRequest::kRequeue) {
    forget_unfit(**job);
    undecided_ = true;
  }
  apply(**job, event_of(request), std::move(done), by);
}

void Coordinator::attempt_over(int64_t id, const AttemptOver& over) {
  const auto found = jobs_.find(id);
  if (found == jobs_.end()) return;
  AttemptOver told = over;
  Job& job = found->second;
  if (over.epoch == job.fsm.status().epoch)  // that long it had no devices
    job.begun = std::min(now(), job.begun + over.ended_ago);
  const std::string& fault = job.node_fault;
  if (!fault.empty() && over.outcome != AttemptOutcome::kDone) {
    told.outcome = AttemptOutcome::kFailed;
    told.hopeless = false;
    told.blameless = true;
    told.cause = fault;
  }
  look_elsewhere(job, &told);
  apply(job, told);
}

// --- one event ---

void Coordinator::apply(Job& job, const JobEvent& event, Answered done, const std::string& by) {
  if (broken_) {
    if (done) done(fail(*broken_));
    return;
  }
  const JobStatus before = job.fsm.status();
  std::vector<JobAction> actions = job.fsm.on(event, now());
  // The attempt itself measures and plans; the coordinator has nothing to wait for.
  if (!actions.empty() && std::holds_alternative<MakePlan>(actions.front()))
    actions = job.fsm.on(PlanEnded{}, now());
  const JobStatus& after = job.fsm.status();
  const bool changed = after != before;
  if (!changed && !done) return;
  // Where nothing changes the answer still comes after all that was written before.
  GroupCommit::Change change = [](Database&) { return Result<Unit>(Unit{}); };
  if (changed) change = change_of(job, before, event, by);
  around_.store.write(std::move(change),
                      [this, id = job.id, actions, done = std::move(done)](Result<Unit> written) {
                        if (written) {
                          act(id, actions);
                        } else {
                          break_off(written.error());
                          written = fail(*broken_);
                        }
                        if (done) done(std::move(written));
                      });
  if (!changed) return;
  --counters_.jobs[before.state];
  ++counters_.jobs[after.state];
  undecided_ = true;
  if (const auto* over = std::get_if<AttemptOver>(&event)) {
    learn(job, *over);
    if (!before.measuring) judge_devices(job, *over);
    job.saved_step = std::max(job.saved_step, over->saved_step);
  }
  const std::vector<std::string> had = job.devices;
  take_effect(job, actions, before.measuring);
  if (const auto* over = std::get_if<AttemptOver>(&event); over != nullptr && over->unclean)
    set_aside({job.id, over->epoch}, had, now() + rules_.kill_again, "is over, but does not end");
  if (is_final(after.state)) tell_dependents(job.id);
}

GroupCommit::Change Coordinator::change_of(const Job& job, const JobStatus& before,
                                           const JobEvent& event, const std::string& by) const {
  JobStatus after = job.fsm.status();
  std::string text = event_text(before, after, job.devices, now(), by);
  after.not_before = std::max(Nanos(0), after.not_before - now());
  StoredAttempt attempt;
  attempt.job = job.id;
  attempt.epoch = after.epoch;
  attempt.devices = job.devices;
  const bool begins = after.epoch != before.epoch;
  const auto* over = std::get_if<AttemptOver>(&event);
  std::vector<StoredSpeed> speeds;
  if (over != nullptr) {
    const bool measured = before.measuring && over->outcome == AttemptOutcome::kDone;
    attempt.took = now() - job.begun;
    attempt.worth = worth_seconds(job);
    attempt.saved_step = over->saved_step;
    attempt.outcome = measured           ? kMeasured
                      : before.measuring ? kNotMeasured
                                         : outcome_name(over->outcome);
    attempt.cause = over->cause;
    speeds = speeds_in(job, *over);
    if (measured) text = measured_text(speeds);
  }
  return [=, wall = around_.wall_time(),
          ends = over != nullptr](Database& database) mutable -> Result<Unit> {
    MOTLEY_TRY_VOID(save_status(database, attempt.job, before, after, wall));
    attempt.begun = attempt.ended = wall;
    if (begins) MOTLEY_TRY_VOID(add_attempt(database, attempt));
    if (ends) MOTLEY_TRY_VOID(end_attempt(database, attempt));
    for (const StoredSpeed& speed : speeds) MOTLEY_TRY_VOID(save_speed(database, speed));
    return add_event(database, attempt.job, wall, text);
  };
}

void Coordinator::take_effect(Job& job, const std::vector<JobAction>& actions, bool measured) {
  for (const JobAction& action : actions) {
    if (std::holds_alternative<FreeDevices>(action)) {
      if (!job.devices.empty() && !measured) job.served += now() - job.begun;
      add_usage_of(job);
      devices_.free(job.id);
      set_devices(job, {});
      job.node_fault.clear();
      find_demand(job);
      job.stop_by = Nanos(0);  // the next attempt has its own time to end in
    } else if (const auto* later = std::get_if<WakeAt>(&action)) {
      wake(later->when, job.id);
    }
  }
}

void Coordinator::act(int64_t id, const std::vector<JobAction>& actions) {
  const auto found = jobs_.find(id);
  if (found == jobs_.end()) return;
  for (const JobAction& action : actions) {
    if (const auto* launch = std::get_if<LaunchAttempt>(&action)) perform(found->second, *launch);
    if (const auto* stop = std::get_if<StopAttempt>(&action)) perform(found->second, *stop);
  }
  if (is_final(found->second.fsm.status().state)) forget(id);
}

/// Only once its end is on disk: until then who asks for its state finds it here.
void Coordinator::forget(int64_t id) {
  const auto stored = find_job(around_.kept, id);
  if (stored && is_final(stored->status.state)) jobs_.erase(id);
}

void Coordinator::perform(Job& job, const LaunchAttempt& action) {
  if (!job.node_fault.empty())
    return attempt_over(job.id, {action.epoch, AttemptOutcome::kFailed, false, false, ""});
  const auto order = order_of(job);
  const Result<Nanos> age =
      order ? around_.launcher.begin(*order) : Result<Nanos>(fail(order.error()));
  if (!age)
    return apply(job, AttemptOver{action.epoch, AttemptOutcome::kFailed, false, false,
                                  "cannot be started: " + age.error().to_string(),
                                  is_disk_full(age.error())});
  job.begun = now() - *age;
  wake_in_attempt(job);
  apply(job, LaunchedAttempt{action.epoch});
}

/// When it may be stopped for its equals, when measuring has taken too long, and when its longest
/// duration has passed.
void Coordinator::wake_in_attempt(const Job& job) {
  if (job.preemptible) wake(std::max(now(), job.begun + rules_.least_run), job.id);
  if (job.fsm.status().measuring) wake(job.begun + rules_.longest_measuring, job.id);
  if (job.longest > Nanos(0) && !job.fsm.status().measuring)
    wake(std::max(now(), job.begun + job.longest - job.served), job.id);
}

Result<AttemptOrder> Coordinator::order_of(const Job& job) const {
  MOTLEY_TRY(const StoredJob stored, find_job(around_.kept, job.id));
  MOTLEY_TRY(const SharedSpec stored_spec, spec_of(stored));
  FleetSpec given = devices_.only(job.devices);
  JobSpec spec = DevicePools::job_on(given, *stored_spec);
  AttemptOrder order{{job.id, job.fsm.status().epoch}, std::move(spec), std::move(given), {}};
  for (const std::string& host : order.fleet.hosts())
    if (const auto node = nodes_.find(host); node != nodes_.end() && !node->second.is_own())
      order.agents.push_back(host);
  order.measure = job.fsm.status().measuring;
  order.log_limit = rules_.log_limit;
  return order;
}

void Coordinator::perform(Job& job, const StopAttempt& action) {
  around_.launcher.ask_to_stop({job.id, action.epoch}, job.fsm.status().stop);
  const Nanos wanted = job.spec->service.stop_grace;  // its program's own ends before ours
  job.stop_by = now() + std::max(rules_.stop_grace, wanted + rules_.stop_margin);
  wake(job.stop_by, job.id);
}

void Coordinator::tell_dependents(int64_t id) {
  const auto [begin, end] = dependents_.equal_range(id);
  std::vector<int64_t> told;
  for (auto each = begin; each != end; ++each) told.push_back(each->second);
  dependents_.erase(begin, end);
  for (const int64_t dependent : told) {
    const auto found = jobs_.find(dependent);
    if (found == jobs_.end()) continue;
    if (const auto left = dependencies(found->second.after)) apply(found->second, *left);
  }
}

// --- time ---

std::optional<Nanos> Coordinator::next_wake() const {
  if (broken_) return write_again_;
  if (undecided_) return now();
  std::optional<Nanos> next = next_node_due();
  const auto at = [&](Nanos when) { next = next ? std::min(*next, when) : when; };
  if (!due_.empty()) at(due_.top().when);
  for (const auto& [id, aside] : aside_) at(aside.kill_at);
  return next;
}

void Coordinator::on_time() {
  if (broken_) return try_to_write_again();
  while (!due_.empty() && due_.top().when <= now()) {
    const int64_t id = due_.top().job;
    due_.pop();
    if (const auto found = jobs_.find(id); found != jobs_.end()) look_at(found->second);
  }
  look_at_nodes();
  look_at_leftovers();
  if (undecided_) decide();
}

void Coordinator::look_at(Job& job) {
  const JobStatus& status = job.fsm.status();
  if (status.state == JobState::kWaiting && status.not_before <= now()) apply(job, BackOffIsOver{});
  if (job.devices.empty()) return;
  undecided_ |= job.preemptible;  // its turn may be over
  // To be measured costs a job nothing of its time.
  const bool too_long = job.longest > Nanos(0) && !status.measuring &&
                        job.served + (now() - job.begun) >= job.longest;
  if (too_long && status.stop != StopWhy::kTimeLimit) apply(job, TimeIsUp{});
  if (status.state == JobState::kProfiling && now() - job.begun >= rules_.longest_measuring)
    around_.launcher.kill({job.id, status.epoch});
  if (status.state == JobState::kStopping && job.stop_by > Nanos(0) && job.stop_by <= now()) {
    around_.launcher.kill({job.id, status.epoch});
    job.stop_by = now() + rules_.kill_again;
    wake(job.stop_by, job.id);
  }
}

std::optional<int64_t> Coordinator::heir_of(int64_t id) const {
  for (const auto& [heir, job] : jobs_)
    if (job.spec->service.resumes.job == id && !is_final(job.fsm.status().state)) return heir;
  return std::nullopt;
}

int Coordinator::running() const {
  return static_cast<int>(std::count_if(
      jobs_.begin(), jobs_.end(), [](const auto& entry) { return !entry.second.devices.empty(); }));
}

}  // namespace motley
