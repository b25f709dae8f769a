// Profiles before promises: a job is measured on one device of each kind before it is given more,
// and what is measured once serves all jobs that train the same.

#include <algorithm>

#include "core/spec/profile_key.h"
#include "scheduler/service/coordinator.h"
#include "scheduler/store/usage_store.h"

namespace motley {
namespace {

/// About what measuring takes, for those that come after it.
constexpr double kMeasuringSeconds = 10;
/// Of a program, whose speed nobody measures: all devices count the same.
constexpr double kProgramRate = 1;
/// Failures of one job before a kind of device that may only have had bad luck is passed over.
constexpr int kMostInVain = 2;
/// Tries of a model on devices that are too little, before it has failed.
constexpr size_t kMostSets = 8;

}  // namespace

/// Equal ones, equal speeds; of another version they are measured anew.
std::string workload_of(const JobSpec& job) {
  if (job.is_program()) return "";
  return profile_job_key(job) + "-" + std::to_string(largest_profiled_micro_batch(job)) + "-" +
         code_version();
}

void Coordinator::know_speeds(const std::string& workload) {
  if (workload.empty()) return;
  const auto [known, is_new] = speeds_.try_emplace(workload);
  if (!is_new) return;
  const auto stored = list_speeds(around_.kept, workload);
  if (!stored) return;  // then they are measured once more
  for (const StoredSpeed& speed : *stored) known->second[speed.traits] = speed.samples_per_second;
}

std::vector<StoredSpeed> Coordinator::speeds_in(const Job& job, const AttemptOver& over) const {
  std::vector<StoredSpeed> found;
  for (const auto& [device, speed] : over.speeds)
    if (const auto pool = devices_.pool_of(device))
      found.push_back({.workload = job.workload,
                       .traits = devices_.traits(*pool),
                       .type = devices_.type(*pool),
                       .samples_per_second = speed,
                       .job = job.id,
                       .name = job.spec->name,
                       .measured = around_.wall_time()});
  return found;
}

void Coordinator::learn(const Job& job, const AttemptOver& over) {
  if (over.speeds.empty()) return;
  Speeds& known = speeds_[job.workload];
  for (const StoredSpeed& speed : speeds_in(job, over))
    known[speed.traits] = speed.samples_per_second;
  for (auto& [id, other] : jobs_)
    if (other.workload == job.workload) find_demand(other);
}

std::optional<double> Coordinator::speed_of(const Job& job, size_t pool) const {
  const auto known = speeds_.find(job.workload);
  if (known == speeds_.end()) return std::nullopt;
  const auto speed = known->second.find(devices_.traits(pool));
  return speed == known->second.end() ? std::nullopt : std::optional(speed->second);
}

/// All that it admits; once one of them is known, those of which a device is free: it does not wait
/// for others.
std::vector<size_t> Coordinator::unmeasured(const Job& job, const PoolCounts& free) const {
  std::vector<size_t> pools;
  if (job.workload.empty()) return pools;
  bool any_known = false;
  for (size_t pool = 0; pool < free.size(); ++pool)
    any_known |= admits(job, pool) && speed_of(job, pool);
  for (size_t pool = 0; pool < free.size(); ++pool)
    if (admits(job, pool) && !speed_of(job, pool) && (!any_known || free[pool] > 0))
      pools.push_back(pool);
  if (!job.measured_apart || pools.empty()) return pools;
  const auto is_free = [&](size_t pool) { return free[pool] > 0; };
  const auto first = std::find_if(pools.begin(), pools.end(), is_free);
  return {first == pools.end() ? pools.front() : *first};
}

bool Coordinator::admits(const Job& job, size_t pool) {
  return std::any_of(job.demand.any_of.begin(), job.demand.any_of.end(),
                     [&](const Alternative& each) { return each.limit[pool] > 0; });
}

Unfit Coordinator::unfit_for(const Job& job) const {
  Unfit unfit = job.unfit;
  for (size_t pool = 0; pool < devices_.pool_count(); ++pool)
    if (speed_of(job, pool).value_or(1) <= 0) unfit.pools.push_back(pool);
  return unfit;
}

void Coordinator::forget_unfit(Job& job) const {
  job.unfit = {};
  job.measured_apart = false;
  find_demand(job);
}

void Coordinator::judge_devices(const Job& job, const AttemptOver& over) {
  const bool failed = over.outcome == AttemptOutcome::kFailed && !over.blameless;
  // Of several nobody knows which it was.
  if (over.outcome == AttemptOutcome::kDone || (failed && job.devices.size() == 1))
    devices_.judge(job.devices, !failed);
}

/// On which the job before has failed as well: one try on another tells which it was.
bool Coordinator::may_be_its_device(const Job& job, const AttemptOver& over) const {
  const RetrySpec& retry = job.spec->retry;
  return over.hopeless && !over.elsewhere && job.devices.size() == 1 && job.unfit.devices.empty() &&
         devices_.failures_of(job.devices.front()) > 0 && retry.exclude_failed_devices &&
         retry.max_restarts > 0;
}

/// Memory is where devices differ most, and only a plan knows what is needed of it.
void Coordinator::look_elsewhere(Job& job, AttemptOver* over) {
  const JobStatus& status = job.fsm.status();
  const bool suspects = !status.measuring && may_be_its_device(job, *over);
  const bool asks = over->elsewhere || status.measuring || suspects;
  over->elsewhere = false;
  if (!asks || over->outcome != AttemptOutcome::kFailed || over->blameless ||
      over->epoch != status.epoch || status.stop != StopWhy::kNone)
    return;
  const PoolCounts held = devices_.held_by(job.id);
  Unfit unfit = job.unfit;
  if (suspects) {
    unfit.devices = job.devices;
  } else if (!status.measuring) {
    if (unfit.sets.size() == kMostSets) return;
    unfit.sets.push_back(held);
  } else {
    std::vector<size_t> pools;
    for (size_t pool = 0; pool < held.size(); ++pool)
      if (held[pool] > 0) pools.push_back(pool);
    if (pools.size() > 1) {
      job.measured_apart = true;
      over->elsewhere = over->hopeless;
      return;
    }
    // What may pass is waited for, but not until the job has failed.
    if (!over->hopeless && status.in_vain < kMostInVain) return;
    unfit.pools.insert(unfit.pools.end(), pools.begin(), pools.end());
  }
  std::swap(job.unfit, unfit);
  over->elsewhere = devices_.could_ever(*job.spec, unfit_for(job)).has_value();
  if (!over->elsewhere) std::swap(job.unfit, unfit);
}

/// In steps a second, and steps.
void Coordinator::see_speeds(const Job& job, JobView* seen) const {
  seen->speeds = SpeedTable(devices_.pool_count());
  for (size_t pool = 0; pool < devices_.pool_count(); ++pool) {
    const double rate = job.workload.empty()
                            ? kProgramRate
                            : speed_of(job, pool).value_or(0) / job.spec->train.global_batch;
    // What it has it keeps, also where another version measured it.
    const bool held = seen->runs() && seen->held[pool] > 0;
    if (rate > 0 || held) seen->speeds.add(pool, 1, rate > 0 ? rate : kProgramRate);
  }
  const bool trains = !job.devices.empty() && !job.fsm.status().measuring;
  const double ran = trains ? seconds_of(now() - job.begun) : 0;
  if (job.longest > Nanos(0))
    seen->longest = std::max(0.0, seconds_of(job.longest - job.served) - ran);
  if (job.workload.empty()) return;
  const auto left = static_cast<double>(job.spec->train.steps - job.saved_step);
  const double done = seen->runs() ? seen->speeds.rate(seen->held) * ran : 0;
  seen->work_left = std::max(1.0, left - done);
}

/// One device of each of these pools would do, and the more the sooner.
void Coordinator::see_measuring(const std::vector<size_t>& pools, JobView* seen) const {
  seen->measures = true;
  seen->work_left = kMeasuringSeconds;
  seen->speeds = SpeedTable(devices_.pool_count());
  Alternative one{1, static_cast<int>(pools.size()), PoolCounts(devices_.pool_count(), 0), true};
  for (const size_t pool : pools) {
    one.limit[pool] = 1;
    seen->speeds.add(pool, 1, 1);
  }
  seen->any_of = {std::move(one)};
}

double Coordinator::had_by(const std::string& owner) const {
  const auto usage = had_.find(owner);
  return usage == had_.end() ? 0 : worth_after(usage->second.worth, now() - usage->second.at);
}

void Coordinator::add_usage_of(const Job& job) {
  had_[job.owner] = {had_by(job.owner) + worth_seconds(job), now()};
}

Result<Unit> Coordinator::recover_usage() {
  had_.clear();
  MOTLEY_TRY(const std::vector<StoredUsage> stored, list_usage(around_.kept));
  for (const StoredUsage& usage : stored)
    had_[usage.owner] = {worth_after(usage.worth, Nanos(around_.wall_time() - usage.at)), now()};
  return Unit{};
}

/// A device that is half as fast for the job as its fastest counts half (fair share in effective
/// throughput); what nobody has measured counts whole.
double Coordinator::worth_seconds(const Job& job) const {
  if (job.devices.empty()) return 0;
  const PoolCounts held = devices_.held_by(job.id);
  double fastest = 0;
  for (size_t pool = 0; pool < devices_.pool_count(); ++pool)
    fastest = std::max(fastest, speed_of(job, pool).value_or(0));
  double worth = 0;
  for (size_t pool = 0; pool < held.size(); ++pool) {
    const auto speed = speed_of(job, pool);
    worth += held[pool] * (speed && fastest > 0 ? *speed / fastest : 1);
  }
  return worth * seconds_of(now() - job.begun);
}

}  // namespace motley
