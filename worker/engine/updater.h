#pragma once
// The optimizer's state and its step: gradient norm, AdamW (Loshchilov & Hutter 2019), over what a
// rank owns or, where state is not sharded, over all it holds.

#include "worker/engine/engine.h"
#include "worker/engine/shared_memory.h"
#include "worker/engine/stage.h"

namespace motley {

/// A run of elements that is contiguous among the parameters and in the state.
struct UpdateRun {
  int64_t parameter = 0;  ///< offset in elements
  int64_t state = 0;
  int64_t count = 0;
  bool decay = false;
};

/// What is updated and what counts in the norm: fixed when the plan is.
struct UpdateLayout {
  UpdateLayout(const EngineOptions& options, const ParameterLayout& parameters);

  std::vector<FlatTensor> tensors;  ///< of the state
  std::vector<UpdateRun> updated;
  std::vector<UpdateRun> owned;
  int64_t elements = 0;  ///< of the state

 private:
  void add(const FlatTensor& held, const Slice& slice, bool decay);
};

/// Elements handled at a time where a part of the update needs scratch: bounds that.
inline constexpr int64_t kUpdateChunk = 1 << 18;

/// Of parameters and optimizer state.
Placement placement_of(const EngineOptions& options);

class Updater {
 public:
  /// What the update needs: state, sums of squares, scratch in the arena.
  struct Memory {
    Bytes state{0};        ///< of both moments, where they lie on the device
    Bytes host_state{0};   ///< and where in host memory
    bool managed = false;  ///< `state` is in managed memory, as the parameters are
    Bytes squares{0};
    Bytes scratch{0};
  };
  static Memory memory(const EngineOptions& options, const UpdateLayout& layout, int element_bytes);

  /// Allocates on options.account, which must be there, and zeroes. Borrows `weights` and
  /// `gradients`; `scratch` has memory().scratch bytes.
  static Result<Updater> create(Device& device, const EngineOptions& options, UpdateLayout layout,
                                SharedMemory& weights, SharedMemory& gradients, std::byte* scratch);

  const UpdateLayout& layout() const { return layout_; }
  /// Of what is allocated on the device.
  Bytes size() const { return first_.on_device() + second_.on_device() + squares_.size(); }
  /// As Engine::gradient_norm, but not yet divided; exact's gradients have this exponent.
  Result<double> norm(Communicator& world, int exponent);
  /// Exact: of the last norm(), over all ranks.
  uint64_t largest_gradient() const { return largest_gradient_; }
  Result<Unit> update(int64_t step, double lr, double gradient_scale, int exponent);

  /// First or second moment: host view, as Engine::state.
  Result<std::span<std::byte>> state(bool second);
  Result<Unit> state_written(bool second);

 private:
  Updater(Device& device, const EngineOptions& options, UpdateLayout layout, SharedMemory& weights,
          SharedMemory& gradients, std::byte* scratch);
  Result<double> fast_norm(Communicator& world);
  Result<double> exact_norm(Communicator& world, int exponent);
  Result<Unit> update_chunk(AdamwArgs args, const UpdateRun& run, int exponent);
  bool exact() const { return exact_; }

  Device* device_;
  OptimizerSpec optimizer_;
  UpdateLayout layout_;
  bool exact_;
  bool in_host_;
  SharedMemory* weights_;
  SharedMemory* gradients_;
  std::byte* scratch_;
  SharedMemory first_, second_;            // on the device, or
  PinnedMemory host_first_, host_second_;  // in host memory
  SharedMemory squares_;
  uint64_t largest_gradient_ = 0;
};

}  // namespace motley
