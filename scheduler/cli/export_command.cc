#include <cstdio>
#include <nlohmann/json.hpp>

#include "core/file_system.h"
#include "core/json_file.h"
#include "core/plan.h"
#include "core/spec/json.h"
#include "core/spec/reader.h"
#include "scheduler/cli/command.h"
#include "scheduler/launch/launcher.h"

namespace motley {
namespace {

Result<std::string> hostfile_of(const std::string& path) {
  MOTLEY_TRY(const auto document,
             read_json_file(real_file_system(), path, ErrorCode::kInvalidSpec));
  const auto plan = plan_from_json(document);
  if (!plan) return fail(plan.error().code, plan.error().message, {path, 0, 0});
  return hostfile_text(plan->ranks);
}

Result<std::string> normalised(const std::string& path) {
  MOTLEY_TRY(const JobSpec job, read_job(path));
  return to_json(job).dump(2) + "\n";
}

/// What somebody needs to start ranks with their own mpirun.
class ExportCommand final : public Command {
 public:
  void declare(CommandLine& line) override {
    line.positional("FORMAT", "hostfile: for mpirun; job: job.json, for motley-worker", &format_)
        .positional("FILE", "hostfile: a plan written by `motley plan -o`; job: a job file",
                    &path_);
  }

  Result<int> run() override {
    if (format_ != "hostfile" && format_ != "job")
      return fail(ErrorCode::kUsage, "cannot export '" + format_ + "': known are hostfile, job");
    MOTLEY_TRY(const std::string text, format_ == "job" ? normalised(path_) : hostfile_of(path_));
    std::fputs(text.c_str(), stdout);
    return 0;
  }

 private:
  std::string format_;
  std::string path_;
};

}  // namespace

std::unique_ptr<Command> make_export_command() { return std::make_unique<ExportCommand>(); }

}  // namespace motley
