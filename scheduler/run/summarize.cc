#include "scheduler/run/summarize.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "core/file_system.h"
#include "core/json_file.h"
#include "scheduler/report/plan_table.h"
#include "scheduler/run/metrics_log.h"
#include "scheduler/run/step_statistics.h"

namespace motley {
namespace {

std::string plan_of_attempt(const RunDirectory& run, Epoch epoch) {
  const auto plan = read_json_file(real_file_system(), run.attempt_directory(epoch) + "/plan.json",
                                   ErrorCode::kCorrupt);
  return plan && plan->is_object() ? plan->value("id", "") : "";
}

/// The median over every attempt with this plan, each without its warm-up: a run that was
/// interrupted often still says how long its steps took.
std::optional<double> median_of_plan(const RunDirectory& run, const std::vector<MetricsRow>& rows,
                                     const std::string& plan_id) {
  std::map<int, bool> same_plan;
  std::map<int, int> seen;
  std::vector<double> seconds;
  for (const MetricsRow& row : rows) {
    const int epoch = row.epoch.value();
    if (same_plan.count(epoch) == 0) same_plan[epoch] = plan_of_attempt(run, row.epoch) == plan_id;
    const bool warm = ++seen[epoch] > kWarmUpSteps;
    if (same_plan[epoch] && warm && !row.special) seconds.push_back(row.step_seconds);
  }
  return median(std::move(seconds));
}

const char* state_of(const TrainingResult& training) {
  if (training.last && training.last->finished()) return "finished";
  return training.last && training.last->stopped() ? "stopped" : "failed";
}

}  // namespace

RunSummary summarize(const RunDirectory& run, const JobSpec& job, const TrainingResult& training,
                     std::optional<double> equal_split) {
  const Prediction& prediction = training.plan.prediction;
  const std::vector<MetricsRow> rows = read_metrics(run.file("metrics.jsonl"));
  RunSummary summary;
  summary.run_dir = run.path();
  summary.state = state_of(training);
  if (!rows.empty()) {
    summary.steps = rows.back().step;
    summary.first_loss = rows.front().loss;
    summary.final_loss = rows.back().loss;
  }
  for (const MetricsRow& row : rows)
    if (row.eval_loss) summary.eval_loss = row.eval_loss;
  if (training.eval_loss) summary.eval_loss = training.eval_loss;
  summary.solo_sum_samples_per_second = prediction.solo_sum_samples_per_second;
  summary.integer_bound_efficiency = prediction.integer_bound_efficiency;
  summary.equal_split_samples_per_second = equal_split;
  summary.predicted_step_seconds = prediction.step_seconds;
  summary.actual_step_seconds = median_of_plan(run, rows, training.plan.id).value_or(0);
  if (summary.actual_step_seconds > 0)
    summary.samples_per_second = job.train.global_batch / summary.actual_step_seconds;
  if (summary.solo_sum_samples_per_second > 0)
    summary.efficiency = summary.samples_per_second / summary.solo_sum_samples_per_second;
  summary.restarts = training.restarts;
  summary.plan_id = training.plan.id;
  if (const auto profile = run.profile()) {
    summary.kind = weakest_evidence(*profile, training.plan);
  }
  if (training.last) {
    summary.weights_xxh3 = training.last->weights_xxh3;
    summary.ranks = training.last->statistics.ranks();
  }
  return summary;
}

}  // namespace motley
