#include "worker/train/trace.h"

#include <algorithm>
#include <array>
#include <cinttypes>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "core/holdings.h"

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

std::string metadata(const char* name, int rank, const nlohmann::json& arguments) {
  return nlohmann::json{{"name", name}, {"ph", "M"}, {"pid", rank}, {"tid", 0}, {"args", arguments}}
      .dump();
}

/// Chrome's unit: microseconds, here to the nanosecond.
std::string microseconds(Nanos time) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%" PRId64 ".%03d", time.value() / 1000,
                static_cast<int>(time.value() % 1000));
  return text.data();
}

std::string line_of(const Trace::Event& event, int rank, int stage) {
  const KindWords& words = kKinds[static_cast<size_t>(event.kind)];
  std::string name = event.waiting ? std::string("wait for ") + words.name : words.name;
  std::string arguments = R"("step":)" + std::to_string(event.step);
  if (event.kind == TraceKind::kStep) name += " " + std::to_string(event.step);
  if (words.of_micro_batch) {
    name += " " + std::to_string(event.micro_batch);
    arguments += R"(,"micro_batch":)" + std::to_string(event.micro_batch) + R"(,"stage":)" +
                 std::to_string(stage);
  }
  const char* category = event.waiting ? "wait" : words.category;
  return R"({"name":")" + name + R"(","cat":")" + category + R"(","ph":"X","ts":)" +
         microseconds(event.begin) + R"(,"dur":)" + microseconds(event.end - event.begin) +
         R"(,"pid":)" + std::to_string(rank) + R"(,"tid":0,"args":{)" + arguments + "}}";
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
  const Role role = role_of(plan, rank);
  const RankPlacement& place = plan.ranks[static_cast<size_t>(rank.value())];
  const int id = rank.value();
  const std::string title =
      "rank " + std::to_string(id) + " on " + place.device + " (" + place.type + ")";
  std::string thread =
      "replica " + std::to_string(role.replica) + ", stage " + std::to_string(role.stage);
  if (stage_of(plan, role).ranks.size() > 1) thread += ", part " + std::to_string(role.member);
  std::string text = "[\n" + metadata("process_name", id, {{"name", title}}) + ",\n" +
                     metadata("process_sort_index", id, {{"sort_index", id}}) + ",\n" +
                     metadata("thread_name", id, {{"name", thread}});
  if (const int64_t lost = added_ - static_cast<int64_t>(events_.size()); lost > 0)
    text += ",\n" + metadata("process_labels", id,
                             {{"labels", "without the first " + std::to_string(lost) + " events"}});
  for (const Event& event : events()) text += ",\n" + line_of(event, id, role.stage);
  return text + "\n]\n";
}

}  // namespace motley
