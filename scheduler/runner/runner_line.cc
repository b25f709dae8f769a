#include "scheduler/runner/runner_line.h"

#include <nlohmann/json.hpp>

#include "core/json_fields.h"

namespace motley {

using nlohmann::json;

namespace {

constexpr const char* kOutcomes[] = {"finished", "stopped", "failed"};

}  // namespace

std::string to_text(const RunnerLine& line) {
  return json{{"event", line.event}, {"data", parse_json(line.data).value_or(nullptr)}}.dump(
      -1, ' ', false, json::error_handler_t::replace);
}

Result<RunnerLine> runner_line_from_text(const std::string& text) {
  const json line = parse_json(text).value_or(nullptr);
  if (!line.is_object() || !line.contains("event") || !line["event"].is_string() ||
      !line.contains("data"))
    return fail(ErrorCode::kCorrupt, "malformed line from the runner: " + text);
  return RunnerLine{line["event"].get<std::string>(), line["data"].dump()};
}

const char* event_name(MessageType type) {
  switch (type) {
    case MessageType::kHello:
      return "hello";
    case MessageType::kPhase:
      return "phase";
    case MessageType::kStep:
      return "step";
    case MessageType::kSaved:
      return "saved";
    case MessageType::kEvaluated:
      return "evaluated";
    case MessageType::kDone:
      return "done";
    case MessageType::kProfile:
      return "profile";
    case MessageType::kSkipped:
      return "skipped";
    case MessageType::kHeartbeat:
    case MessageType::kStop:
    case MessageType::kCheckpoint:
      return "";
  }
  return "";
}

std::string to_json_text(const AttemptEnd& end) {
  return json{{"outcome", kOutcomes[static_cast<int>(end.outcome)]},
              {"code", name_of(end.error.code)},
              {"message", end.error.message},
              {"rank", end.rank}}
      .dump(-1, ' ', false, json::error_handler_t::replace);
}

Result<AttemptEnd> attempt_end_from_text(const std::string& text) {
  MOTLEY_TRY(const json from, parse_json(text));
  try {
    AttemptEnd end;
    const auto outcome = from.at("outcome").get<std::string>();
    for (int i = 0; i < 3; ++i)
      if (outcome == kOutcomes[i]) end.outcome = static_cast<Outcome>(i);
    end.error.code = error_code_of_name(from.at("code").get<std::string>());
    from.at("message").get_to(end.error.message);
    from.at("rank").get_to(end.rank);
    return end;
  } catch (const std::exception& error) {
    return fail(ErrorCode::kCorrupt, std::string("malformed end of an attempt: ") + error.what());
  }
}

}  // namespace motley
