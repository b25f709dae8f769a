#include "worker/train/trace.h"

#include <algorithm>

#include "core/holdings.h"
#include "core/trace_events.h"

namespace motley {
namespace {

struct KindWords {
  const char* name;
  const char* category;
  bool of_micro_batch;
};

/// By TraceKind.
constexpr KindWords kKinds[] = {
    {"step", "step", false},
    {"forward", "compute", true},
    {"backward", "compute", true},
    {"evaluate", "compute", true},
    {"update", "compute", false},
    {"receive", "communication", true},
    {"send", "communication", true},
    {"group sum", "communication", true},
    {"agreement", "communication", false},
    {"reduce", "communication", false},
    {"distribute", "communication", false},
    {"average", "communication", false},
};

std::string line_of(const Trace::Event& event, Rank rank, int stage) {
  const KindWords& words = kKinds[static_cast<size_t>(event.kind)];
  return trace_line({.name = words.name,
                     .category = words.category,
                     .waiting = event.waiting,
                     .micro_batch = words.of_micro_batch ? event.micro_batch : -1,
                     .stage = stage,
                     .step = event.step,
                     .is_step = event.kind == TraceKind::kStep,
                     .begin = event.begin,
                     .end = event.end},
                    rank);
}

}  // namespace

void Trace::begin(int64_t step, double now) {
  origin_ = step_begin_ = now;
  step_ = step;
}

void Trace::end_step(double now) {
  step_begin_ = add(TraceKind::kStep, -1, step_begin_, now);
  ++step_;
}

double Trace::add(TraceKind kind, int micro_batch, double begin, double end, bool waiting) {
  const Nanos from = nanos_of_seconds(begin - origin_);
  const Event event{.kind = kind,
                    .waiting = waiting,
                    .micro_batch = micro_batch,
                    .step = step_,
                    .begin = from,
                    .end = std::max(from, nanos_of_seconds(end - origin_))};
  if (events_.size() < most_)
    events_.push_back(event);
  else
    events_[static_cast<size_t>(added_) % most_] = event;
  ++added_;
  return std::max(begin, end);
}

std::vector<Trace::Event> Trace::events() const {
  std::vector<Event> ordered = events_;
  if (static_cast<size_t>(added_) > most_)
    std::rotate(ordered.begin(), ordered.begin() + added_ % static_cast<int64_t>(most_),
                ordered.end());
  return ordered;
}

std::string Trace::to_json(const Plan& plan, Rank rank) const {
  const int stage = role_of(plan, rank).stage;
  const std::string between(kBetweenTraceLines);
  std::string text = std::string(kTraceBegin) + trace_names(plan, rank);
  if (const int64_t lost = added_ - static_cast<int64_t>(events_.size()); lost > 0)
    text += between + trace_label(rank, "without the first " + std::to_string(lost) + " events");
  for (const Event& event : events()) text += between + line_of(event, rank, stage);
  return text + std::string(kTraceEnd);
}

}  // namespace motley
