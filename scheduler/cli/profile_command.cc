#include <cstdio>
#include <nlohmann/json.hpp>

#include "core/clock.h"
#include "core/debug_env.h"
#include "core/units.h"
#include "scheduler/cli/command.h"
#include "scheduler/cli/job_options.h"
#include "scheduler/run/measure.h"
#include "scheduler/run/profile_cache.h"
#include "scheduler/run/profile_text.h"

namespace motley {
namespace {

class ProfileCommand final : public Command {
 public:
  void declare(CommandLine& line) override {
    line.positional("JOB", "job file (YAML)", &job_)
        .option("--fleet", "FILE", "devices to measure, instead of the job's own fleet", &fleet_)
        .option("--set", "KEY=VALUE", "override a value of the job", &set_)
        .flag("--refresh", "measure also what is known already", &options_.refresh)
        .flag("--json", "the profile as JSON", &json_)
        .option("--rsh-agent", "PROGRAM", "used instead of ssh to reach other hosts",
                &options_.rsh_agent);
  }

  Result<int> run() override {
    MOTLEY_TRY(const JobSpec job, read_job_with(job_, set_));
    MOTLEY_TRY(const FleetSpec fleet, resolve_fleet(fleet_, job));
    MOTLEY_TRY(const FleetSpec chosen, admitted(fleet, job));
    MOTLEY_TRY_VOID(check_told_apart(chosen));
    SignalInbox signals;
    ProgressLine line(steady_clock());
    const auto profile = obtain_profile(job, chosen, options_, signals, line);
    if (!profile && profile.error().code == ErrorCode::kStopped) return 128 + signals.last();
    if (!profile) return fail(profile.error());
    const std::string text = json_ ? to_json(*profile).dump(1) + "\n" : profile_text(*profile);
    std::fputs(text.c_str(), stdout);
    return 0;
  }

 private:
  MeasureOptions options_;
  std::string job_, fleet_;
  std::vector<std::string> set_;
  bool json_ = false;
};

class ProfilesCommand final : public Command {
 public:
  void declare(CommandLine& line) override { line.flag("--json", "a list of objects", &json_); }

  Result<int> run() override {
    const ProfileCache cache(cache_directory() + "/profiles", "");
    nlohmann::json rows = nlohmann::json::array();
    for (const ProfileCache::Entry& entry : cache.entries()) {
      if (!json_) std::printf("%s", profile_line(entry).c_str());
      rows.push_back({{"file", entry.file},
                      {"job", entry.job},
                      {"measured_at", entry.measured_at},
                      {"code_version", entry.profile.code_version},
                      {"devices", entry.profile.devices.size()}});
    }
    if (json_) std::printf("%s\n", rows.dump().c_str());
    if (!json_ && rows.empty()) std::printf("no profiles yet; `motley profile JOB` makes one\n");
    return 0;
  }

 private:
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_profile_command() { return std::make_unique<ProfileCommand>(); }

std::unique_ptr<Command> make_profiles_command() { return std::make_unique<ProfilesCommand>(); }

}  // namespace motley
