#include "scheduler/run/resumed.h"

#include <filesystem>
#include <optional>
#include <utility>

#include "core/spec/reader.h"

namespace motley {

Result<Resumed> find_resumed(const std::string& run_or_job) {
  std::error_code ignored;
  if (std::filesystem::is_regular_file(run_or_job, ignored)) {
    MOTLEY_TRY(JobSpec job, read_job(run_or_job, {}, JobParts::kAllOrProgram));
    MOTLEY_TRY(std::optional<RunDirectory> newest, RunDirectory::newest(job));
    if (newest) return Resumed{std::move(*newest), std::move(job)};
    MOTLEY_TRY(RunDirectory run, RunDirectory::find(job.name));
    return Resumed{std::move(run), std::move(job)};
  }
  MOTLEY_TRY(RunDirectory run, RunDirectory::find(run_or_job));
  MOTLEY_TRY(JobSpec job, run.job());
  return Resumed{std::move(run), std::move(job)};
}

}  // namespace motley
