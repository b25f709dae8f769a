#pragma once
// The average over groups that train apart (core/sync_groups.h): of weights and both moments,
// weighted by the groups' samples. One holder of each element brings its group's; all holders get
// the same bits.

#include <cstdint>
#include <memory>

#include "comm/communicator.h"
#include "core/plan.h"
#include "core/result.h"
#include "worker/engine/engine.h"
#include "worker/engine/memory_account.h"
#include "worker/train/slice_classes.h"

namespace motley {

class GroupAverage {
 public:
  /// Collective over the ranks of a valid plan whose groups train apart. Borrows `engine`.
  /// `in_host`: the host reaches its device's memory.
  static Result<std::unique_ptr<GroupAverage>> open(const Plan& plan, const ModelSpec& model,
                                                    Communicator& world, Engine& engine,
                                                    bool in_host, MemoryAccount& account);

  /// Collective, with nothing under way on the device.
  Result<Unit> run();

  /// So far, on links between hosts.
  int64_t bytes_sent() const { return reducer_->bytes_sent(); }

 private:
  explicit GroupAverage(Engine& engine) : engine_(engine) {}
  Result<Unit> average(Engine::State which);
  Result<Unit> reduce(std::span<std::byte> flat);

  Engine& engine_;
  double share_ = 1;       ///< of the group
  MemoryCharge charge_;    ///< of the reducer
  CountedMemory staging_;  ///< one state on its way; empty where the host reaches it
  std::unique_ptr<Reducer> reducer_;
};

/// What open() allocates for a rank of the plan of `classes`: nothing where groups do not train
/// apart.
Bytes group_average_needs(PlanClasses& classes, Rank self, int element_bytes, bool in_host);

}  // namespace motley
