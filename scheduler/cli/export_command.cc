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
#include "scheduler/launch/slurm.h"
#include "scheduler/launch/worker_program.h"
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
    line.positional(
            "FORMAT",
            "hostfile: for mpirun; job: job.json, for motley-worker; slurm: a batch script; "
            "trace: for Perfetto or chrome://tracing",
            &format_)
        .completes({"hostfile", "job", "slurm", "trace"})
        .positional(
            "FROM",
            "hostfile: a plan written by `motley plan -o`; job, slurm: a job file; trace: a run "
            "made with --trace (directory, name or name/n)",
            &from_)
        .option("-o,--output", "FILE", "write there instead of stdout", &output_)
        .option("--set", "KEY=VALUE", "job, slurm: override a value of the job", &set_)
        .option("--fleet", "FILE", "job: devices to use, instead of the job's own fleet", &fleet_)
        .option("--nodes", "MIX",
                "slurm: nodes by feature (a100:1,rtx3090:2), or how many of any (3)", &nodes_)
        .option("--partition", "NAME", "slurm: instead of the default one", &script_.partition)
        .option("--time", "LIMIT", "slurm: limit of an allocation, as sbatch takes it",
                &script_.time)
        .option("--grace", "SECONDS", "slurm: before the limit, to save a checkpoint in (300)",
                &grace_)
        .option("--sbatch", "OPTION", "slurm: a further option, such as --sbatch=--account=lab",
                &script_.options);
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
    if (format_ != "job" && !fleet_.empty())
      return fail(ErrorCode::kUsage, "--fleet is for `motley export job`");
    if (format_ != "job" && format_ != "slurm" && !set_.empty())
      return fail(ErrorCode::kUsage, "--set is for `motley export job` and `slurm`");
    const bool slurm_options = !nodes_.empty() || !script_.partition.empty() ||
                               !script_.time.empty() || grace_ || !script_.options.empty();
    if (format_ != "slurm" && slurm_options)
      return fail(ErrorCode::kUsage,
                  "--nodes, --partition, --time, --grace, --sbatch are for `motley export slurm`");
    if (format_ == "hostfile") return hostfile_of(from_);
    if (format_ == "job") return normalised(from_, set_, fleet_);
    if (format_ == "slurm") return batch_script();
    if (format_ == "trace") return trace_of(from_);
    return fail(ErrorCode::kUsage,
                "cannot export '" + format_ + "': known are hostfile, job, slurm, trace");
  }

  Result<std::string> batch_script() const {
    if (nodes_.empty())
      return fail(ErrorCode::kUsage,
                  "--nodes is missing: which nodes to ask for, by feature, such as "
                  "--nodes a100:1,rtx3090:2 (`sinfo --format '%N %f %G'` lists features)");
    MOTLEY_TRY(const JobSpec job, read_job_with(from_, set_, JobParts::kAllOrProgram));
    SlurmScript script = script_;
    MOTLEY_TRY(script.mix, parse_mix(nodes_));
    if (grace_ && (*grace_ < 1 || *grace_ > 65535))
      return fail(ErrorCode::kUsage, "--grace: Slurm takes 1 to 65535 seconds");
    for (const std::string& option : script.options)
      if (!option.starts_with("-") || option.find('\n') != std::string::npos)
        return fail(ErrorCode::kUsage,
                    "--sbatch: expected an option of sbatch such as "
                    "--sbatch=--account=lab, found '" +
                        option + "'");
    script.grace_seconds = static_cast<int>(grace_.value_or(script.grace_seconds));
    MOTLEY_TRY_VOID(check_limits(script));
    script.name = job.name;
    script.program = own_program();
    script.job_file = std::filesystem::absolute(from_).lexically_normal().string();
    script.directory = std::filesystem::current_path().string();
    for (const std::string& value : set_)
      script.run_arguments.insert(script.run_arguments.end(), {"--set", value});
    return sbatch_text(script);
  }

  /// One that is warned as soon as it begins would go to the queue again for ever.
  static Result<Unit> check_limits(const SlurmScript& script) {
    if (script.partition.find_first_of(" \t\n") != std::string::npos)
      return fail(ErrorCode::kUsage, "--partition: '" + script.partition + "' is no name");
    if (script.time.empty()) return Unit{};
    MOTLEY_TRY(const int64_t seconds, parse_slurm_time(script.time));
    if (seconds == 0 || seconds > script.grace_seconds) return Unit{};
    return fail(ErrorCode::kUsage, "--time " + script.time + " leaves nothing but the " +
                                       std::to_string(script.grace_seconds) +
                                       " s to save in: more --time, or less --grace SECONDS");
  }

  std::string format_, from_, output_, fleet_, nodes_;
  std::optional<int64_t> grace_;
  SlurmScript script_;
  std::vector<std::string> set_;
};

}  // namespace

std::unique_ptr<Command> make_export_command() { return std::make_unique<ExportCommand>(); }

}  // namespace motley
