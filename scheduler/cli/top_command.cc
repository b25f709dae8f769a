// top: what each device of the service does, again and again.

#include <poll.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/units.h"
#include "scheduler/cli/service_command.h"
#include "scheduler/report/table.h"
#include "scheduler/run/signal_inbox.h"
#include "scheduler/run/terminal.h"

namespace motley {
namespace {

using nlohmann::json;

constexpr int kRefreshMilliseconds = 2000;
constexpr size_t kNameColumns = 10;  // with those of figures they fit 80

std::string percent_text(const json& share) {
  return share.is_number() ? format_fixed(share.get<double>() * 100, 0) + "%" : "-";
}

std::string with_unit(const json& number, const char* unit) {
  return number.is_number() ? number.dump() + unit : "-";
}

/// "1.2/36.0 GiB": what the driver tells, else what the plan counts.
std::string memory_text(const json& device) {
  const bool told = device["gpu_memory_used_bytes"].is_number();
  const json& used = device[told ? "gpu_memory_used_bytes" : "memory_bytes"];
  const json& limit = device[told ? "gpu_memory_bytes" : "memory_limit_bytes"];
  if (!used.is_number() || !limit.is_number()) return "-";
  const bool large = limit.get<double>() >= 1 << 30;
  const double unit = large ? 1 << 30 : 1 << 20;
  return format_fixed(used.get<double>() / unit, 1) + "/" +
         format_fixed(limit.get<double>() / unit, 1) + (large ? " GiB" : " MiB");
}

std::string job_text(const json& device) {
  if (device.value("state", "free") == "free") return "-";
  if (!device["job"].is_number()) return device.value("state", "");
  return device["job"].dump() + " " + device.value("job_name", "");
}

/// A line for each device, then one for each rank that holds others up.
std::string devices_text(const json& answer) {
  TextTable table({{"device", Align::kLeft},
                   {"type", Align::kLeft},
                   {"job", Align::kLeft},
                   {"busy", Align::kRight},
                   {"wait", Align::kRight},
                   {"step", Align::kRight},
                   {"memory", Align::kRight},
                   {"gpu", Align::kRight},
                   {"temp", Align::kRight}});
  for (const json& device : answer["devices"]) {
    const json& step = device["step_seconds"];
    table.add_row({device.value("device", ""), cut_to_width(device.value("type", ""), kNameColumns),
                   cut_to_width(job_text(device), kNameColumns), percent_text(device["busy_share"]),
                   percent_text(device["waiting_share"]),
                   step.is_number() ? format_duration(step.get<double>()) : "-",
                   memory_text(device), with_unit(device["gpu_utilisation"], "%"),
                   with_unit(device["temperature"], "C")});
  }
  std::string text = table.to_string();
  for (const json& straggler : answer["stragglers"])
    text += "job " + straggler["job"].dump() + ": " + straggler.value("text", "") + "\n";
  return text;
}

/// The terminal shows a page of its own and passes keys on at once; afterwards all is as before.
class FullScreen {
 public:
  FullScreen() : keys_(::tcgetattr(STDIN_FILENO, &before_) == 0) {
    if (keys_) {
      termios now = before_;
      now.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
      ::tcsetattr(STDIN_FILENO, TCSANOW, &now);
    }
    std::printf("\x1b[?1049h\x1b[?25l");
  }
  ~FullScreen() {
    std::printf("\x1b[?25h\x1b[?1049l");
    std::fflush(stdout);
    if (keys_) ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  FullScreen(const FullScreen&) = delete;
  FullScreen& operator=(const FullScreen&) = delete;

  /// As much of it as there is room for.
  static void show(const std::string& text) {
    const auto columns =
        static_cast<size_t>(std::max(2, terminal_columns(STDOUT_FILENO).value_or(80)));
    const int rows = terminal_rows(STDOUT_FILENO).value_or(24);
    std::istringstream lines(without_controls(text));
    std::string page = "\x1b[H";
    std::string line;
    for (int row = 1; row < rows && std::getline(lines, line); ++row)
      page += cut_to_width(line, columns - 1) + "\x1b[K\n";
    std::printf("%s\x1b[J", page.c_str());
    std::fflush(stdout);
  }
  bool has_keys() const { return keys_; }

 private:
  termios before_{};
  bool keys_;
};

class TopCommand final : public Command {
 public:
  void declare(CommandLine& line) override {
    line.flag("--once", "print it and end, as where stdout is no terminal", &once_)
        .flag("--json", "one JSON object", &json_);
    declare_service(line, &service_);
  }

  Result<int> run() override {
    MOTLEY_TRY(const ServiceClient client, client_of(service_));
    MOTLEY_TRY(const json answer, client.get("/v1/devices"));
    if (json_)
      std::printf("%s\n", answer.dump().c_str());
    else if (once_ || ::isatty(STDOUT_FILENO) != 1)
      std::printf("%s", shown_on(stdout, devices_text(answer)).c_str());
    else
      return watch(client, answer);
    return 0;
  }

 private:
  /// A coordinator that is gone for a while is waited for.
  static int watch(const ServiceClient& client, json answer) {
    SignalInbox signals;
    const FullScreen screen;
    const std::string hint = "q: end\n";
    screen.show(devices_text(answer) + hint);
    while (!wants_to_end(signals, screen.has_keys())) {
      auto asked = client.get("/v1/devices");
      if (asked) answer = std::move(*asked);
      screen.show(devices_text(answer) + (asked ? hint : asked.error().to_string() + "\n"));
    }
    return signals.last() == 0 || signals.last() == SIGINT ? 0 : 128 + signals.last();
  }

  /// Waits for it until the next look is due.
  static bool wants_to_end(SignalInbox& signals, bool keys) {
    pollfd polled[] = {{signals.fd(), POLLIN, 0}, {keys ? STDIN_FILENO : -1, POLLIN, 0}};
    ::poll(polled, 2, kRefreshMilliseconds);
    if (signals.next()) return true;
    char key = '\0';
    if ((polled[1].revents & POLLIN) == 0) return (polled[1].revents & POLLHUP) != 0;
    return ::read(STDIN_FILENO, &key, 1) != 1 || key == 'q';
  }

  ServiceChoice service_;
  bool once_ = false, json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_top_command() { return std::make_unique<TopCommand>(); }

}  // namespace motley
