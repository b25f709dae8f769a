#include "scheduler/cli/service_command.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>

#include "core/file_system.h"
#include "scheduler/run/terminal.h"

namespace motley {
namespace {

constexpr Bytes kLargestToken{4096};

}  // namespace

void declare_service(CommandLine& line, ServiceChoice* choice) {
  line.option("--server", "HOST:PORT", "a coordinator one has logged in to", &choice->server)
      .option("--socket", "PATH", "of this machine's coordinator", &choice->socket);
}

Result<ServiceClient> client_of(const ServiceChoice& choice) {
  MOTLEY_TRY(ServiceAddress address, find_service(choice));
  return ServiceClient(std::move(address));
}

std::string new_submission_key() {
  std::random_device random;
  char text[40];
  std::snprintf(text, sizeof text, "motley-%08x%08x%08x", random(), random(), random());
  return text;
}

Result<std::string> token_in(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos) return fail(ErrorCode::kUsage, "no token was given");
  std::string token = text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
  if (token.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") != std::string::npos)
    return fail(ErrorCode::kUsage, "that is no token: one begins with mtl_");
  return token;
}

Result<std::string> read_token_file(const std::string& path) {
  MOTLEY_TRY(const std::string text, read_text(real_file_system(), path, kLargestToken));
  return token_in(text);
}

std::string time_text(const nlohmann::json& seconds) {
  if (!seconds.is_number()) return "-";
  const auto time = static_cast<std::time_t>(seconds.get<double>());
  std::tm parts{};
  localtime_r(&time, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts);
  return text;
}

bool is_number(const std::string& word) {
  return !word.empty() && word.size() < 19 && word.front() != '0' &&
         std::all_of(word.begin(), word.end(),
                     [](unsigned char c) { return std::isdigit(c) != 0; });
}

Result<std::string> job_number(const std::string& word) {
  if (!is_number(word))
    return fail(ErrorCode::kUsage,
                "a job of the service is named by its number, not '" + word + "': see motley ls");
  return word;
}

Result<std::vector<std::string>> job_numbers(const std::vector<std::string>& words) {
  constexpr int64_t kMost = 10'000;
  std::vector<std::string> numbers;
  for (const std::string& word : words) {
    const size_t dots = word.find("..");
    MOTLEY_TRY(const std::string low, job_number(word.substr(0, dots)));
    MOTLEY_TRY(const std::string high, job_number(dots == word.npos ? low : word.substr(dots + 2)));
    const int64_t first = std::stoll(low), last = std::stoll(high);
    if (first > last) return fail(ErrorCode::kUsage, "'" + word + "' ends below its beginning");
    if (last - first >= kMost - std::ssize(numbers))
      return fail(ErrorCode::kUsage, "more than " + std::to_string(kMost) + " jobs at once");
    for (int64_t number = first; number <= last; ++number)
      numbers.push_back(std::to_string(number));
  }
  return numbers;
}

std::string job_line(const nlohmann::json& job) {
  std::string line = "job " + std::to_string(job.value("id", 0)) + " (" + job.value("name", "") +
                     "): " + job.value("state", "");
  const int attempt = job.value("attempt", 0);
  if (attempt > 0) line += ", attempt " + std::to_string(attempt);
  // What is under way again has its last failure behind it.
  const std::string cause = job.value("cause", ""), state = job.value("state", "");
  const bool tells = state == "waiting" || job["finished"].is_number();
  if (tells && !cause.empty() && cause != state) line += ": " + cause;
  return line;
}

int exit_of_state(const std::string& state) { return state == "succeeded" ? 0 : 1; }

Result<int> follow_job(const ServiceClient& client, const std::string& job,
                       const std::string& query) {
  MOTLEY_TRY_VOID(
      client.follow("/v1/jobs/" + job + "/logs" + query, [](const nlohmann::json& piece) {
        std::fputs(shown_on(stdout, piece.value("text", "")).c_str(), stdout);
        return std::fflush(stdout) == 0;
      }));
  MOTLEY_TRY(const nlohmann::json end, client.get("/v1/jobs/" + job));
  std::fprintf(stderr, "%s\n", shown_on(stderr, job_line(end)).c_str());
  return exit_of_state(end.value("state", ""));
}

}  // namespace motley
