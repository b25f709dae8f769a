#include "core/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>

namespace motley {
namespace {

std::shared_ptr<spdlog::logger> make_logger(const std::string& who) {
  auto logger =
      std::make_shared<spdlog::logger>(who, std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern(who.empty() ? "%H:%M:%S.%e %l: %v" : "%H:%M:%S.%e %n %l: %v");
  logger->flush_on(spdlog::level::debug);
  return logger;
}

std::shared_ptr<spdlog::logger>& current() {
  static std::shared_ptr<spdlog::logger> logger = make_logger("");
  return logger;
}

void write(spdlog::level::level_enum level, const std::string& message) {
  current()->log(level, "{}", one_line(message));
}

}  // namespace

std::string one_line(std::string_view text) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string line;
  line.reserve(text.size());
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      line += "\\n";
    } else if (c == '\t') {
      line += ' ';
    } else if (byte < 0x20 || byte == 0x7f) {
      line += "\\x";
      line += kHex[byte >> 4];
      line += kHex[byte & 15];
    } else {
      line += c;
    }
  }
  return line;
}

void configure_log(const std::string& who) { current() = make_logger(one_line(who)); }
void log_info(const std::string& message) { write(spdlog::level::info, message); }
void log_warning(const std::string& message) { write(spdlog::level::warn, message); }
void log_error(const std::string& message) { write(spdlog::level::err, message); }

}  // namespace motley
