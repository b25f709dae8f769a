#pragma once

#include <memory>
#include <string>

#include "core/result.h"

namespace motley {

/// Holds the file `lock` of a directory (core/FORMATS.md, "run directory") until destroyed or the
/// process ends, however it ends.
class DirectoryLock {
 public:
  /// Makes the directory if need be. kNotPermitted when another process holds it and goes on doing
  /// so: one that was killed may take a moment to end.
  static Result<std::unique_ptr<DirectoryLock>> take(const std::string& directory);
  ~DirectoryLock();
  DirectoryLock(const DirectoryLock&) = delete;

 private:
  explicit DirectoryLock(int fd) : fd_(fd) {}
  const int fd_;
};

}  // namespace motley
