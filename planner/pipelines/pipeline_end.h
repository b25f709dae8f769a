#pragma once
// When a pipeline whose micro-batches are alike is through: simulate_pipeline()'s end to the
// nanosecond, without its timeline. A round, one backward pass of each stage and what forward
// passes follow, depends on the round before alone. Where every time moves on as it did in the
// round before, it does until what a stage waits for begins or ceases to be late; where all have
// moved on by the same as some rounds before, they will for good (a max-plus recurrence; Baccelli
// et al. 1992, "Synchronization and Linearity"): such rounds are skipped.

#include <cstddef>
#include <vector>

#include "core/ids.h"

namespace motley {

/// How long a stage takes for each of its micro-batches.
struct AlikePasses {
  Nanos first_forward{0};  ///< of micro-batches begun before the stage's first backward pass
  Nanos forward{0};
  Nanos last_forward{0};  ///< of the last micro-batch, whenever it begins
  Nanos backward{0};
  Nanos last_backward{0};
  Nanos ready{0};            ///< when the stage is free for the step
  Nanos forward_travels{0};  ///< from the end of a pass until the neighbour has what it sent
  Nanos backward_travels{0};
};

/// The end of the last action of any stage; of one stage at least and one micro-batch.
Nanos pipeline_end(const std::vector<AlikePasses>& stages, int micro_batches);

}  // namespace motley
