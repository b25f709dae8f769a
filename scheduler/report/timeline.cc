#include "scheduler/report/timeline.h"

#include <nlohmann/json.hpp>

#include "core/holdings.h"
#include "core/trace_events.h"
#include "core/units.h"
#include "scheduler/report/plan_table.h"
#include "scheduler/report/table.h"

namespace motley {
namespace {

struct SpanWords {
  const char* name;
  const char* category;
};

/// By SpanKind, as real runs call them.
constexpr SpanWords kSpanWords[] = {
    {"update", "compute"},        {"forward", "compute"},         {"backward", "compute"},
    {"receive", "communication"}, {"group sum", "communication"}, {"reduce", "communication"},
};

/// The part of the step that a rank is in `which`.
double part_in(const DrawnStep& step, size_t rank, SpanClass which) {
  const double whole = seconds_of(step.timeline.step);
  return whole > 0 ? seconds_of(step.timeline.ranks[rank].time_in(which)) / whole : 0;
}

std::string evidence_of_rank(const DrawnStep& step, size_t rank) {
  const DeviceProfile* device = step.profile.find(step.plan.ranks[rank].device);
  return device != nullptr ? name_of(device->evidence) : "-";
}

std::string place_in_plan(const Plan& plan, Rank rank) {
  const Role role = role_of(plan, rank);
  return std::to_string(role.replica) + "." + std::to_string(role.stage);
}

}  // namespace

std::string timeline_table(const DrawnStep& step) {
  const Plan& plan = step.plan;
  TextTable table({{"device", Align::kLeft},
                   {"type", Align::kLeft},
                   {"stage", Align::kRight},
                   {"busy", Align::kRight},
                   {"wait", Align::kRight},
                   {"communicate", Align::kRight},
                   {"memory used / limit", Align::kRight},
                   {"figures", Align::kLeft}});
  for (size_t rank = 0; rank < plan.ranks.size(); ++rank) {
    const RankPrediction& predicted = plan.prediction.ranks[rank];
    table.add_row({plan.ranks[rank].device, plan.ranks[rank].type,
                   place_in_plan(plan, predicted.rank),
                   format_percent(part_in(step, rank, SpanClass::kBusy)),
                   format_percent(part_in(step, rank, SpanClass::kWaiting)),
                   format_percent(part_in(step, rank, SpanClass::kCommunicating)),
                   format_bytes(predicted.memory) + " / " + format_bytes(predicted.memory_limit),
                   evidence_of_rank(step, rank)});
  }
  return std::string("One step (") + name_of(weakest_evidence(step.profile, plan)) +
         "): " + format_duration(seconds_of(step.timeline.step)) + ", " +
         format_fixed(plan.prediction.samples_per_second, 1) + " samples/s\n" + table.to_string();
}

std::string timeline_trace(const DrawnStep& step) {
  const std::string note = std::string(", ") + name_of(weakest_evidence(step.profile, step.plan));
  const std::string between(kBetweenTraceLines);
  std::string text(kTraceBegin);
  for (const RankTimeline& line : step.timeline.ranks) {
    if (line.rank.value() > 0) text += between;
    text += trace_names(step.plan, line.rank, note) + between +
            trace_line({.name = "step",
                        .category = "step",
                        .step = 1,
                        .is_step = true,
                        .end = step.timeline.step},
                       line.rank);
    const int stage = role_of(step.plan, line.rank).stage;
    for (const TimelineSpan& span : line.spans) {
      const SpanWords& words = kSpanWords[static_cast<size_t>(span.kind)];
      text += between + trace_line({.name = words.name,
                                    .category = words.category,
                                    .waiting = span.waiting,
                                    .micro_batch = span.micro_batch,
                                    .stage = stage,
                                    .step = 1,
                                    .begin = span.begin,
                                    .end = span.end},
                                   line.rank);
    }
  }
  return text + std::string(kTraceEnd);
}

nlohmann::json timeline_json(const DrawnStep& step) {
  nlohmann::json ranks = nlohmann::json::array();
  for (size_t rank = 0; rank < step.plan.ranks.size(); ++rank) {
    const RankPlacement& place = step.plan.ranks[rank];
    const RankPrediction& predicted = step.plan.prediction.ranks[rank];
    const RankTimeline& line = step.timeline.ranks[rank];
    const Role role = role_of(step.plan, predicted.rank);
    const auto seconds_in = [&](SpanClass which) { return seconds_of(line.time_in(which)); };
    ranks.push_back({{"rank", predicted.rank.value()},
                     {"device", place.device},
                     {"type", place.type},
                     {"replica", role.replica},
                     {"stage", role.stage},
                     {"evidence", evidence_of_rank(step, rank)},
                     {"busy_seconds", seconds_in(SpanClass::kBusy)},
                     {"wait_seconds", seconds_in(SpanClass::kWaiting)},
                     {"communicate_seconds", seconds_in(SpanClass::kCommunicating)},
                     {"memory", predicted.memory.value()},
                     {"memory_limit", predicted.memory_limit.value()}});
  }
  return {{"evidence", name_of(weakest_evidence(step.profile, step.plan))},
          {"step_seconds", seconds_of(step.timeline.step)},
          {"samples_per_second", step.plan.prediction.samples_per_second},
          {"ranks", std::move(ranks)}};
}

}  // namespace motley
