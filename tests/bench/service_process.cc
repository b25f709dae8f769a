#include "tests/bench/service_process.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/clock.h"
#include "scheduler/launch/environment.h"
#include "scheduler/launch/worker_program.h"

namespace motley {

std::string socket_of_service(const std::string& directory) { return directory + "/socket"; }

ServiceClient client_of_service(const std::string& directory) {
  return ServiceClient({socket_of_service(directory), std::nullopt});
}

Result<ChildProcess> start_service(const std::string& directory, const std::string& fleet) {
  std::ofstream(directory + "/fleet.yaml") << fleet;
  Environment environment = Environment::inherited();
  environment.set("XDG_CACHE_HOME", directory + "/cache");
  const std::string programs =
      std::filesystem::path(own_program()).parent_path().parent_path().string();
  SpawnRequest request;
  request.command = {programs + "/motley",
                     "serve",
                     "--state",
                     directory + "/state",
                     "--fleet",
                     directory + "/fleet.yaml",
                     "--socket",
                     socket_of_service(directory)};
  request.environment = environment.entries();
  request.die_with_parent = true;
  return ChildProcess::spawn(request);
}

Result<Unit> wait_until_served(const ServiceClient& client, double seconds) {
  const Nanos end = steady_clock().now() + nanos_of_seconds(seconds);
  while (true) {
    const auto answer = client.get("/v1/fleet");
    if (answer) return Unit{};
    if (steady_clock().now() > end) return fail(answer.error());
    steady_clock().sleep_until(steady_clock().now() + nanos_of_seconds(0.01));
  }
}

void end_service(ChildProcess& service, int signal) {
  service.send(signal);
  ExitStatus status;
  service.wait(nanos_of_seconds(20), &status);
}

}  // namespace motley
