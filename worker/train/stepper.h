#pragma once
// One step of training on one rank: its grains forward and backward, then with all ranks the sums,
// the norm and the update.
//
// A paced section reaches from one communication to the next, so it holds the update of one step
// and the computing of the next; steps are counted from the end of one communication to the end of
// the next:
//
//   section 1                communication | section 2                        communication | ...
//   compute 1                sum 1         | update 1   compute 2             sum 2         |
//   `------------- step 1 ---------------´ `--------------- step 2 -----------------------´
//
// Where groups train apart (core/sync_groups.h) "all ranks" are those of a group, and after some
// updates all groups meet: they take the average and agree on what is to come.

#include <cstdint>
#include <functional>
#include <vector>

#include "comm/communicator.h"
#include "core/attempt.h"
#include "core/result.h"
#include "worker/train/pipeline.h"
#include "worker/train/rank_parts.h"

namespace motley {

/// What a rank brings to an agreement of all besides its sums. All ranks learn whether anyone
/// wishes.
struct StepWishes {
  bool stop = false;
  bool save = false;
  bool shard_settled = false;  ///< its part of the save in flight is durable, or has failed
};

struct StepResult {
  double loss = 0;  ///< mean over the global batch's tokens; of a step in which groups do not meet,
                    ///< over the group's
  double gradient_norm = 0;
  double learning_rate = 0;
  double ended = 0;  ///< on the pacer's clock: when the sums were complete
  double compute_seconds = 0;
  double wait_seconds = 0;    ///< in communication, also that of pipeline and tensor parallelism
  double update_seconds = 0;  ///< of the step before; a GPU updates while the next one is put to
                              ///< it, and that counts as computing
  int samples = 0;            ///< computed by this rank
  bool stop = false;
  bool save = false;
  bool all_shards_settled = false;
};

class Stepper {
 public:
  /// Borrows everything; `on_progress` is called after every micro-batch.
  Stepper(const Attempt& attempt, RankParts& parts, Communicator& world,
          std::function<void()> on_progress);

  /// Whether all ranks agree in this step, and then have the same weights: in every one, or where
  /// groups train apart in every so many, and in those after which the job saves or evaluates.
  bool all_meet(int64_t step) const;

  /// Collective. Step number `step`, from 1; wishes are heard where all_meet(). kDiverged when the
  /// loss or the gradient is not finite.
  Result<StepResult> run(int64_t step, const StepWishes& wishes);

  /// Collective, where all have met. Mean loss over the held-out samples.
  Result<double> evaluate();

  /// Collective, after run() and before anybody looks at weights that other ranks update: they may
  /// still be on their way.
  Result<Unit> settle();

  /// Collective, after the last step: waits until its update would be over.
  Result<Unit> finish();

 private:
  struct Sums {
    double loss = 0;
    int64_t tokens = 0;
    bool overflow = false;
    bool begun = false;  ///< somebody sums gradients while computing
  };

  /// `sum_begun`: of this rank's gradients.
  Result<Sums> sum_losses(Communicator& ranks, const LossSums& mine, int64_t step,
                          const StepWishes& wishes, bool sum_begun, StepResult* result);
  bool sums_beside(int64_t step) const;
  bool afterwards(int64_t step) const;
  Result<Unit> compute(int64_t step, bool beside);
  Result<Unit> sum_gradients();
  Result<Unit> finish_sum();
  Result<Unit> sum_with_island();
  Result<Unit> measure_gradient(int64_t step, int64_t tokens, StepResult* result);
  bool lower_scales(int overflows_before);
  tl::unexpected<Error> diverged_at(int64_t step);
  void leave_communication(StepResult* result);
  Result<Unit> update(int64_t step, int64_t tokens, StepResult* result);
  Result<Unit> share_weights(int64_t step);
  Result<Unit> await_weights(const ParameterRange& range);
  Result<Unit> average_groups(const LossSums& mine, int64_t step, const StepWishes& wishes,
                              StepResult* result);
  Result<Unit> agree_on_loss_scale();
  /// Those of its group.
  Communicator& peers() { return parts_.peers ? *parts_.peers : world_; }
  bool exact() const { return attempt_.job.train.numerics == Numerics::kExact; }

  const Attempt& attempt_;
  RankParts& parts_;
  Communicator& world_;
  Pipeline pipeline_;
  const bool exchanges_gradients_;
  const bool exchanges_weights_;
  const bool overlaps_;         ///< gradients may be summed while others are still computed
  const bool weights_overlap_;  ///< all ranks' next forward passes begin while weights arrive
  double update_seconds_ = 0;   ///< in the section that is open
};

}  // namespace motley
