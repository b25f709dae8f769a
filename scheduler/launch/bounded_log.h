#pragma once
// A log that does not fill the disk.

#include <string>
#include <string_view>

#include "core/ids.h"

namespace motley {

class BoundedLog {
 public:
  /// Writes to `fd`, which outlives it, until that file has `limit` bytes; 0: without a limit, as
  /// to what is no file.
  BoundedLog(int fd, Bytes limit) : fd_(fd), limit_(limit) {}

  /// Where the limit is reached a line says so; what follows is dropped.
  void write(std::string_view text);
  /// Nothing follows: adds the last lines of what was dropped, which may say why it ended.
  void end();

 private:
  size_t room() const;

  const int fd_;
  const Bytes limit_;
  bool full_ = false;
  std::string dropped_;  ///< the last of it
};

}  // namespace motley
