#include "scheduler/report/report_text.h"

#include <cmath>

#include "scheduler/report/plan_table.h"
#include "scheduler/report/straggler.h"
#include "scheduler/report/table.h"

namespace motley {
namespace {

/// How much more (or less) `actual` is than `predicted`, with a sign.
std::string difference(double predicted, double actual) {
  const double off = (actual / predicted - 1) * 100;
  return (off < 0 ? "" : "+") + format_fixed(off, 1) + " %";
}

std::string loss_of(double loss) {
  return std::isfinite(loss) ? format_fixed(loss, 4) : "not finite";
}

void add_loss(const RunSummary& summary, TextTable* table) {
  if (summary.steps > 0) {
    table->add_row({"loss", loss_of(summary.first_loss) + " -> " + loss_of(summary.final_loss) +
                                " after " + std::to_string(summary.steps) +
                                (summary.steps == 1 ? " step" : " steps")});
  }
  if (summary.eval_loss) table->add_row({"held-out loss", loss_of(*summary.eval_loss)});
}

std::string duration_of(std::optional<double> seconds) {
  return seconds ? format_duration(*seconds) : "-";
}

void add_step_time(const RunSummary& summary, TextTable* table) {
  const auto predicted = summary.predicted_step_seconds, actual = summary.actual_step_seconds;
  if (!predicted && !actual) return;
  std::string text = "predicted " + duration_of(predicted) + ", actual " + duration_of(actual);
  if (predicted && actual) text += " (" + difference(*predicted, *actual) + ")";
  table->add_row({"step time", text});
}

void add_speed(const RunSummary& summary, TextTable* table) {
  add_step_time(summary, table);
  const auto speed = summary.samples_per_second;
  if (!speed) return;
  table->add_row({"speed", format_fixed(*speed, 1) + " samples/s"});
  if (const auto solo_sum = summary.solo_sum_samples_per_second) {
    const std::string share = summary.efficiency ? format_percent(*summary.efficiency) : "-";
    table->add_row({"efficiency", share + " of the sum of solo speeds, " +
                                      format_fixed(*solo_sum, 1) + " samples/s"});
    if (summary.integer_bound_efficiency)
      table->add_row(
          {"", "whole grains allow " + format_percent(*summary.integer_bound_efficiency)});
  }
}

void add_equal_split(const RunSummary& summary, TextTable* table) {
  if (!summary.equal_split) return;
  const EqualSplit& equal = *summary.equal_split;
  if (!equal.not_measured.empty())
    return table->add_row({"equal split", "not measured: " + equal.not_measured});
  if (!summary.samples_per_second || equal.samples_per_second <= 0) return;
  const double times = *summary.samples_per_second / equal.samples_per_second;
  table->add_row({"equal split", format_fixed(equal.samples_per_second, 1) +
                                     " samples/s: this plan is " + format_fixed(times, 2) +
                                     " times as fast"});
  table->add_row({"", equal.form});
}

void add_overruns(const RunSummary& summary, TextTable* table) {
  const SectionCount& paced = summary.paced;
  if (paced.overruns == 0 || paced.sections == 0) return;
  if (!paced.trustworthy()) return table->add_row({"overruns", untrustworthy_text(paced)});
  const double share = static_cast<double>(paced.overruns) / static_cast<double>(paced.sections);
  table->add_row({"overruns", format_percent(share) +
                                  " of the paced sections took longer than they stand for"});
}

/// Of the ranks' mean steps.
void add_straggler(const RunSummary& summary, const Plan& plan, TextTable* table) {
  std::vector<RankTime> times;
  for (const RankActual& rank : summary.ranks) {
    const auto time =
        rank_time(rank.compute_seconds, rank.update_seconds, rank.wait_seconds, rank.input_seconds);
    if (!time) return;
    times.push_back(*time);
  }
  const auto straggler = find_straggler(times);
  if (!straggler || straggler->rank >= plan.ranks.size()) return;
  const RankPlacement& placed = plan.ranks[straggler->rank];
  table->add_row({"straggler", straggler_text(*straggler, placed.type, placed.host)});
}

std::string set_aside_text(const SetAside& checkpoint) {
  const std::string why = checkpoint.why.empty() ? "" : " (" + checkpoint.why + ")";
  return "checkpoint of step " + std::to_string(checkpoint.step) + ", damaged" + why + ": " +
         checkpoint.directory;
}

/// Seconds a step, next to what was predicted of them.
std::string device_table(const RunSummary& summary, const Plan& plan) {
  TextTable table({{"device", Align::kLeft},
                   {"type", Align::kLeft},
                   {"compute", Align::kRight},
                   {"actual", Align::kRight},
                   {"wait", Align::kRight},
                   {"actual", Align::kRight},
                   {"of step", Align::kRight},
                   {"solo/s", Align::kRight}});
  for (const RankActual& actual : summary.ranks) {
    const auto rank = static_cast<size_t>(actual.rank);
    std::vector<std::string> cells{
        actual.device, rank < plan.ranks.size() ? plan.ranks[rank].type : "-",
        "-",           duration_of(actual.compute_seconds),
        "-",           duration_of(actual.wait_seconds),
        "-",           "-"};
    if (rank < plan.prediction.ranks.size()) {
      const RankPrediction& predicted = plan.prediction.ranks[rank];
      cells[2] = format_duration(predicted.compute_seconds);
      cells[4] = format_duration(waiting_seconds(plan.prediction, predicted));
      if (predicted.solo_samples_per_second > 0)
        cells[7] = format_fixed(predicted.solo_samples_per_second, 1);
    }
    if (summary.actual_step_seconds && actual.wait_seconds) {
      cells[6] = format_percent(*actual.wait_seconds / *summary.actual_step_seconds);
    }
    table.add_row(std::move(cells));
  }
  return "Each device: predicted and actual compute and wait of a step, samples/s alone\n" +
         table.to_string();
}

}  // namespace

std::string out_of_memory_text(const OutOfMemory& what) {
  const std::string begin = what.device + (what.type.empty() ? "" : " (" + what.type + ")") +
                            " ran out of memory at micro-batch " +
                            std::to_string(what.micro_batch) + ": going on ";
  return begin + (what.then > 0 ? "with " + std::to_string(what.then) : "without it");
}

std::string report_text(const RunSummary& summary, const Plan& plan) {
  TextTable facts({{"", Align::kLeft}, {"", Align::kLeft}});
  add_loss(summary, &facts);
  add_speed(summary, &facts);
  add_equal_split(summary, &facts);
  add_overruns(summary, &facts);
  add_straggler(summary, plan, &facts);
  if (const int restarts = summary.restarts.value_or(0); restarts > 0)
    facts.add_row({"restarts", std::to_string(restarts)});
  for (const OutOfMemory& each : summary.out_of_memory)
    facts.add_row({"memory", out_of_memory_text(each)});
  for (const SetAside& each : summary.set_aside) facts.add_row({"set aside", set_aside_text(each)});
  if (!summary.weights_xxh3.empty()) facts.add_row({"weights", summary.weights_xxh3});
  std::string text = facts.to_string();
  text.erase(0, text.find('\n') + 1);  // the columns need no titles
  return std::string("Report (") + name_of(summary.kind) + "): " + summary.state + "\n" + text +
         (summary.ranks.empty() ? "" : device_table(summary, plan)) +
         "run directory: " + summary.run_dir + "\n";
}

}  // namespace motley
