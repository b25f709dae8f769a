#pragma once
// Running commands to their end, several at once, and keeping what they print.

#include <string>
#include <vector>

#include "core/ids.h"
#include "core/result.h"
#include "scheduler/launch/child_process.h"

namespace motley {

struct CommandRequest {
  std::vector<std::string> command;
  std::string input;  ///< for its stdin
};

struct CommandOutput {
  ExitStatus status;
  bool timed_out = false;  ///< then it and its process group were killed
  std::string out;
  std::string err;
};

/// All run at the same time, each in a session of its own; the call returns when the last has ended
/// or `limit` has passed. kNotFound for a program that is missing.
std::vector<Result<CommandOutput>> run_commands(const std::vector<CommandRequest>& requests,
                                                Nanos limit);

Result<CommandOutput> run_command(const CommandRequest& request, Nanos limit);

/// The last line that is not empty.
std::string last_line(const std::string& text);

}  // namespace motley
