#pragma once
// What has ended and is old goes: jobs with their directories, and events. In small pieces, none of
// which keeps anybody waiting. Its calls are the coordinator's thread's.

#include <cstdint>
#include <functional>
#include <string>

#include "core/result.h"
#include "core/units.h"
#include "scheduler/service/coordinator.h"
#include "scheduler/service/service_directory.h"

namespace motley {

/// Removes directories somewhere else: with checkpoints in them that takes its time.
class DirectoryRemover {
 public:
  virtual ~DirectoryRemover() = default;
  /// `done` is called on the caller's thread, later. Nothing there: success.
  virtual void remove(const std::string& path, std::function<void(Result<Unit>)> done) = 0;
};

class Retention {
 public:
  struct Surroundings {
    Coordinator& coordinator;
    const Database& kept;
    ChangeWriter& store;
    const ServiceDirectory& directory;
    DirectoryRemover& remover;
    std::function<int64_t()> wall_time;  ///< nanoseconds since 1970
  };
  /// How long what has ended is kept; 0: for ever. All outlive it.
  Retention(Surroundings around, Nanos keep) : around_(std::move(around)), keep_(keep) {}

  /// The job's directory first: what is removed by half is removed again. Answered when both are
  /// gone. kNotFound; kNotPermitted: it has not ended.
  void remove(int64_t job, Coordinator::Answered done);
  /// Begins with what is too old, unless it is at it; goes on by itself.
  void sweep();

 private:
  void remove_next(std::vector<int64_t> jobs);
  void remove_old_events();

  const Surroundings around_;
  const Nanos keep_;
  bool sweeping_ = false;
  bool more_ = false;  ///< are too old than those that are being removed
};

}  // namespace motley
