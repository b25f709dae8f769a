#include "scheduler/run/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

namespace motley {
namespace {

constexpr unsigned char kDelete = 0x7f;
constexpr unsigned char kControl = 0x40;  // from a control character to its letter, and back

/// Of C1 in UTF-8, which is C2 and this byte.
bool is_second_set(unsigned char byte) { return byte >= 0x80 && byte < 0xa0; }

}  // namespace

std::optional<int> terminal_columns(int fd) {
  winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return std::nullopt;
  return size.ws_col;
}

std::optional<int> terminal_rows(int fd) {
  winsize size{};
  if (::ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_row == 0) return std::nullopt;
  return size.ws_row;
}

std::string without_controls(const std::string& text) {
  std::string shown;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : '\0');
    if (byte == '\r' && next == '\n') continue;
    if (byte == 0xc2 && is_second_set(next)) {
      shown += std::string("^[") + static_cast<char>(next - kControl);
      ++i;
    } else if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == kDelete) {
      shown += std::string("^") + static_cast<char>(byte ^ kControl);
    } else {
      shown += text[i];
    }
  }
  return shown;
}

std::string shown_on(std::FILE* to, const std::string& text) {
  return ::isatty(::fileno(to)) == 1 ? without_controls(text) : text;
}

}  // namespace motley
