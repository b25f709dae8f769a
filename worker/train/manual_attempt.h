#pragma once
// An attempt put together from files named on the command line, for `mpirun motley-worker train`
// typed by hand: there is no runner that would have made one.

#include <string>

#include "comm/communicator.h"
#include "core/attempt.h"
#include "core/file_system.h"
#include "core/result.h"

namespace motley {

struct ManualAttemptFiles {
  std::string job;  ///< job.json
  std::string
      plan;  ///< written by `motley plan -o`: with a member "fleet", or fleet.json beside it
  std::string run_dir;
  std::string resume = "newest";  ///< newest | none | a checkpoint's name
};

/// Collective; rank 0's run directory counts. Writes nothing. kInvalidSpec with the place of what
/// is wrong in the job or the plan, kUsage when the plan is for another number of ranks.
Result<Attempt> read_manual_attempt(Communicator& world, const ManualAttemptFiles& files);

/// Collective, by whoever holds the lock of the run directory. The epoch becomes one above all
/// before; job.json and the attempt's plan are written there as `motley run` does. kInvalidSpec
/// naming the key when the run was begun with another model, data or train.
Result<Unit> begin_manual_attempt(Communicator& world, FileSystem& fs, Attempt* attempt);

}  // namespace motley
