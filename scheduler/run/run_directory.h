#pragma once
// A run's directory: <state>/runs/<name>/<n>/ with job.json fleet.json profile.json plan.json
// metrics.jsonl progress.json report.json loss.svg lock attempts/<epoch>/{attempt,plan}.json and a
// log for each rank, checkpoints/ (core/FORMATS.md, "run directory").

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/ids.h"
#include "core/manifest.h"
#include "core/plan.h"
#include "core/profile.h"
#include "core/result.h"
#include "core/spec/fleet_spec.h"
#include "core/spec/job_spec.h"
#include "scheduler/launch/child_process.h"

namespace motley {

class RunDirectory {
 public:
  /// The newest run of the job's name; nothing when there is none. kInvalidSpec naming the key when
  /// it has trained another model, data or train; one that has not trained yet takes any.
  static Result<std::optional<RunDirectory>> newest(const JobSpec& job);
  /// Where a run that is being made will be found once it is whole.
  struct Draft {
    std::string path;
    std::string checkpoints;
  };
  /// A new run, one number higher than any there is or that has checkpoints, with its job.json and
  /// whatever `fill` puts into the draft. It appears when all of that is done; an error leaves
  /// nothing.
  static Result<RunDirectory> create(const JobSpec& job,
                                     const std::function<Result<Unit>(const Draft&)>& fill = {});
  /// By name (newest), by "name/n", or by path. kNotFound otherwise.
  static Result<RunDirectory> find(const std::string& run);

  const std::string& path() const { return path_; }
  std::string title() const;  ///< "name/n"
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  /// Where this run's checkpoints are; in a directory of its own within `checkpoint.dir`.
  std::string checkpoints(const JobSpec& job) const;
  std::string attempt_directory(Epoch epoch) const;

  /// Holds the run's lock until the object goes; kNotPermitted naming the holder's pid when taken.
  /// A holder that is dead is waited for: its runner ends within seconds, and lets go. What it said
  /// of its progress is removed.
  Result<Unit> lock();
  int lock_fd() const { return lock_.get(); }
  bool in_use() const;  ///< somebody else holds the lock
  /// One more than any attempt's or checkpoint's so far; the directory is made and synced before it
  /// returns.
  Result<Epoch> next_epoch(const JobSpec& job);
  /// The largest number among its attempts; 0 without any.
  int last_epoch() const;

  /// No step, no checkpoint: nothing would be lost.
  bool untouched(const JobSpec& job) const;
  /// kInvalidSpec naming the key when the newest attempt trained another model, data or train than
  /// `job`, whatever job.json says now.
  Result<Unit> check_continues(const JobSpec& job) const;
  /// Removes what was derived from a job that `job` replaces in an untouched run.
  Result<Unit> begin_again_with(const JobSpec& job) const;

  Result<JobSpec> job() const;
  Result<FleetSpec> fleet() const;  ///< kNotFound for a run by hand, which keeps none
  Result<Profile> profile() const;
  Result<Plan> plan() const;  ///< the newest attempt's, whoever started it
  /// Durably; a reader sees the old text or the new.
  Result<Unit> write(const std::string& name, const std::string& text) const;
  Result<std::string> read(const std::string& name) const;

  /// Committed checkpoints visible from here, newest first.
  std::vector<CheckpointName> committed(const JobSpec& job) const;

 private:
  explicit RunDirectory(std::string path) : path_(std::move(path)) {}

  std::string path_;
  Fd lock_;
};

/// The path of the newest run of that name below a state directory, which need not be ours; empty
/// without one.
std::string newest_run(const std::string& state, const std::string& name);

}  // namespace motley
