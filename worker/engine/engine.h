#pragma once
// One rank's model: parameters, gradients and optimizer state in flat buffers, and the programs
// that compute with them. One thread. No allocation after create() inside a step.

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/model.h"
#include "core/profile.h"
#include "core/result.h"
#include "core/spec/job_spec.h"
#include "kernels/device.h"
#include "worker/program/parameters.h"

namespace motley {

struct EngineOptions {
  ModelSpec model;
  Numerics numerics = Numerics::kFast;
  std::vector<int>
      micro_batches;  ///< every size that will be run, e.g. {8, 3} when the last one is short
  Bytes memory_limit{INT64_MAX};  ///< kDeviceLost when buffers would exceed it
  OptimizerSpec optimizer;
};

/// The gradient of one step, for the communicator. Exactly one is not empty.
struct GradientSpans {
  std::span<float> floats;
  std::span<double> doubles;
  std::span<int64_t> fixed;
};

/// Sums over the samples run since begin_step(): additive over ranks.
struct LossSums {
  double loss = 0;         ///< fast: Σ over tokens, samples in order
  int64_t loss_fixed = 0;  ///< exact: Σ over samples of llrint(sample's loss · 2^32)
  int64_t tokens = 0;
  int64_t overflow = 0;  ///< exact: a contribution left the fixed-point range
};
inline constexpr double kLossScale = 4294967296.0;  ///< 2^32, of LossSums::loss_fixed

class Engine {
 public:
  /// Compiles, allocates, initialises parameters from `seed`. kInvalidSpec for an impossible model,
  /// kDeviceLost when it does not fit.
  static Result<std::unique_ptr<Engine>> create(Device& device, const EngineOptions& options,
                                                uint64_t seed);
  virtual ~Engine() = default;

  /// Zeroes gradients and sums.
  virtual void begin_step() = 0;
  /// Forward and backward of `samples` samples; tokens is [samples, context + 1] (inputs and,
  /// shifted by one, targets). samples must be one of micro_batches. In exact the caller passes one
  /// grain at a time. kInvalidSpec for a token outside the vocabulary.
  virtual Result<Unit> run_micro_batch(std::span<const int32_t> tokens, int samples) = 0;
  /// Forward only, any number of samples, in pieces of the largest micro-batch of which the last is
  /// filled up; adds to the sums, leaves gradients alone. In exact the grain must be the largest
  /// micro-batch on every rank and the caller passes one grain at a time, so that the pieces are
  /// the same under any plan.
  virtual Result<Unit> evaluate(std::span<const int32_t> tokens, int samples) = 0;
  /// Logits [samples·context, vocab] of inputs [samples, context], for sampling; at most the
  /// largest micro-batch. Forgets the sums.
  virtual Result<std::vector<float>> logits(std::span<const int32_t> inputs, int samples) = 0;
  virtual LossSums sums() const = 0;

  /// Local gradients, to be summed over ranks in place before gradient_norm() and update().
  virtual Result<GradientSpans> gradients() = 0;
  /// The Euclidean norm of the summed gradient divided by `tokens` (global count). Exact: from
  /// fixed point, the same bits for any slicing; only of a step without overflow. Fast: not finite
  /// where a gradient is not.
  virtual Result<double> gradient_norm(int64_t tokens) = 0;
  /// AdamW on the summed gradient; step counts from 1.
  virtual Result<Unit> update(int64_t step, double lr, int64_t tokens, double clip_factor) = 0;

  /// Exact's fixed-point exponent of the coming step; part of the checkpoint. Set it before
  /// begin_step(). The next one, the same on all ranks: after gradient_norm() of a good step from
  /// the largest gradient seen; after an overflow on any rank lower, for the same step again. A
  /// gradient that is not finite overflows at any exponent: give up after four repetitions.
  virtual int exact_exponent() const = 0;
  virtual void set_exact_exponent(int exponent) = 0;
  virtual int next_exact_exponent(bool overflowed) const = 0;

  virtual const std::vector<FlatTensor>& tensors() const = 0;
  enum class State { kWeight, kAdamM, kAdamV };
  /// Host view of a state's flat buffer (element_bytes each), at one address for the engine's life
  /// and current as of this call. Call state_written() after changing it.
  virtual Result<std::span<std::byte>> state(State which) = 0;
  virtual Result<Unit> state_written(State which) = 0;
  virtual int element_bytes() const = 0;
  /// Of run_micro_batch(samples): one of micro_batches.
  virtual double flops(int samples) const = 0;
  /// What was allocated; micro_batch is the largest.
  virtual MemoryPoint memory() const = 0;
  /// XXH3-64 over the weights as fp32, in canonical order.
  virtual Result<std::string> weights_hash() = 0;
};

/// Work of one norm, clip and AdamW step on the whole model, as the pacer charges it.
inline double update_flops(const ModelSpec& model) {
  return 16.0 * static_cast<double>(parameter_count(model));
}

/// Bytes an engine of these options will allocate, for each micro-batch in 1..largest, without
/// allocating or any hardware. options.micro_batches is not looked at.
std::vector<MemoryPoint> estimate_memory(const EngineOptions& options, DeviceKind kind, int threads,
                                         int largest);

}  // namespace motley
