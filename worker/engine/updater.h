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

/// Where the runs lie in the device's memory, for operations that take all of them at once.
struct UpdateTables {
  explicit UpdateTables(const UpdateLayout& layout);

  Bytes owned{0}, updated{0};  ///< ParameterRun
  Bytes parts{0};              ///< double, one for each block of `owned`
  Bytes size{0};
  int64_t owned_blocks = 0, updated_blocks = 0;
  int64_t owned_elements = 0, updated_elements = 0;
  int64_t extent = 0;  ///< beyond the last parameter or moment of any of them
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
    Bytes squares{0};      ///< for the norm, which the host reads
    Bytes tables{0};       ///< of runs, and the parts of their squares
    Bytes scratch{0};
  };
  static Memory memory(const EngineOptions& options, const UpdateLayout& layout, int element_bytes);

  /// Allocates on options.account, which must be there, and zeroes. Borrows `weights` and
  /// `gradients`; `scratch` has memory().scratch bytes.
  static Result<Updater> create(Device& device, const EngineOptions& options, UpdateLayout layout,
                                SharedMemory& weights, SharedMemory& gradients, std::byte* scratch);

  const UpdateLayout& layout() const { return layout_; }
  /// Of what is allocated on the device.
  Bytes size() const {
    return first_.on_device() + second_.on_device() + squares_.size() + tables_.size();
  }
  /// As Engine::gradient_norm, but not yet divided; exact's gradients have this exponent.
  Result<double> norm(Communicator& world, int exponent, MemoryWindow& window);
  /// Exact: of the last norm(), over all ranks.
  uint64_t largest_gradient() const { return largest_gradient_; }
  /// Does not wait for the device. `rounded`: where the weights' copies in reduced precision lie;
  /// whoever else rounds them passes null.
  Result<Unit> update(int64_t step, double lr, double gradient_scale, int exponent,
                      Address rounded);
  void hold_second_moment_after(int64_t step) { held_after_ = step; }
  int64_t steps_held() const { return steps_held_; }
  void set_steps_held(int64_t steps) { steps_held_ = steps; }
  /// Whether update() updates all weights that there are.
  bool updates_all() const { return updates_all_; }

  /// First or second moment, where it lies on the device and where in host memory.
  SharedMemory& device_state(bool second) { return second ? second_ : first_; }
  std::span<std::byte> host_state(bool second) {
    return (second ? host_second_ : host_first_).bytes();
  }
  bool in_host() const { return in_host_; }

 private:
  Updater(Device& device, const EngineOptions& options, UpdateLayout layout, SharedMemory& weights,
          SharedMemory& gradients, std::byte* scratch);
  Result<double> fast_norm(Communicator& world);
  Result<double> exact_norm(Communicator& world, int exponent, MemoryWindow& window);
  Result<Unit> update_chunks(AdamwArgs args, int exponent);
  Result<Unit> update_chunk(AdamwArgs args, const UpdateRun& run, int exponent);
  Result<Unit> put_tables();
  Address table(Bytes offset) const { return Address::of(tables_.device() + offset.value()); }
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
  SharedMemory tables_;  // of runs owned, of runs updated, parts of squares
  UpdateTables places_;
  bool updates_all_;
  uint64_t largest_gradient_ = 0;
  int64_t held_after_ = INT64_MAX;  ///< step
  int64_t steps_held_ = 0;          ///< so far
};

}  // namespace motley
