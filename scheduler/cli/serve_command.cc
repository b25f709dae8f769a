#include <cstdlib>

#include "core/spec/reader.h"
#include "core/units.h"
#include "scheduler/cli/command.h"
#include "scheduler/policies/policy.h"
#include "scheduler/run/measure.h"
#include "scheduler/service/perform_attempt.h"
#include "scheduler/service/serve.h"
#include "scheduler/service/service_directory.h"

namespace motley {
namespace {

class ServeCommand final : public Command {
 public:
  void declare(CommandLine& line) override {
    std::vector<std::string> policies;
    for (const std::string_view name : policy_names()) policies.emplace_back(name);
    line.option("--state", "DIR", "what it keeps, instead of ~/.local/state/motley/service",
                &options_.state)
        .option("--socket", "PATH", "where it listens, instead of $MOTLEY_SOCKET or in --state",
                &options_.socket)
        .option("--listen", "HOST:PORT", "also over TLS, for those with a token", &listen_)
        .option("--name", "NAME", "another name by which others know this machine (repeatable)",
                &options_.names)
        .option("--fleet", "FILE", "the devices it gives to jobs, instead of this machine's",
                &fleet_)
        .flag("--no-local", "give jobs no device of this machine, only those of agents", &no_local_)
        .option("--policy", "NAME", "who runs next (default: backfill)", &options_.policy)
        .completes(policies)
        .option("--weight", "USER=N",
                "a share of N under fair_share, where others have 1 (repeatable)", &weights_)
        .option("--user-priority", "N",
                "the highest that tokens of the role user may give a job (default: 50)",
                &user_priority_)
        .option("--log-limit", "SIZE",
                "of what an attempt prints; more is dropped; 0: none (default: 1GiB)", &log_limit_)
        .option("--keep", "DURATION",
                "jobs that have ended, with their runs, and events; or forever (default: 90d)",
                &keep_);
  }

  Result<int> run() override {
    if (no_local_ && !fleet_.empty())
      return fail(ErrorCode::kUsage, "one of --fleet and --no-local");
    if (no_local_) {
      options_.fleet.source = "the service's nodes";
    } else if (fleet_.empty()) {
      MOTLEY_TRY(options_.fleet, local_fleet());
    } else {
      MOTLEY_TRY(options_.fleet, read_fleet(fleet_));
    }
    MOTLEY_TRY_VOID(read_listen());
    MOTLEY_TRY_VOID(read_weights());
    MOTLEY_TRY_VOID(check_told_apart(options_.fleet));
    MOTLEY_TRY(options_.keep, keep_of(keep_));
    MOTLEY_TRY_VOID(read_user_priority());
    MOTLEY_TRY_VOID(read_log_limit());
    const bool own_place = !options_.state.empty();
    if (!own_place) options_.state = default_service_directory();
    if (options_.socket.empty())
      options_.socket = own_place ? options_.state + "/socket" : default_socket();
    return serve(std::move(options_));
  }

 private:
  Result<Unit> read_listen() {
    for (const std::string& name : options_.names)
      if (!is_host(name))
        return fail(ErrorCode::kUsage, "--name: expected a host or an address, not '" + name + "'");
    if (!listen_.empty()) {
      MOTLEY_TRY(options_.listen, parse_endpoint(listen_));
    } else if (!options_.names.empty()) {
      return fail(ErrorCode::kUsage, "--name is about --listen, which is missing");
    }
    return Unit{};
  }

  Result<Unit> read_weights() {
    for (const std::string& text : weights_) {
      const size_t sign = text.rfind('=');
      char* end = nullptr;
      const double weight =
          sign == text.npos || sign == 0 ? 0 : std::strtod(text.c_str() + sign + 1, &end);
      if (!(weight > 0 && weight < 1e6) || *end != '\0')
        return fail(
            ErrorCode::kUsage,
            "--weight: expected a user and a number above 0 such as eva=2, found '" + text + "'");
      options_.weights[text.substr(0, sign)] = weight;
    }
    return Unit{};
  }

  Result<Unit> read_user_priority() {
    if (!user_priority_) return Unit{};
    if (*user_priority_ > ServiceSpec::kMostPriority)
      return fail(ErrorCode::kUsage, "--user-priority: expected a number from 0 to 100, found " +
                                         std::to_string(*user_priority_));
    options_.user_priority = static_cast<int>(*user_priority_);
    return Unit{};
  }

  Result<Unit> read_log_limit() {
    const auto limit = parse_bytes(log_limit_);
    if (!limit) return fail(ErrorCode::kUsage, "--log-limit: " + limit.error().message);
    options_.log_limit = *limit;
    return Unit{};
  }

  /// 0: for ever.
  static Result<Nanos> keep_of(const std::string& text) {
    if (text == "forever") return Nanos(0);
    const auto keep = parse_duration(text);
    if (keep && *keep > Nanos(0)) return *keep;
    return fail(ErrorCode::kUsage,
                "--keep: expected a duration such as 90d, or forever, found '" + text + "'");
  }

  ServeOptions options_;
  std::string fleet_, listen_, keep_ = "90d", log_limit_ = "1GiB";
  std::vector<std::string> weights_;
  std::optional<int64_t> user_priority_;
  bool no_local_ = false;
};

/// One attempt of a job, started by the coordinator.
class AttemptCommand final : public Command {
 public:
  void declare(CommandLine& line) override {
    line.positional("DIRECTORY", "of the attempt", &directory_);
  }
  Result<int> run() override { return perform_attempt(directory_); }

 private:
  std::string directory_;
};

}  // namespace

std::unique_ptr<Command> make_serve_command() { return std::make_unique<ServeCommand>(); }
std::unique_ptr<Command> make_attempt_command() { return std::make_unique<AttemptCommand>(); }

}  // namespace motley
