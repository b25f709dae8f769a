#include "scheduler/run/trace_export.h"

#include <nlohmann/json.hpp>

#include "core/file_system.h"
#include "core/plan.h"
#include "core/run_layout.h"
#include "core/trace_events.h"

namespace motley {
namespace {

constexpr Bytes kLargestTrace{int64_t{1} << 30};

Result<std::string> events_of(const std::string& path) {
  MOTLEY_TRY(const std::string text, read_text(real_file_system(), path, kLargestTrace));
  if (text.size() < kTraceBegin.size() + kTraceEnd.size() || !text.starts_with(kTraceBegin) ||
      !text.ends_with(kTraceEnd))
    return fail(ErrorCode::kCorrupt, "not a trace of ours", {path, 0, 0});
  return text.substr(kTraceBegin.size(), text.size() - kTraceBegin.size() - kTraceEnd.size());
}

Result<int> ranks_of(const std::string& directory) {
  const std::string path = directory + "/plan.json";
  MOTLEY_TRY(const std::string text, read_text(real_file_system(), path, kLargestTrace));
  const auto plan = plan_from_json(nlohmann::json::parse(text, nullptr, false));
  if (!plan) return fail(plan.error().code, path + ": " + plan.error().message);
  return plan->world_size();
}

/// Empty text: none of the ranks has one.
Result<MergedTrace> merged(const std::string& directory) {
  MergedTrace trace{.text = "", .directory = directory, .missing = ""};
  MOTLEY_TRY(const int ranks, ranks_of(directory));
  for (int rank = 0; rank < ranks; ++rank) {
    const auto events = events_of(trace_path(directory, Rank(rank)));
    if (!events && events.error().code != ErrorCode::kNotFound) return fail(events.error());
    if (events)
      trace.text +=
          (trace.text.empty() ? std::string(kTraceBegin) : std::string(kBetweenTraceLines)) +
          *events;
    else
      trace.missing += (trace.missing.empty() ? "" : ", ") + std::to_string(rank);
  }
  if (!trace.text.empty()) trace.text += kTraceEnd;
  return trace;
}

}  // namespace

Result<MergedTrace> merged_trace(const RunDirectory& run) {
  for (int epoch = run.last_epoch(); epoch > 0; --epoch) {
    const std::string directory = run.attempt_directory(Epoch(epoch));
    if (!real_file_system().exists(directory + "/plan.json")) continue;
    MOTLEY_TRY(MergedTrace trace, merged(directory));
    if (!trace.text.empty()) return trace;
  }
  return fail(ErrorCode::kNotFound,
              "run " + run.title() + " has no trace: it is made by `motley run --trace`");
}

}  // namespace motley
