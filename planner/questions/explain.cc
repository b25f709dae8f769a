#include "planner/questions/explain.h"

#include <algorithm>
#include <cstdio>
#include <vector>

#include "core/units.h"
#include "planner/plain/runners_up.h"
#include "planner/questions/objective.h"

namespace motley {
namespace {

constexpr size_t kMostShares = 12;

struct Line {
  std::string what, verdict, why;
};

/// "24:16:8" samples in rank order.
std::string shares_of(const Plan& plan) {
  std::vector<int> samples(plan.ranks.size(), 0);
  for (size_t i = 0; i < plan.replicas.size(); ++i) {
    const auto rank = static_cast<size_t>(plan.replicas[i].stages[0].ranks[0].value());
    samples[rank] = samples_of(plan, static_cast<int>(i)).count;
  }
  std::string text;
  for (size_t rank = 0; rank < std::min(samples.size(), kMostShares); ++rank) {
    text += (rank == 0 ? "" : ":") + std::to_string(samples[rank]);
  }
  return samples.size() > kMostShares ? text + ":..." : text;
}

/// The step's parts, and who decides it.
std::string parts_of(const Plan& plan) {
  const Prediction& prediction = plan.prediction;
  std::string text = "compute " + format_seconds(prediction.compute_seconds) + " + update " +
                     format_seconds(prediction.update_seconds);
  if (const RankPrediction* slowest = prediction.slowest()) {
    text += " (" + plan.ranks[static_cast<size_t>(slowest->rank.value())].device + " decides)";
  }
  if (prediction.bubble_seconds > 0) {
    text += " + bubble " + format_seconds(prediction.bubble_seconds);
  }
  text += " + communication " + format_seconds(prediction.communication_seconds);
  if (prediction.hidden_seconds > 0)
    text += " (and " + format_seconds(prediction.hidden_seconds) + " beside computing)";
  return text;
}

std::string form_of(const Plan& plan) {
  if (!is_cut(plan)) {
    return "data parallel " + shares_of(plan) + ", grain " + std::to_string(plan.grain);
  }
  const size_t replicas = plan.replicas.size();
  return std::to_string(plan.world_size()) + " ranks in " + std::to_string(replicas) +
         (replicas == 1 ? " replica" : " replicas") + ", grain " + std::to_string(plan.grain);
}

Line chosen_line(const Plan& plan) {
  std::string why = format_seconds(plan.prediction.step_seconds) + "/step";
  for (const RejectedPlan& rejected : plan.search.rejected) {
    const double chosen = plan.prediction.step_seconds;
    if (rejected.step_seconds <= chosen || equally_quick(rejected.step_seconds, chosen)) continue;
    why += "; next best " + format_seconds(rejected.step_seconds);
    break;
  }
  return {form_of(plan), "chosen", why + "; " + parts_of(plan)};
}

std::string aligned(const std::vector<Line>& lines) {
  size_t what = 0, verdict = 0;
  for (const Line& line : lines) {
    what = std::max(what, line.what.size());
    verdict = std::max(verdict, line.verdict.size());
  }
  std::string text;
  for (const Line& line : lines) {
    text += line.what + std::string(what - line.what.size() + 2, ' ');
    text += line.verdict + std::string(verdict - line.verdict.size() + 2, ' ') + line.why + "\n";
  }
  return text;
}

std::string search_line(const SearchRecord& search) {
  char gap[32];
  const double percent = search.gap() * 100;
  std::snprintf(gap, sizeof gap, percent < 10 ? "%.2g %%" : "%.0f %%", percent);
  const std::string bound = search.cost > 0 ? "of the cost " + cost_text(search.lower_bound_cost)
                                            : format_seconds(search.lower_bound_step_seconds);
  return "searched " + search.space + "; lower bound " + bound + ", gap " + gap + ", " +
         std::to_string(search.nodes) + " nodes\n";
}

}  // namespace

std::string explain(const Plan& plan) {
  std::vector<Line> lines{chosen_line(plan)};
  for (const RejectedPlan& rejected : plan.search.rejected) {
    const std::string step =
        rejected.step_seconds > 0 ? format_seconds(rejected.step_seconds) + "/step: " : "";
    lines.push_back({rejected.what, "rejected", step + rejected.why});
  }
  for (const LeftOut& left : plan.left_out) lines.push_back({left.device, "left out", left.why});
  const bool searched = plan.search.lower_bound_step_seconds > 0;
  return aligned(lines) + (searched ? search_line(plan.search) : "");
}

}  // namespace motley
