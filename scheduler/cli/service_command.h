#pragma once
// What the commands of the job service have in common.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/result.h"
#include "scheduler/cli/command.h"
#include "scheduler/service/service_client.h"

namespace motley {

/// "--server HOST:PORT", "--socket PATH"
void declare_service(CommandLine& line, ServiceChoice* choice);
/// Of the coordinator that the choice, the surroundings or a login name (find_service()).
Result<ServiceClient> client_of(const ServiceChoice& choice);

/// Of one submission alone, so that the service can tell a repetition from another job.
std::string new_submission_key();

/// What stands in a text or a file, blanks around it left out; kUsage where that is no token.
Result<std::string> token_in(const std::string& text);
Result<std::string> read_token_file(const std::string& path);

/// Of a job or a token: digits that begin with no 0.
bool is_number(const std::string& word);
/// The number of a job, as typed: kUsage for anything else.
Result<std::string> job_number(const std::string& word);

/// The numbers of several: "12", "15..17". kUsage for anything else, and for more than 10,000.
Result<std::vector<std::string>> job_numbers(const std::vector<std::string>& words);

/// "2026-03-01 14:05:09", of this machine's zone; "-" for null.
std::string time_text(const nlohmann::json& seconds);

/// "job 7 (name): running, attempt 2"
std::string job_line(const nlohmann::json& job);

/// Prints the log of a job as it comes, to its end; what the job came to, as an exit code.
Result<int> follow_job(const ServiceClient& client, const std::string& job,
                       const std::string& query);

/// The exit code of a job that has ended: 0, or 1.
int exit_of_state(const std::string& state);

}  // namespace motley
