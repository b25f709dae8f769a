#pragma once
// What the commands of the job service have in common.

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "core/result.h"
#include "scheduler/cli/command.h"

namespace motley {

/// "--socket PATH"
void declare_socket(CommandLine& line, std::string* socket);

/// The number of a job, as typed: kUsage for anything else.
Result<std::string> job_number(const std::string& word);

/// "job 7 (name): running, attempt 2"
std::string job_line(const nlohmann::json& job);

/// Prints the log of a job as it comes, to its end; what the job came to, as an exit code.
Result<int> follow_job(const std::string& socket, const std::string& job, const std::string& query);

/// The exit code of a job that has ended: 0, or 1.
int exit_of_state(const std::string& state);

}  // namespace motley
