#include "scheduler/service/job_json.h"

#include <nlohmann/json.hpp>

namespace motley {
namespace {

using nlohmann::json;

json array_json(const ArrayPlace& array) {
  if (array.first == 0) return nullptr;
  return {{"first", array.first}, {"index", array.index}, {"size", array.size}};
}

/// Seconds since 1970, of people's clocks; null: not yet.
json time_json(int64_t nanoseconds) {
  return nanoseconds == 0 ? json(nullptr) : json(static_cast<double>(nanoseconds) * 1e-9);
}

}  // namespace

json to_json(const StoredJob& job) {
  const JobStatus& status = job.status;
  return {{"id", job.id},
          {"name", job.name},
          {"owner", job.owner},
          {"queue", job.queue},
          {"priority", job.priority},
          {"state", name_of(status.state)},
          {"attempt", status.epoch.value()},
          {"restarts", status.restarts},
          {"held", status.held},
          {"cause", status.cause},
          {"array", array_json(job.array)},
          {"submitted", time_json(job.submitted)},
          {"finished", time_json(job.finished)}};
}

json to_json(const StoredAttempt& attempt) {
  return {{"attempt", attempt.epoch.value()},
          {"devices", attempt.devices},
          {"begun", time_json(attempt.begun)},
          {"ended", time_json(attempt.ended)},
          {"seconds", seconds_of(attempt.took)},
          {"outcome", attempt.outcome},
          {"cause", attempt.cause}};
}

json to_json(const StoredEvent& event) {
  json job = nullptr, node = nullptr;
  if (event.job != 0) job = event.job;
  if (!event.node.empty()) node = event.node;
  return {{"id", event.id},
          {"time", time_json(event.time)},
          {"job", job},
          {"node", node},
          {"text", event.text}};
}

json to_json(const StoredToken& token) {
  return {{"id", token.id},
          {"user", token.user},
          {"role", token.role},
          {"label", token.label},
          {"node", token.node.empty() ? json(nullptr) : json(token.node)},
          {"created", time_json(token.created)},
          {"expires", time_json(token.expires)},
          {"revoked", time_json(token.revoked)}};
}

json to_json(const StoredSpeed& speed) {
  return {{"job", speed.job},
          {"name", speed.name},
          {"type", speed.type},
          {"samples_per_second", speed.samples_per_second},
          {"measured", time_json(speed.measured)}};
}

json to_json(const WhyJob& why) {
  json remedy = nullptr, position = nullptr, start = nullptr;
  if (!why.remedy.empty()) remedy = why.remedy;
  if (why.position > 0) position = why.position;
  if (why.starts_in) start = *why.starts_in;
  return {{"reasons", why.reasons},
          {"remedy", remedy},
          {"position", position},
          {"estimated_start_seconds", start}};
}

std::optional<JobState> state_of_name(std::string_view name) {
  for (int i = 0; i <= static_cast<int>(JobState::kCancelled); ++i)
    if (name == name_of(static_cast<JobState>(i))) return static_cast<JobState>(i);
  return std::nullopt;
}

}  // namespace motley
