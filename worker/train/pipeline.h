#pragma once
// A rank's micro-batches of a step, through its stage: 1F1B with its neighbours (core/pipeline.h).
// A replica of one stage is a pipeline without neighbours.

#include <cstdint>
#include <functional>
#include <vector>

#include "comm/communicator.h"
#include "core/attempt.h"
#include "core/pipeline.h"
#include "worker/train/rank_parts.h"

namespace motley {

/// What goes on beside a step's passes; each may be empty.
struct PassHooks {
  WeightsNeeded before_use = {};  ///< in the first forward pass: Engine::forward_first()
  std::function<Result<Unit>()> after_first_forward = {};
  std::function<Result<Unit>()> before_last_backward = {};
  GradientsFinal on_final = {};  ///< in the last backward pass: Engine::backward_last()
};

class Pipeline {
 public:
  /// Borrows everything; `on_progress` is called after every micro-batch.
  Pipeline(const Attempt& attempt, RankParts& parts, Communicator& world,
           std::function<void()> on_progress);

  /// Forward and backward of this rank's part of step `step`, from 1. Leaves a section open.
  Result<Unit> train(int64_t step, const PassHooks& hooks = {});
  /// Forward of its part of the held-out samples. Leaves a section open.
  Result<Unit> evaluate();

 private:
  /// A message on its way to other ranks, and before it, where it is announced, when it was sent.
  struct Sent {
    std::vector<SendId> ids;
    int64_t stamp = 0;
  };
  struct Slot {
    Sent output, d_input;
  };

  Result<Unit> put(int slot, int64_t step, const SampleRange& range);
  /// `first`: Engine::forward_first() with it; null: weights are all there.
  Result<Unit> forward(int slot, int64_t step, const SampleRange& range,
                       const WeightsNeeded* first);
  /// `last`: Engine::backward_last() with it; null: another pass follows, or nobody is to be told.
  Result<Unit> backward(int slot, const SampleRange& range, const GradientsFinal* last);
  Result<Unit> evaluate_piece(const SampleRange& range);
  void charge(double flops, int samples);

  Result<Unit> receive(int slot, Boundary boundary, int samples, int from);
  Result<Unit> send(int slot, Boundary boundary, int samples, const std::vector<int>& to,
                    Sent* sent);
  Result<Unit> settle(Sent* sent);
  Result<Unit> settle_all();
  /// What the stage beyond a boundary computes in.
  Precision beyond(Boundary boundary) const;
  bool has_previous() const { return input_from_ >= 0; }
  bool has_next() const { return gradient_from_ >= 0; }
  /// A stamp travels ahead of every message: under the virtual clock it says when that was sent,
  /// and in a trace waiting ends where it arrives.
  bool announced() const { return attempt_.trace || parts_.pacer.virtual_clock(); }

  const Attempt& attempt_;
  RankParts& parts_;
  Communicator& world_;
  std::function<void()> on_progress_;
  std::vector<PipelineAction> schedule_;
  // Ranks of the neighbouring stages that this one deals with.
  int input_from_ = -1, gradient_from_ = -1;                         ///< -1: there is no such stage
  Precision previous_ = Precision::kFp32, next_ = Precision::kFp32;  ///< what they compute in
  std::vector<int> output_to_, d_input_to_;
  std::vector<Slot> slots_;
  std::vector<int32_t> tokens_;  ///< of the largest micro-batch
};

}  // namespace motley
