#pragma once
// Who holds what: the slices of each logical tensor that the ranks of a plan compute with. Tensor
// parallelism, pipeline stages, gradient sums, sharded state and checkpoints all begin here.

#include <cstdint>
#include <optional>
#include <vector>

#include "core/model.h"
#include "core/plan.h"

namespace motley {

/// The units [first, first + count) of a split dimension.
struct UnitRange {
  int64_t first = 0;
  int64_t count = 0;
};

/// What of a stage falls to one of its ranks. In the width of the residual stream all hold
/// everything.
struct MemberShape {
  int members = 1;
  int member = 0;
  UnitRange heads;
  UnitRange columns;     ///< of the MLP, of 4·width
  UnitRange vocabulary;  ///< rows of the token embedding, hence logits

  bool first() const { return member == 0; }
};

/// Contiguous parts by cumulative share, rounded: the parts of all members tile the units. A member
/// may get none, which validate() refuses where the stage has a layer that divides them.
MemberShape member_shape(const ModelSpec& model, const std::vector<double>& shares, int member);

/// What a member would be without of what the stage's layers divide, in words; null where it has
/// something of each. A stage without blocks divides the vocabulary alone.
const char* lack_of(const ModelSpec& model, const StagePlan& stage, int member);

/// All layers on one rank.
StagePlan whole_model(const ModelSpec& model);

/// A slice of a logical tensor in one rank's memory. A rank holds at most one of each tensor: a
/// tied one is kept once where both its layers are on the rank.
struct Holding {
  LogicalTensor tensor;
  Slice slice;
  /// Its gradient is a contribution of its own to the sum. Of equal copies within a stage only the
  /// first counts; the two stages of a tied tensor both do.
  bool counted = true;
};

/// The same of one tensor of the model, without the tensor; nothing where the stage's layers do not
/// compute with it, or another member alone holds it.
struct HeldPart {
  Slice slice;
  bool counted = true;
};
std::optional<HeldPart> part_of(const LogicalTensor& tensor, const StagePlan& stage,
                                const MemberShape& member);

/// In canonical order.
std::vector<Holding> holdings_of(const ModelSpec& model, const StagePlan& stage, int member);

/// Where a rank stands in a plan.
struct Role {
  int replica = 0;
  int stage = 0;
  int member = 0;
};
/// The rank must have work.
Role role_of(const Plan& plan, Rank rank);
const StagePlan& stage_of(const Plan& plan, const Role& role);

}  // namespace motley
