#pragma once
// One rank's part of the model: parameters, gradients and optimizer state in flat buffers, and the
// programs that compute with them. One thread. No allocation after create() inside a step.
//
// A micro-batch passes through in two halves, so that several can be under way in a pipeline; each
// has a slot from its forward to its backward pass:
//
//   put_samples(slot)   [push(kInput)]   forward(slot)    [pull(kOutput)]
//                       [push(kOutputGradient)]   backward(slot)   [pull(kInputGradient)]
//
// with the parts in brackets only where the neighbouring layers are on another rank.

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/device_communicator.h"
#include "core/model.h"
#include "core/plan.h"
#include "core/profile.h"
#include "core/result.h"
#include "core/spec/job_spec.h"
#include "kernels/device.h"
#include "worker/engine/memory_account.h"
#include "worker/engine/staged_view.h"
#include "worker/engine/tensor_group.h"
#include "worker/program/parameters.h"

namespace motley {

struct EngineOptions {
  ModelSpec model;
  Numerics numerics = Numerics::kFast;
  std::vector<int>
      micro_batches;  ///< every size that will be run, e.g. {8, 3} when the last one is short
  Bytes memory_limit{INT64_MAX};     ///< kOutOfMemory when buffers would exceed it
  MemoryAccount* account = nullptr;  ///< of all buffers; borrowed; null: nobody keeps one
  OptimizerSpec optimizer;
  uint64_t seed = 1337;  ///< of the initial weights and of dropout's masks
  /// Whether the loss is scaled, see set_loss_scale_exponent(): where anyone computes in fp16.
  bool scale_loss = false;

  // Of a model that is cut:
  std::optional<StagePlan> stage;  ///< unset: the whole model
  int member = 0;                  ///< of the ranks that share the stage
  int in_flight = 1;               ///< slots
  TensorGroup* group = nullptr;    ///< of these ranks, where they are several; borrowed
  /// What this rank owns; unset: all it holds. Owned slices are counted in the gradient's norm.
  std::optional<std::vector<Ownership>> owned;
  bool shard_optimizer = false;  ///< state and update of owned slices only
  bool host_optimizer = false;   ///< state lies in host memory
  bool managed_memory = false;   ///< parameters and state in memory that the system moves
  // What passes between this rank and others through host memory; where neither does, gradients and
  // weights stay on the device:
  bool exchanges_gradients = false;
  bool exchanges_weights = false;
};

/// The gradient of one step, for the communicator: of all parameters. Exactly one span is not
/// empty.
struct GradientSpans {
  std::span<float> floats;
  std::span<double> doubles;
  std::span<int64_t> fixed;
  StagedView* staged = nullptr;  ///< what brings them to the spans and back; null: there they are
};

/// Sums over the samples run since begin_step(): additive over ranks.
struct LossSums {
  double loss = 0;         ///< fast: Σ over tokens, samples in order
  int64_t loss_fixed = 0;  ///< exact: Σ over samples of llrint(sample's loss · 2^32)
  int64_t tokens = 0;
  int64_t overflow = 0;  ///< exact: a contribution left the fixed-point range; with a scaled loss
                         ///< in fast: a gradient is not finite
};
inline constexpr double kLossUnit = 4294967296.0;  ///< 2^32, of LossSums::loss_fixed

struct MicroBatchInput {
  std::span<const int32_t> tokens;  ///< [samples, context + 1]: inputs and, shifted by one,
                                    ///< targets; may be empty on a stage without embedding and head
  int samples = 0;
  int64_t step = 0;          ///< with first_sample, the key of the samples' random numbers
  int64_t first_sample = 0;  ///< number within the step's global batch
};

/// What passes between neighbouring stages: [samples·context, width] elements of precision().
enum class Boundary { kInput, kOutput, kOutputGradient, kInputGradient };

/// Told of gradients that are final: see Engine::backward_last().
using GradientsFinal = std::function<void(const ParameterRange& range)>;

/// Asked for weights that are about to be used: see Engine::forward_first().
using WeightsNeeded = std::function<Result<Unit>(const ParameterRange& range)>;

class Engine {
 public:
  /// Compiles, allocates, initialises parameters. kInvalidSpec for an impossible model,
  /// kOutOfMemory when it does not fit.
  static Result<std::unique_ptr<Engine>> create(Device& device, const EngineOptions& options);
  virtual ~Engine() = default;

  /// Zeroes gradients and sums.
  virtual void begin_step() = 0;
  /// kInvalidSpec for a token outside the vocabulary.
  virtual Result<Unit> put_samples(int slot, const MicroBatchInput& input) = 0;
  /// Of the micro-batch in `slot`; samples must be one of micro_batches. In exact one grain. A
  /// device that computes on its own is given the work; what the host needs of it is waited for
  /// where it is asked for.
  virtual Result<Unit> forward(int slot, int samples) = 0;
  virtual Result<Unit> backward(int slot, int samples) = 0;
  /// The first forward pass after an update, while weights still arrive from their owners: calls
  /// before_use(range) between two operations, and no operation reads any of the range before it
  /// returns. What the pass does not use is in no range. Where the host does not reach the device,
  /// or products read weights in another precision, the first range is all there is.
  virtual Result<Unit> forward_first(int slot, int samples, const WeightsNeeded& before_use) = 0;
  /// The last backward pass of a step, after which there is none until begin_step(). Calls
  /// on_final(range) as soon as this rank's gradients of a range are final: what gradients() gives
  /// of it now, it gives until update(), without a loss's scale, and no operation uses it any more.
  /// The ranges are disjoint and in the order in which they become final, the last layer's first
  /// and a tied tensor's after both its layers; each is of 1 MiB or more where what is final beside
  /// it and not yet reported comes to that; at the end every held element has been in one.
  ///
  /// on_final must not be null. It is called on this thread, between two operations, and of the
  /// engine it may call gradients(), staged_gradients() and device_gradients(). Where host code
  /// reaches the device's memory, it and any other thread may from then on read and change the
  /// range, in spans that gradients() gave in this step, before or after. A device that computes on
  /// its own is given the pass in one piece: its only range is all, at the end, and final means
  /// enqueued: what is enqueued from then on, a copy by staged_gradients() too, finds it so.
  ///
  /// Nothing here says that no gradient has left its range: sums() does, of all of them. After an
  /// overflow, as after a failure of this call, ranges are void, and the step begins again.
  virtual Result<Unit> backward_last(int slot, int samples, const GradientsFinal& on_final) = 0;
  /// Forward only, of what is in slot 0: at most the largest micro-batch, as which it is computed.
  /// Adds to the sums, leaves gradients alone. In exact the grain must be the largest micro-batch
  /// on every rank and the caller passes one grain at a time, so that the pieces are the same under
  /// any plan.
  virtual Result<Unit> evaluate(int samples) = 0;
  /// Host views of what passes between stages. pull() waits for the device; what was put into
  /// view() reaches it by push().
  virtual Result<std::span<std::byte>> pull(int slot, Boundary boundary, int samples) = 0;
  virtual std::span<std::byte> view(int slot, Boundary boundary, int samples) = 0;
  virtual Result<Unit> push(int slot, Boundary boundary, int samples) = 0;

  /// Logits [samples·context, vocab] of inputs [samples, context], for sampling; at most the
  /// largest micro-batch. Of a whole model. Forgets the sums.
  virtual Result<std::vector<float>> logits(std::span<const int32_t> inputs, int samples) = 0;
  /// Waits for the device.
  virtual Result<LossSums> sums() = 0;

  /// Local gradients, to be summed over ranks in place before gradient_norm() and update(). Only
  /// `parts` (rising) are brought to the host, and what becomes of them back: what else a device
  /// that computes on its own has is not in the spans.
  virtual Result<GradientSpans> gradients(std::span<const ParameterRange> parts) = 0;
  /// The same of what is asked of `staged` alone, while the exchange goes on.
  virtual Result<GradientSpans> staged_gradients() = 0;
  /// All of them.
  Result<GradientSpans> gradients() {
    const ParameterRange all{0, held_elements()};
    return gradients(std::span(&all, 1));
  }
  /// Parameters this rank holds.
  virtual int64_t held_elements() const = 0;
  /// The gradients where they lie on the device, behind all that has been enqueued and with what
  /// the host has made of them: whoever sums them there need not take them to the host.
  virtual Result<DeviceArray> device_gradients() = 0;
  /// Collective: the Euclidean norm of the summed gradient, of which each rank has what it owns,
  /// divided by `tokens` (global count). Exact: from fixed point, the same bits for any slicing;
  /// only of a step without overflow. Fast: not finite where a gradient is not.
  virtual Result<double> gradient_norm(int64_t tokens, Communicator& world) = 0;
  /// AdamW on the summed gradient; step counts from 1. Where state is sharded the weights of slices
  /// that others own are theirs to send afterwards. Does not wait for the device.
  virtual Result<Unit> update(int64_t step, double lr, int64_t tokens, double clip_factor) = 0;
  /// Updates of later steps leave AdamW's second moment as it is. From 1.
  virtual void hold_second_moment_after(int64_t step) = 0;
  /// In how many updates so far it was held: what its bias is corrected for knows. Part of the
  /// checkpoint.
  virtual int64_t steps_held() const = 0;
  virtual void set_steps_held(int64_t steps) = 0;
  /// Elements update() changes.
  virtual int64_t updated_elements() const = 0;

  /// Exact's fixed-point exponent of the coming step; part of the checkpoint. Set it before
  /// begin_step(). The next one, the same on all ranks: after gradient_norm() of a good step from
  /// the largest gradient seen; after an overflow on any rank lower, for the same step again. A
  /// gradient that is not finite overflows at any exponent: give up after four repetitions.
  virtual int exact_exponent() const = 0;
  virtual void set_exact_exponent(int exponent) = 0;
  virtual int next_exact_exponent(bool overflowed) const = 0;

  /// Backward passes differentiate 2^exponent times the loss, which keeps small gradients within
  /// the range of fp16 (Micikevicius et al. 2018); gradients() are without it again. Part of the
  /// checkpoint. Set it before begin_step().
  virtual void set_loss_scale_exponent(int exponent) = 0;

  enum class State { kWeight, kAdamM, kAdamV };
  /// What lies where in a state's flat buffer: of weights (and gradients) all this rank holds, of
  /// the moments what it updates.
  virtual const std::vector<FlatTensor>& tensors(State which = State::kWeight) const = 0;
  /// Host view of a state's flat buffer (element_bytes each), at one address for the engine's life
  /// and current as of this call; where the host does not reach the device, a copy of all of it.
  /// Call state_written() after changing it.
  virtual Result<std::span<std::byte>> state(State which) = 0;
  /// Bytes [offset, …) of it as they are now, without such a copy. What is written is there after
  /// state_written().
  virtual Result<Unit> read_state(State which, Bytes offset, std::span<std::byte> into) = 0;
  virtual Result<Unit> write_state(State which, Bytes offset, std::span<const std::byte> from) = 0;
  virtual Result<Unit> state_written(State which) = 0;
  /// Whether state() is the state itself.
  virtual bool state_in_reach(State which) const = 0;
  /// Of the device: that of a State's elements is full_precision() of it, that of boundaries
  /// itself.
  virtual Precision precision() const = 0;
  int element_bytes() const { return full_bytes(precision()); }
  /// Operations of one micro-batch.
  struct Work {
    double forward = 0;
    double backward = 0;

    double total() const { return forward + backward; }
  };
  virtual Work flops(int samples) const = 0;
  virtual double evaluation_flops() const = 0;
  /// What was allocated on the device, counted buffer by buffer; micro_batch is the largest. The
  /// account also knows what lies in host memory.
  virtual MemoryPoint memory() const = 0;
};

/// Of an engine that holds a whole model: one micro-batch forward and backward.
Result<Unit> run_micro_batch(Engine& engine, std::span<const int32_t> tokens, int samples);
/// Of an engine that holds a whole model: any number of samples, in pieces of its largest
/// micro-batch.
Result<Unit> evaluate_all(Engine& engine, std::span<const int32_t> tokens, int samples);

/// Work of one norm, clip and AdamW step on so many elements, as the pacer charges it.
inline double update_flops(int64_t elements) { return 16.0 * static_cast<double>(elements); }

/// What of a device decides how many bytes an engine needs; no hardware.
struct DeviceTraits {
  DeviceKind kind = DeviceKind::kCpu;
  Precision precision = Precision::kFp32;
  int threads = 1;
};
DeviceTraits traits_of(const Device& device);

/// Bytes an engine of these options will allocate, for each micro-batch in 1..largest, without
/// allocating or any hardware. options.micro_batches is not looked at.
std::vector<MemoryPoint> estimate_memory(EngineOptions options, const DeviceTraits& device,
                                         int largest);

/// Bytes of a rank by what they are for. On the device by how long they are in use:
struct MemoryEstimate {
  Bytes fixed{0};  ///< always: parameters, gradients, optimizer state
  // Of `fixed`, and of managed memory:
  Bytes parameters{0};  ///< with their copies in reduced precision
  Bytes gradients{0};
  Bytes optimizer{0};
  Bytes saved{0};      ///< from forward to backward pass, of all micro-batches in flight, with what
                       ///< passes between neighbouring stages
  Bytes transient{0};  ///< within one pass; with one micro-batch in flight all activations
  // In host memory; the first two are not the engine's (worker/train/rank_memory.h):
  Bytes exchange{0};       ///< slices on their way to and from other ranks
  Bytes snapshot{0};       ///< the copy of the state that a checkpoint is written from
  Bytes host{0};           ///< optimizer state kept there; of a GPU's memory the host's views
                           ///< of what it reads, writes or exchanges
  bool one_memory = true;  ///< the device is a CPU: its memory is the host's

  Bytes on_device() const { return fixed + saved + transient; }
  Bytes in_host() const { return exchange + snapshot + host; }
  /// What the device's limit is for.
  Bytes total() const { return one_memory ? on_device() + in_host() : on_device(); }
  /// What the host needs besides.
  Bytes host_total() const { return one_memory ? Bytes(0) : in_host(); }
};
/// What an engine of these options will allocate, without allocating or any hardware.
MemoryEstimate estimate_engine(const EngineOptions& options, const DeviceTraits& device);

}  // namespace motley
