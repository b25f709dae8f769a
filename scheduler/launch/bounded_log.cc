#include "scheduler/launch/bounded_log.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>

#include "core/units.h"

namespace motley {
namespace {

constexpr size_t kLastWords = 4096;

/// What cannot be written is lost: whoever prints goes on.
void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t size = ::write(fd, text.data(), text.size());
    if (size < 0 && errno != EINTR) return;
    if (size > 0) text.remove_prefix(static_cast<size_t>(size));
  }
}

}  // namespace

size_t BoundedLog::room() const {
  struct stat file {};
  const bool bounded =
      limit_ > Bytes(0) && ::fstat(fd_, &file) == 0 && (file.st_mode & S_IFMT) == S_IFREG;
  if (!bounded) return std::numeric_limits<size_t>::max();
  return static_cast<size_t>(std::max<int64_t>(0, limit_.value() - file.st_size));
}

void BoundedLog::write(std::string_view text) {
  if (!full_) {
    const std::string_view fits = text.substr(0, room());
    write_all(fd_, fits);
    text.remove_prefix(fits.size());
    if (text.empty()) return;
    full_ = true;
    write_all(fd_, "\nmotley: this log has " + format_bytes(limit_) +
                       ", the most that it may have (motley serve --log-limit): what follows is "
                       "dropped, but for the last lines\n");
  }
  dropped_ += text.substr(text.size() - std::min(text.size(), kLastWords));
  dropped_.erase(0, dropped_.size() - std::min(dropped_.size(), kLastWords));
}

void BoundedLog::end() {
  const size_t line_end = dropped_.find('\n');
  const bool cut = dropped_.size() == kLastWords && line_end + 1 < dropped_.size();
  write_all(fd_, std::string_view(dropped_).substr(cut ? line_end + 1 : 0));
  dropped_.clear();
}

}  // namespace motley
