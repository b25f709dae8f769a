#include "scheduler/report/report_text.h"

#include <cmath>

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

void add_speed(const RunSummary& summary, TextTable* table) {
  if (summary.actual_step_seconds <= 0) return;
  std::string step = "actual " + format_duration(summary.actual_step_seconds);
  if (summary.predicted_step_seconds > 0) {
    step = "predicted " + format_duration(summary.predicted_step_seconds) + ", " + step + " (" +
           difference(summary.predicted_step_seconds, summary.actual_step_seconds) + ")";
  }
  table->add_row({"step time", step});
  table->add_row({"speed", format_fixed(summary.samples_per_second, 1) + " samples/s"});
  if (summary.solo_sum_samples_per_second > 0) {
    table->add_row({"efficiency", format_percent(summary.efficiency) +
                                      " of the sum of solo speeds, " +
                                      format_fixed(summary.solo_sum_samples_per_second, 1) +
                                      " samples/s; whole grains allow " +
                                      format_percent(summary.integer_bound_efficiency)});
  }
  if (const auto equal = summary.equal_split_samples_per_second; equal && *equal > 0) {
    table->add_row({"equal split", format_fixed(*equal, 1) + " samples/s: this plan is " +
                                       format_fixed(summary.samples_per_second / *equal, 2) +
                                       " times as fast"});
  }
}

void add_overruns(const RunSummary& summary, TextTable* table) {
  double overruns = 0, sections = 0;
  for (const RankActual& rank : summary.ranks) {
    overruns += static_cast<double>(rank.overruns);
    sections += static_cast<double>(rank.sections);
  }
  if (overruns == 0 || sections == 0) return;
  table->add_row({"overruns", format_percent(overruns / sections) +
                                  " of the paced sections took longer than what they stand for"});
}

/// Seconds a step, next to what was predicted of them.
std::string device_table(const RunSummary& summary, const Plan& plan) {
  TextTable table({{"device", Align::kLeft},
                   {"type", Align::kLeft},
                   {"compute: predicted", Align::kRight},
                   {"actual", Align::kRight},
                   {"wait: predicted", Align::kRight},
                   {"actual", Align::kRight},
                   {"of the step", Align::kRight},
                   {"solo samples/s", Align::kRight}});
  for (const RankActual& actual : summary.ranks) {
    const auto rank = static_cast<size_t>(actual.rank);
    if (rank >= plan.ranks.size()) continue;
    std::vector<std::string> cells{plan.ranks[rank].device,
                                   plan.ranks[rank].type,
                                   "-",
                                   format_duration(actual.compute_seconds),
                                   "-",
                                   format_duration(actual.wait_seconds),
                                   "-",
                                   "-"};
    if (rank < plan.prediction.ranks.size()) {
      const RankPrediction& predicted = plan.prediction.ranks[rank];
      cells[2] = format_duration(predicted.compute_seconds);
      // A rank also waits while the gradients travel.
      cells[4] = format_duration(predicted.wait_seconds + plan.prediction.communication_seconds);
      cells[7] = format_fixed(predicted.solo_samples_per_second, 1);
    }
    if (summary.actual_step_seconds > 0) {
      cells[6] = format_percent(actual.wait_seconds / summary.actual_step_seconds);
    }
    table.add_row(std::move(cells));
  }
  return table.to_string();
}

}  // namespace

std::string report_text(const RunSummary& summary, const Plan& plan) {
  TextTable facts({{"", Align::kLeft}, {"", Align::kLeft}});
  add_loss(summary, &facts);
  add_speed(summary, &facts);
  add_overruns(summary, &facts);
  if (summary.restarts > 0) facts.add_row({"restarts", std::to_string(summary.restarts)});
  if (!summary.weights_xxh3.empty()) facts.add_row({"weights", summary.weights_xxh3});
  std::string text = facts.to_string();
  text.erase(0, text.find('\n') + 1);  // the columns need no titles
  return std::string("Report (") + name_of(summary.kind) + "): " + summary.state + "\n" + text +
         (summary.ranks.empty() ? "" : device_table(summary, plan)) +
         "run directory: " + summary.run_dir + "\n";
}

}  // namespace motley
