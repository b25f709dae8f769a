#include "scheduler/run/terminal.h"

#include <sys/ioctl.h>

namespace motley {

std::optional<int> terminal_columns(int fd) {
  winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return std::nullopt;
  return size.ws_col;
}

}  // namespace motley
