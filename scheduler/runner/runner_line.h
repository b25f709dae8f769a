#pragma once
// What a runner tells the process that started it: one JSON object a line on its stdout,
// {"event": NAME, "data": {...}}. NAME is hello, phase, step, saved, skipped, evaluated, done or
// profile with the payload of the frame of that name (core/reports.h; a hello without its key), or
// last, once, "ended" with an AttemptEnd. Commands go the other way on its stdin, one word a line:
// stop, checkpoint, kill. An end of file there ends the attempt.

#include <string>

#include "core/result.h"
#include "core/wire.h"
#include "scheduler/runner/runner_fsm.h"

namespace motley {

struct RunnerLine {
  std::string event;
  std::string data;  ///< JSON text
};

/// Without the line's end.
std::string to_text(const RunnerLine& line);
Result<RunnerLine> runner_line_from_text(const std::string& text);

/// Empty for a frame that is not passed on.
const char* event_name(MessageType type);

std::string to_json_text(const AttemptEnd& end);
Result<AttemptEnd> attempt_end_from_text(const std::string& text);

}  // namespace motley
