#include "scheduler/service/event_text.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "core/spec/json.h"
#include "core/units.h"

namespace motley {
namespace {

using nlohmann::json;

std::string why_stopped(StopWhy why) {
  switch (why) {
    case StopWhy::kCancel:
      return "it is cancelled";
    case StopWhy::kHold:
      return "it is held";
    case StopWhy::kPreempt:
      return "another job goes before it";
    case StopWhy::kRequeue:
      return "it is requeued";
    case StopWhy::kTimeLimit:
      return "its longest duration has passed";
    case StopWhy::kDrain:
      return "its node is drained";
    case StopWhy::kNone:
      break;
  }
  return "asked to";
}

/// Of an attempt that nobody has asked to end.
bool ended_by_itself(JobState before) {
  return before == JobState::kProfiling || before == JobState::kLaunching ||
         before == JobState::kRunning;
}

std::string waiting_text(const JobStatus& status, Nanos now) {
  if (status.held) return "held";
  if (status.unfinished > 0)
    return "waiting for " + std::to_string(status.unfinished) +
           (status.unfinished == 1 ? " other job" : " other jobs");
  return "waiting " + format_seconds(seconds_of(status.not_before - now)) +
         " before it is tried again: " + status.cause;
}

/// Of one that somebody holds or releases; what is being stopped already still is.
std::string held_text(const JobStatus& status, Nanos now, const std::string& by) {
  if (status.held) return "held" + by_whom(by);
  return "released" + by_whom(by) +
         (status.state == JobState::kWaiting ? ", " + waiting_text(status, now) : "");
}

/// As people write it, but for what takes several lines: that is as in job.json.
std::string value_text(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  return value.is_null() ? "none" : value.dump();
}

/// What can be updated, by the name that people set it by.
json changeable_parts(const JobSpec& job) {
  const json document = to_json(job);
  const ServiceSpec& service = job.service;
  const double longest = seconds_of(service.max_duration);
  const double grace = seconds_of(service.stop_grace);
  return {{"priority", service.priority},
          {"queue", service.queue},
          {"after", service.after},
          {"labels", service.labels},
          {"max_duration", longest > 0 ? json(format_seconds(longest)) : json(nullptr)},
          {"preemptible", service.preemptible},
          {"stop_grace", grace > 0 ? json(format_seconds(grace)) : json(nullptr)},
          {"resources.devices", document["devices"]},
          {"any_of", document.value("any_of", json())},
          {"retry.max_restarts", job.retry.max_restarts}};
}

}  // namespace

std::string by_whom(const std::string& who) { return who.empty() ? "" : " by " + who; }
std::string asked_by(const std::string& who) { return who.empty() ? "" : ", asked by " + who; }

std::string update_text(const JobSpec& before, const JobSpec& after, const std::string& by) {
  const json old = changeable_parts(before), now = changeable_parts(after);
  std::string text;
  for (const auto& [name, value] : now.items())
    if (value != old[name])
      text += (text.empty() ? "updated" + by_whom(by) + ": " : ", ") + name + " " +
              value_text(old[name]) + " → " + value_text(value);
  return text;
}

std::string why_not_after(int64_t job, JobState state) {
  if (state != JobState::kFailed && state != JobState::kCancelled) return "";
  return "job " + std::to_string(job) + ", which it comes after, " +
         (state == JobState::kFailed ? "has failed" : "was cancelled");
}

std::string joined(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += (all.empty() ? "" : ", ") + text;
  return all;
}

std::string measured_text(const std::vector<StoredSpeed>& speeds) {
  std::vector<std::string> texts;
  for (const StoredSpeed& speed : speeds) {
    char figure[32];
    std::snprintf(figure, sizeof figure, " %.1f samples/s", speed.samples_per_second);
    texts.push_back(speed.type + (speed.samples_per_second > 0 ? figure : " cannot train it"));
  }
  return "measured: " + joined(texts);
}

std::string event_text(const JobStatus& before, const JobStatus& after,
                       const std::vector<std::string>& devices, Nanos now, const std::string& by) {
  if (before.held != after.held && before.stop == after.stop) return held_text(after, now, by);
  const std::string attempt = " attempt " + std::to_string(after.epoch.value());
  switch (after.state) {
    case JobState::kWaiting:
      return waiting_text(after, now);
    case JobState::kProfiling:
      return "measuring how fast it is on " + joined(devices);
    case JobState::kLaunching:
      return "launching" + attempt + " on " + joined(devices);
    case JobState::kRunning:
      return "running" + attempt;
    case JobState::kStopping:
      return "stopping" + attempt + ": " + why_stopped(after.stop) +
             (before.stop == after.stop ? "" : by_whom(by));
    case JobState::kFailed:
    case JobState::kCancelled:
      return name_of(after.state) + by_whom(by) +
             (after.cause.empty() || after.cause == name_of(after.state) ? "" : ": " + after.cause);
    case JobState::kQueued:
      return ended_by_itself(before.state) ? "queued for other devices: " + after.cause
                                           : "queued" + by_whom(by);
    default:
      return name_of(after.state);
  }
}

}  // namespace motley
