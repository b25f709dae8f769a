#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/file_system.h"
#include "core/json_file.h"
#include "core/json_place.h"
#include "core/plan_completion.h"
#include "core/spec/json.h"
#include "core/spec/reader.h"
#include "scheduler/cli/command.h"
#include "scheduler/cli/job_options.h"
#include "scheduler/cli/output_file.h"
#include "scheduler/launch/launcher.h"
#include "scheduler/run/trace_export.h"

namespace motley {
namespace {

constexpr Bytes kLargestPlan{256 << 20};

Result<std::string> hostfile_of(const std::string& path) {
  MOTLEY_TRY(const std::string text, read_text(real_file_system(), path, kLargestPlan));
  MOTLEY_TRY(const auto document, parse_json_file(text, path, ErrorCode::kInvalidSpec));
  const auto plan = plan_from_json(document);
  if (!plan) return fail(placed_in(plan.error(), text, path));
  if (const auto hosts = check_hosts_named(*plan, path); !hosts)
    return fail(placed_in(hosts.error(), text, path));
  return hostfile_text(plan->ranks);
}

/// `fleet`: takes the place of the job's own, once it is known to be one; empty: none given.
Result<std::string> normalised(const std::string& path, const std::vector<std::string>& set,
                               const std::string& fleet) {
  MOTLEY_TRY(JobSpec job, read_job_with(path, set));
  if (!fleet.empty()) {
    MOTLEY_TRY_VOID(read_fleet(fleet));
    job.fleet_path = std::filesystem::absolute(fleet).lexically_normal().string();
  }
  return to_json(job).dump(2) + "\n";
}

/// Of what was traced; ranks whose files lie on other hosts are named.
Result<std::string> trace_of(const std::string& name) {
  MOTLEY_TRY(const RunDirectory run, RunDirectory::find(name));
  MOTLEY_TRY(MergedTrace trace, merged_trace(run));
  if (!trace.missing.empty())
    std::fprintf(stderr, "without rank %s: no trace in %s here\n", trace.missing.c_str(),
                 trace.directory.c_str());
  return std::move(trace.text);
}

/// What other programs need: to start ranks with their own mpirun, to look at a run.
class ExportCommand final : public Command {
 public:
  void declare(CommandLine& line) override {
    line.positional("FORMAT",
                    "hostfile: for mpirun; job: job.json, for motley-worker; trace: for Perfetto "
                    "or chrome://tracing",
                    &format_)
        .completes({"hostfile", "job", "trace"})
        .positional("FROM",
                    "hostfile: a plan written by `motley plan -o`; job: a job file; trace: a run "
                    "made with --trace (directory, name or name/n)",
                    &from_)
        .option("-o,--output", "FILE", "write there instead of stdout", &output_)
        .option("--set", "KEY=VALUE", "job: override a value of it", &set_)
        .option("--fleet", "FILE", "job: devices to use, instead of the job's own fleet", &fleet_);
  }

  Result<int> run() override {
    MOTLEY_TRY(const std::string text, exported());
    if (output_.empty())
      std::fputs(text.c_str(), stdout);
    else
      MOTLEY_TRY_VOID(write_output_file(output_, text));
    return 0;
  }

 private:
  Result<std::string> exported() const {
    if (format_ != "job" && !(set_.empty() && fleet_.empty()))
      return fail(ErrorCode::kUsage, "--set and --fleet are for `motley export job`");
    if (format_ == "hostfile") return hostfile_of(from_);
    if (format_ == "job") return normalised(from_, set_, fleet_);
    if (format_ == "trace") return trace_of(from_);
    return fail(ErrorCode::kUsage,
                "cannot export '" + format_ + "': known are hostfile, job, trace");
  }

  std::string format_, from_, output_, fleet_;
  std::vector<std::string> set_;
};

}  // namespace

std::unique_ptr<Command> make_export_command() { return std::make_unique<ExportCommand>(); }

}  // namespace motley
