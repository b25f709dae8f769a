#pragma once
// What passes between the ranks of a plan at the end of a step, in classes of elements that the
// same ranks hold: however each replica is cut, the holders of every element are found by cutting
// the logical tensors where any slice ends.

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/device_islands.h"
#include "core/plan.h"
#include "core/reduction.h"
#include "worker/program/parameters.h"

namespace motley {

enum class SliceUse {
  kSumsToHolders,    ///< every counted copy of a gradient is added up, and all holders get the sum
  kSumsToOwners,     ///< the owner alone gets it (sharded optimizer state)
  kAllToOwners,      ///< what any holder has is added up for the owner (what compression lost)
  kOwnersToHolders,  ///< what the owner has goes to the other holders (its weights, then)
  kGroupsToHolders,  ///< one holder of each group that trains apart contributes, all get the sum
};

struct SliceClasses {
  std::vector<ReductionClass> classes;
  std::vector<std::vector<ElementRun>> runs;  ///< of this rank's flat buffers, of each class

  /// Whether this rank has a part in any.
  bool any() const;
};

/// Of a valid plan: all classes that pass between ranks, the same on every rank, and the runs of
/// `self`; but for the tensors `without`. Of a gradient each island of GPUs has one copy.
SliceClasses slice_classes(const Plan& plan, const ModelSpec& model, Rank self, SliceUse use,
                           const DeviceIslands& islands = {},
                           const std::set<std::string>& without = {});

struct ModelHolders;

/// The same classes without the runs of any rank, found once for all that ask: ranks of large plans
/// are counted one after another. Borrows plan and model.
class PlanClasses {
 public:
  PlanClasses(const Plan& plan, const ModelSpec& model, DeviceIslands islands = {});
  ~PlanClasses();

  const Plan& plan() const { return plan_; }
  const ModelSpec& model() const { return model_; }
  const DeviceIslands& islands() const { return islands_; }
  const std::vector<ReductionClass>& of(SliceUse use, const std::set<std::string>& without = {});
  /// Whether the rank has a part in any.
  bool has_part(Rank rank, SliceUse use);

 private:
  const Plan& plan_;
  const ModelSpec& model_;
  const DeviceIslands islands_;
  std::unique_ptr<const ModelHolders> holders_;  ///< null: nothing was asked for
  std::map<std::pair<SliceUse, std::set<std::string>>, std::vector<ReductionClass>> found_;
};

/// How a rank's weights and gradients lie, one after the other.
ParameterLayout layout_of(const Plan& plan, const ModelSpec& model, Rank rank);

/// What a step of the plan does to gradients.
inline SliceUse gradient_use(const Plan& plan) {
  return plan.shard_optimizer ? SliceUse::kSumsToOwners : SliceUse::kSumsToHolders;
}

}  // namespace motley
