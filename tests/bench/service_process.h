#pragma once
// A coordinator, started as people start it.

#include <string>

#include "scheduler/launch/child_process.h"
#include "scheduler/service/service_client.h"

namespace motley {

/// `motley serve` with its state, its socket and its fleet file (a YAML text, written here) in
/// `directory`. Needs motley and motley-worker beside the folder of this program.
Result<ChildProcess> start_service(const std::string& directory, const std::string& fleet);
ServiceClient client_of_service(const std::string& directory);
std::string socket_of_service(const std::string& directory);

/// Until it answers; what it said last where it does not within `seconds`.
Result<Unit> wait_until_served(const ServiceClient& client, double seconds);

/// Sends the signal and waits for the end.
void end_service(ChildProcess& service, int signal);

}  // namespace motley
