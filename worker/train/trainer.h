#pragma once
// An attempt on one rank, from loading to the last checkpoint.

#include <optional>
#include <string>

#include "comm/communicator.h"
#include "core/attempt.h"
#include "core/file_system.h"
#include "core/rehearsal.h"
#include "core/result.h"
#include "worker/train/control_link.h"
#include "worker/train/reporter.h"

namespace motley {

/// The same on all ranks.
struct TrainOutcome {
  bool stopped = false;  ///< on request, before the last step; a checkpoint is saved
  int64_t step = 0;      ///< steps done
  double loss = 0;       ///< of the last step of this attempt
  std::optional<double> eval_loss;
  std::string checkpoint;    ///< directory of the last one saved or resumed from
  std::string weights_xxh3;  ///< when finished
  SectionCount paced;        ///< of this attempt, all ranks
};

/// Trains to the job's last step or until `wishes` say stop. Collective over `world`, which must
/// have the plan's ranks. After an error the world is of no use: give it up.
Result<TrainOutcome> train(const Attempt& attempt, Communicator& world, Reporter& reporter,
                           ControlWishes& wishes, FileSystem& fs = real_file_system());

}  // namespace motley
