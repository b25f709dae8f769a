#include "tests/bench/service_restart.h"

#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "core/clock.h"
#include "tests/bench/service_process.h"
#include "tests/support/temporary_directory.h"

namespace motley {
namespace {

constexpr int kPrograms = 100;
constexpr int kArrays = 100;
constexpr double kLookSeconds = 5;     // who loses its attempt has done so by then
constexpr double kStartSeconds = 900;  // a hundred mpirun on two cores

constexpr const char* kProgram = R"(version: 1
name: program
run: [sleep, "3600"]
resources: {devices: {count: 1}}
)";

constexpr const char* kWaiting = R"(version: 1
name: waiting
run: [sleep, "3600"]
array: {index: ['1..1000']}
)";

std::string fleet_of_cpus() {
  std::string text =
      "version: 1\nnodes:\n  - host: localhost\n    slots: " + std::to_string(kPrograms) +
      "\n    devices:\n";
  for (int i = 0; i < kPrograms; ++i)
    text += "      - {kind: cpu, type: core, threads: 1, memory: 100MB}\n";
  return text;
}

using Attempts = std::set<std::pair<int64_t, int64_t>>;

/// Job and attempt of all that run.
Result<Attempts> running_attempts(const ServiceClient& client) {
  Attempts attempts;
  MOTLEY_TRY(const nlohmann::json page, client.get("/v1/jobs?state=running&limit=200"));
  for (const nlohmann::json& job : page["jobs"]) attempts.emplace(job["id"], job["attempt"]);
  return attempts;
}

Result<Unit> wait_for_programs(const ServiceClient& client) {
  const Nanos end = steady_clock().now() + nanos_of_seconds(kStartSeconds);
  Attempts attempts;
  while (attempts.size() < kPrograms) {
    if (steady_clock().now() > end)
      return fail(ErrorCode::kRunFailed,
                  "only " + std::to_string(attempts.size()) + " programs started");
    steady_clock().sleep_until(steady_clock().now() + nanos_of_seconds(1));
    MOTLEY_TRY(attempts, running_attempts(client));
  }
  return Unit{};
}

Result<Unit> submit(const ServiceClient& client, const std::string& query, const char* job,
                    int times) {
  for (int i = 0; i < times; ++i) MOTLEY_TRY_VOID(client.post("/v1/jobs?" + query, job));
  return Unit{};
}

Result<int> count_waiting(const ServiceClient& client) {
  int count = 0;
  std::string rest;
  while (true) {
    MOTLEY_TRY(const nlohmann::json page, client.get("/v1/jobs?state=waiting&limit=200" + rest));
    count += static_cast<int>(page["jobs"].size());
    if (page["next"].is_null()) return count;
    rest = "&before=" + page["next"].dump();
  }
}

double resident_bytes(pid_t process) {
  std::ifstream status("/proc/" + std::to_string(process) + "/status");
  for (std::string word; status >> word;)
    if (word == "VmRSS:") {
      double kibibytes = 0;
      status >> kibibytes;
      return kibibytes * 1024;
    }
  return 0;
}

Result<Unit> cancel_all(const ServiceClient& client, const Attempts& attempts) {
  for (const auto& [job, attempt] : attempts)
    MOTLEY_TRY_VOID(client.post("/v1/jobs/" + std::to_string(job) + "/cancel"));
  const Nanos end = steady_clock().now() + nanos_of_seconds(kStartSeconds);
  while (steady_clock().now() < end) {
    MOTLEY_TRY(const Attempts left, running_attempts(client));
    if (left.empty()) return Unit{};
    steady_clock().sleep_until(steady_clock().now() + nanos_of_seconds(1));
  }
  return fail(ErrorCode::kRunFailed, "programs do not end");
}

/// Kills the coordinator, starts another one, and looks at it.
Result<RestartFigures> restart(const std::string& directory, std::optional<ChildProcess>& service) {
  const ServiceClient client = client_of_service(directory);
  RestartFigures figures;
  MOTLEY_TRY(const Attempts before, running_attempts(client));
  figures.running = static_cast<int>(before.size());
  end_service(*service, SIGKILL);
  const Nanos begin = steady_clock().now();
  MOTLEY_TRY(ChildProcess next, start_service(directory, fleet_of_cpus()));
  service.emplace(std::move(next));
  MOTLEY_TRY_VOID(wait_until_served(client, 60));
  figures.serving_again_seconds = seconds_of(steady_clock().now() - begin);
  MOTLEY_TRY(figures.waiting, count_waiting(client));
  figures.memory_bytes = resident_bytes(service->pid());
  steady_clock().sleep_until(steady_clock().now() + nanos_of_seconds(kLookSeconds));
  MOTLEY_TRY(const Attempts after, running_attempts(client));
  for (const auto& attempt : before) figures.undisturbed += after.contains(attempt) ? 1 : 0;
  return figures;
}

}  // namespace

Result<std::vector<RestartFigures>> measure_restarts() {
  const testing::TemporaryDirectory directory;
  const ServiceClient client = client_of_service(directory.path());
  const std::string source = "source=" + directory.path() + "/job.yaml";
  MOTLEY_TRY(ChildProcess first, start_service(directory.path(), fleet_of_cpus()));
  std::optional<ChildProcess> service(std::move(first));
  MOTLEY_TRY_VOID(wait_until_served(client, 10));
  MOTLEY_TRY_VOID(submit(client, source, kProgram, kPrograms));
  MOTLEY_TRY_VOID(wait_for_programs(client));
  std::vector<RestartFigures> figures(2);
  MOTLEY_TRY(figures[0], restart(directory.path(), service));
  MOTLEY_TRY_VOID(submit(client, source + "&hold=true", kWaiting, kArrays));
  MOTLEY_TRY(figures[1], restart(directory.path(), service));
  MOTLEY_TRY(const Attempts left, running_attempts(client));
  MOTLEY_TRY_VOID(cancel_all(client, left));
  end_service(*service, SIGTERM);
  return figures;
}

}  // namespace motley
