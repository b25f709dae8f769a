#include "scheduler/run/summarize.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "core/attempt_result.h"
#include "core/file_system.h"
#include "core/json_file.h"
#include "core/spec/device_identity.h"
#include "core/spec/json.h"
#include "core/step_statistics.h"
#include "scheduler/report/plan_table.h"
#include "scheduler/run/equal_split.h"
#include "scheduler/run/metrics_log.h"
#include "scheduler/run/run_output.h"

namespace motley {
namespace {

std::string plan_of_attempt(const RunDirectory& run, Epoch epoch) {
  const auto plan = read_json_file(real_file_system(), run.attempt_directory(epoch) + "/plan.json",
                                   ErrorCode::kCorrupt);
  return plan && plan->is_object() ? plan->value("id", "") : "";
}

/// Over every attempt with this plan, each without its warm-up: a run that was interrupted often
/// still says how long its steps took.
std::optional<double> typical_of_plan(const RunDirectory& run, const std::vector<MetricsRow>& rows,
                                      const Plan& plan) {
  std::map<int, bool> same_plan;
  std::map<int, int> seen;
  TypicalStep typical(plan);
  for (const MetricsRow& row : rows) {
    const int epoch = row.epoch.value();
    if (same_plan.count(epoch) == 0) same_plan[epoch] = plan_of_attempt(run, row.epoch) == plan.id;
    const bool counts = ++seen[epoch] > kWarmUpSteps && !row.special && row.step_seconds > 0;
    same_plan[epoch] && counts ? typical.add(row.step_seconds) : typical.interrupt();
  }
  return typical.seconds();
}

/// Each attempt's last count that is still on record.
SectionCount paced_in(const std::vector<MetricsRow>& rows) {
  std::map<int, SectionCount> attempts;
  for (const MetricsRow& row : rows) attempts[row.epoch.value()] = row.paced;
  SectionCount sum;
  for (const auto& [epoch, paced] : attempts) {
    sum.sections += paced.sections;
    sum.overruns += paced.overruns;
  }
  return sum;
}

/// The planner leaves at 0 what it does not know.
std::optional<double> known(double predicted) {
  return predicted > 0 ? std::optional<double>(predicted) : std::nullopt;
}

void add_speed(const JobSpec& job, const Prediction& prediction, RunSummary* summary) {
  summary->solo_sum_samples_per_second = known(prediction.solo_sum_samples_per_second);
  summary->integer_bound_efficiency = known(prediction.integer_bound_efficiency);
  summary->predicted_step_seconds = known(prediction.step_seconds);
  if (!summary->actual_step_seconds) return;
  if (job.train.global_batch == 0) return;  // only the program knows
  const double speed = job.train.global_batch / *summary->actual_step_seconds;
  summary->samples_per_second = speed;
  if (summary->solo_sum_samples_per_second && summary->paced.trustworthy())
    summary->efficiency = speed / *summary->solo_sum_samples_per_second;
}

/// Of a run without a profile, by hand or of a program: what the devices of its last attempt say.
Evidence evidence_of_devices(const RunDirectory& run, const JobSpec& job) {
  const std::string path = run.attempt_directory(Epoch(run.last_epoch())) +
                           (job.is_program() ? "/program.json" : "/attempt.json");
  const auto attempt = read_json_file(real_file_system(), path, ErrorCode::kCorrupt);
  if (!attempt || !attempt->is_object() || !attempt->contains("fleet")) return Evidence::kMeasured;
  const auto fleet = fleet_from_json(attempt->at("fleet"));
  Evidence weakest = Evidence::kMeasured;
  if (fleet)
    for (const DeviceSpec& device : fleet->devices)
      weakest = std::min(weakest, evidence_of(device));  // declared weakest first
  return weakest;
}

/// What the end of the newest attempt with this plan has left, whoever saw it.
void add_last_attempt(const RunDirectory& run, RunSummary* summary) {
  for (int epoch = run.last_epoch(); epoch > 0; --epoch) {
    auto last = read_attempt_result(real_file_system(), run.attempt_directory(Epoch(epoch)));
    if (!last) continue;
    if (epoch < run.last_epoch() && plan_of_attempt(run, Epoch(epoch)) != summary->plan_id) return;
    summary->weights_xxh3 = std::move(last->weights_xxh3);
    summary->ranks = std::move(last->ranks);
    return;
  }
}

/// What the run's directory tells, whoever trained.
RunSummary recorded(const RunDirectory& run, const JobSpec& job, const Plan& plan) {
  const std::vector<MetricsRow> rows = read_metrics(run.file("metrics.jsonl"));
  RunSummary summary;
  summary.run_dir = run.path();
  if (!rows.empty()) {
    summary.steps = rows.back().step;
    summary.first_loss = rows.front().loss;
    summary.final_loss = rows.back().loss;
  }
  for (const MetricsRow& row : rows)
    if (row.eval_loss) summary.eval_loss = row.eval_loss;
  summary.paced = paced_in(rows);
  summary.actual_step_seconds = typical_of_plan(run, rows, plan);
  add_speed(job, plan.prediction, &summary);
  summary.plan_id = plan.id;
  if (const auto profile = run.profile())
    summary.kind = weakest_evidence(*profile, plan);
  else
    summary.kind = evidence_of_devices(run, job);
  add_last_attempt(run, &summary);
  summary.set_aside =
      set_aside_in(real_file_system(), run.checkpoints(job)).value_or(std::vector<SetAside>());
  return summary;
}

const char* state_of(const TrainingResult& training, const SectionCount& paced) {
  if (training.last && training.last->finished())
    return paced.trustworthy() ? "finished" : "failed";
  return training.last && training.last->stopped() ? "stopped" : "failed";
}

/// Of a run whose end this process has not seen.
const char* state_on_record(const RunDirectory& run, const JobSpec& job,
                            const RunSummary& summary) {
  if (run.in_use()) return "running";
  if (job.is_program()) return run.read("done") ? "finished" : "interrupted";
  const std::vector<CheckpointName> committed = run.committed(job);
  const bool saved = !committed.empty() && committed.front().step >= job.train.steps;
  if (summary.steps < job.train.steps || !saved) return "interrupted";
  return summary.paced.trustworthy() ? "finished" : "failed";
}

}  // namespace

RunSummary summarize(const RunDirectory& run, const JobSpec& job, const TrainingResult& training,
                     const std::optional<EqualSplit>& equal_split) {
  RunSummary summary = recorded(run, job, training.plan);
  summary.state = state_of(training, summary.paced);
  if (training.eval_loss) summary.eval_loss = training.eval_loss;
  summary.equal_split = equal_split;
  summary.restarts = training.restarts;
  summary.out_of_memory = training.out_of_memory;
  return summary;
}

RunSummary summarize_program(const RunDirectory& run, const JobSpec& job, const Plan& plan) {
  return recorded(run, job, plan);
}

Result<RunSummary> summary_of(const RunDirectory& run) {
  const std::vector<MetricsRow> rows = read_metrics(run.file("metrics.jsonl"));
  const auto reported = read_summary(run);
  if (reported && (rows.empty() || reported->steps == rows.back().step)) return reported;
  if (rows.empty())
    return fail(ErrorCode::kNotFound,
                "run " + run.title() + " has no report yet: it has not trained a step");
  MOTLEY_TRY(const JobSpec job, run.job());
  const auto plan = run.plan();
  RunSummary summary = recorded(run, job, plan ? *plan : Plan());
  summary.state = state_on_record(run, job, summary);
  summary.equal_split = remembered_equal_split(run);
  return summary;
}

bool is_over(const RunSummary& summary, const JobSpec& job) {
  const bool trained =
      summary.state == "finished" || (summary.state == "failed" && !summary.paced.trustworthy());
  return trained && summary.steps >= job.train.steps;
}

std::optional<RunSummary> summary_if_over(const RunDirectory& run, const JobSpec& job) {
  const auto summary = summary_of(run);
  if (!summary || !is_over(*summary, job)) return std::nullopt;
  return *summary;
}

}  // namespace motley
