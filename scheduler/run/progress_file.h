#pragma once
// progress.json of a run's directory, there while an attempt is under way (core/FORMATS.md).

#include <functional>
#include <string>

#include "core/clock.h"
#include "core/file_system.h"
#include "scheduler/report/run_progress.h"

namespace motley {

class ProgressFile {
 public:
  /// All outlive it. Where it cannot be written there is none: training does without.
  ProgressFile(FileSystem& fs, const Clock& clock, std::string path)
      : fs_(fs), clock_(clock), path_(std::move(path)) {}
  /// Removes it.
  ~ProgressFile();
  ProgressFile(const ProgressFile&) = delete;
  ProgressFile& operator=(const ProgressFile&) = delete;

  /// Replaces it. Not durable: after a power cut nothing of it is worth having.
  void write(const RunProgress& progress);
  /// The same with what `progress` says, but nothing within a second of the last time.
  void offer(const std::function<RunProgress()>& progress);

 private:
  FileSystem& fs_;
  const Clock& clock_;
  const std::string path_;
  Nanos next_{INT64_MIN};
};

/// Now, in seconds since 1970: for people.
double unix_seconds();

/// kNotFound where none is under way, kCorrupt or kInvalidSpec for what is no progress.
Result<RunProgress> read_progress(FileSystem& fs, const std::string& path);

}  // namespace motley
