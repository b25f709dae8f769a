#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>

namespace motley::testing {

/// A new directory, removed with everything in it at the end of the scope.
class TemporaryDirectory {
 public:
  TemporaryDirectory() : path_(std::filesystem::temp_directory_path() / "motley-test-XXXXXX") {
    if (mkdtemp(path_.data()) == nullptr) std::abort();
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace motley::testing
