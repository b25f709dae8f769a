#pragma once
// Where a coordinator keeps what it knows (core/FORMATS.md, "state directory of the service").

#include <string>

#include "core/result.h"
#include "scheduler/launch/child_process.h"
#include "scheduler/service/attempt_launcher.h"

namespace motley {

class ServiceDirectory {
 public:
  /// Makes it, for its owner alone, and holds its lock until the object goes. kNotPermitted naming
  /// the holder's process where another coordinator has it, and where it is a directory for other
  /// things that others may enter.
  static Result<ServiceDirectory> open(const std::string& path);

  const std::string& path() const { return path_; }
  std::string database() const { return path_ + "/motley.db"; }
  std::string tls() const { return path_ + "/tls"; }
  std::string job(int64_t id) const { return path_ + "/jobs/" + std::to_string(id); }
  /// Of a job that has left something here, the greatest; 0: none has.
  int64_t greatest_job() const;
  std::string attempt(AttemptId id) const {
    return job(id.job) + "/attempts/" + std::to_string(id.epoch.value());
  }
  /// Of a job's attempts that have left something here; 0: none has.
  Epoch newest_attempt(int64_t job) const;

 private:
  ServiceDirectory(std::string path, Fd lock) : path_(std::move(path)), lock_(std::move(lock)) {}

  std::string path_;
  Fd lock_;
};

/// ${XDG_STATE_HOME}/motley/service
std::string default_service_directory();
/// Where clients look for a coordinator unless they are told: $MOTLEY_SOCKET, else "socket" in the
/// default directory.
std::string default_socket();

}  // namespace motley
