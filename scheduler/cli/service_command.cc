#include "scheduler/cli/service_command.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "scheduler/service/service_client.h"

namespace motley {

void declare_socket(CommandLine& line, std::string* socket) {
  line.option("--socket", "PATH", "of the coordinator, instead of $MOTLEY_SOCKET", socket);
}

Result<std::string> job_number(const std::string& word) {
  const bool digits =
      !word.empty() && word.size() < 19 && word.front() != '0' &&
      std::all_of(word.begin(), word.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
  if (!digits)
    return fail(ErrorCode::kUsage,
                "a job of the service is named by its number, not '" + word + "': see motley ls");
  return word;
}

std::string job_line(const nlohmann::json& job) {
  std::string line = "job " + std::to_string(job.value("id", 0)) + " (" + job.value("name", "") +
                     "): " + job.value("state", "");
  const int attempt = job.value("attempt", 0);
  if (attempt > 0) line += ", attempt " + std::to_string(attempt);
  const std::string cause = job.value("cause", "");
  if (!cause.empty() && cause != job.value("state", "")) line += ": " + cause;
  return line;
}

int exit_of_state(const std::string& state) { return state == "succeeded" ? 0 : 1; }

Result<int> follow_job(const std::string& socket, const std::string& job,
                       const std::string& query) {
  const ServiceClient client(socket);
  MOTLEY_TRY_VOID(
      client.follow("/v1/jobs/" + job + "/logs" + query, [](const nlohmann::json& piece) {
        std::fputs(piece.value("text", "").c_str(), stdout);
        return std::fflush(stdout) == 0;
      }));
  MOTLEY_TRY(const nlohmann::json end, client.get("/v1/jobs/" + job));
  std::fprintf(stderr, "%s\n", job_line(end).c_str());
  return exit_of_state(end.value("state", ""));
}

}  // namespace motley
