#pragma once
// Directories of one attempt for temporary files and shared-memory segments, so that whatever a
// killed mpirun leaves behind is found and removed.

#include <string>

#include "core/result.h"
#include "scheduler/launch/child_process.h"

namespace motley {

class Scratch {
 public:
  /// Makes both, private to this user, and removes those of processes that are gone.
  static Result<Scratch> create();
  Scratch(Scratch&&) = default;
  Scratch& operator=(Scratch&&) = delete;
  ~Scratch();

  const std::string& path() const { return path_; }  ///< short enough for a Unix socket within
  const std::string& shared_memory() const { return shared_memory_; }

 private:
  Scratch() = default;

  std::string path_;
  std::string shared_memory_;
  Fd lock_;  ///< held while we live: its release tells a later sweep that nobody uses the directory
};

}  // namespace motley
