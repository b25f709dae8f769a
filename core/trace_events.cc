#include "core/trace_events.h"

#include <array>
#include <cinttypes>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "core/holdings.h"

namespace motley {
namespace {

std::string trace_metadata(const char* name, Rank rank, const nlohmann::json& arguments) {
  return nlohmann::json{
      {"name", name}, {"ph", "M"}, {"pid", rank.value()}, {"tid", 0}, {"args", arguments}}
      .dump();
}

/// Chrome's unit: microseconds, here to the nanosecond.
std::string microseconds(Nanos time) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%" PRId64 ".%03d", time.value() / 1000,
                static_cast<int>(time.value() % 1000));
  return text.data();
}

}  // namespace

std::string trace_line(const TraceLine& event, Rank rank) {
  std::string name = (event.waiting ? "wait for " : "") + std::string(event.name);
  std::string arguments = R"("step":)" + std::to_string(event.step);
  if (event.is_step) name += " " + std::to_string(event.step);
  if (event.micro_batch >= 0) {
    name += " " + std::to_string(event.micro_batch);
    arguments += R"(,"micro_batch":)" + std::to_string(event.micro_batch) + R"(,"stage":)" +
                 std::to_string(event.stage);
  }
  const std::string category(event.waiting ? "wait" : event.category);
  return R"({"name":")" + name + R"(","cat":")" + category + R"(","ph":"X","ts":)" +
         microseconds(event.begin) + R"(,"dur":)" + microseconds(event.end - event.begin) +
         R"(,"pid":)" + std::to_string(rank.value()) + R"(,"tid":0,"args":{)" + arguments + "}}";
}

std::string trace_names(const Plan& plan, Rank rank, const std::string& note) {
  const Role role = role_of(plan, rank);
  const RankPlacement& place = plan.ranks[static_cast<size_t>(rank.value())];
  const std::string title = "rank " + std::to_string(rank.value()) + " on " + place.device + " (" +
                            place.type + ")" + note;
  std::string part =
      "replica " + std::to_string(role.replica) + ", stage " + std::to_string(role.stage);
  if (stage_of(plan, role).ranks.size() > 1) part += ", part " + std::to_string(role.member);
  const std::string between(kBetweenTraceLines);
  return trace_metadata("process_name", rank, {{"name", title}}) + between +
         trace_metadata("process_sort_index", rank, {{"sort_index", rank.value()}}) + between +
         trace_metadata("thread_name", rank, {{"name", part}});
}

std::string trace_label(Rank rank, const std::string& label) {
  return trace_metadata("process_labels", rank, {{"labels", label}});
}

}  // namespace motley
