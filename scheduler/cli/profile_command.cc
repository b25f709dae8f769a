#include <cstdio>
#include <nlohmann/json.hpp>

#include "core/clock.h"
#include "core/debug_env.h"
#include "core/units.h"
#include "scheduler/cli/command.h"
#include "scheduler/cli/job_options.h"
#include "scheduler/cli/service_command.h"
#include "scheduler/report/table.h"
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
    MOTLEY_TRY(JobSpec job, read_job_with(job_, set_));
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
  void declare(CommandLine& line) override {
    line.flag("--service", "what the job service has measured, instead of this machine's", &asked_)
        .flag("--json", "a list of objects", &json_);
    declare_service(line, &service_);
  }

  Result<int> run() override {
    return asked_ || !service_.server.empty() || !service_.socket.empty() ? show_service()
                                                                          : show_cache();
  }

 private:
  Result<int> show_service() const {
    MOTLEY_TRY(const ServiceClient client, client_of(service_));
    MOTLEY_TRY(const nlohmann::json page, client.get("/v1/profiles?limit=200"));
    const nlohmann::json& rows = page["profiles"];
    if (json_) {
      std::printf("%s\n", rows.dump().c_str());
      return 0;
    }
    TextTable table({{"job", Align::kRight},
                     {"name", Align::kLeft},
                     {"device type", Align::kLeft},
                     {"samples/s", Align::kRight},
                     {"measured", Align::kLeft}});
    for (const nlohmann::json& row : rows)
      table.add_row({std::to_string(row.value("job", int64_t{0})), row.value("name", ""),
                     row.value("type", ""), format_fixed(row.value("samples_per_second", 0.0), 1),
                     time_text(row["measured"])});
    std::printf("%s", table.to_string().c_str());
    return 0;
  }

  Result<int> show_cache() const {
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

  ServiceChoice service_;
  bool asked_ = false, json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_profile_command() { return std::make_unique<ProfileCommand>(); }

std::unique_ptr<Command> make_profiles_command() { return std::make_unique<ProfilesCommand>(); }

}  // namespace motley
