#pragma once
// What a part of a model takes on one device, put together from the measured curves of its layers.

#include <vector>

#include "core/plan.h"
#include "core/profile.h"
#include "core/result.h"
#include "planner/costs/cost_model.h"

namespace motley {

/// Whether it was measured what a block takes that computes this part of it again.
bool is_measured(const DeviceProfile& device, Recompute part);

/// One micro-batch through a stage. Without the fixed cost of beginning a section, and without what
/// ranks that share the stage wait for each other.
struct PassSeconds {
  double forward = 0;
  double backward = 0;
};

/// What of a layer's work falls to one of the ranks that share it.
struct LayerParts {
  double heads = 1, columns = 1, vocabulary = 1;

  double block() const { return (heads + columns) / 2; }
};
LayerParts parts_of(const ModelSpec& model, const std::vector<double>& shares, int member);

/// A layer that ranks share, by the part of it that falls to one of them: on the straight line
/// between two parts that were measured.
struct SharedLayer {
  double low = 0, high = 1;  ///< parts
  PassSeconds from, to;      ///< at these
  double again = 0;          ///< what again_at() is of: of all of the layer
  double begins = 0;         ///< and whatever the part
  double among = 1;          ///< times as long as by itself

  /// Computed once.
  PassSeconds at(double part) const;
  /// More in the backward pass where it is computed again.
  double again_at(double part) const { return among * (again * part + begins); }
};
/// kInvalidSpec when a curve is missing.
Result<SharedLayer> shared_layer(const DeviceProfile& device, const ModelSpec& model,
                                 LayerIndex layer, Recompute recompute, int micro_batch);

/// Of the rank number `member` of a stage. Where the whole model was measured too, layers are
/// scaled so that all of them together take what it took. kInvalidSpec when a curve is missing.
Result<PassSeconds> pass_seconds(const DeviceProfile& device, const ModelSpec& model,
                                 const StagePlan& stage, int member, int micro_batch);

/// Of a micro-batch on a device that has the whole model for itself, `stage`, and its curve
/// "model": seconds of the forward pass.
double forward_seconds(const DeviceProfile& device, const ModelSpec& model, const StagePlan& stage,
                       int micro_batch);

/// The sums over the ranks of a shared stage that a micro-batch waits for.
struct GroupSums {
  int count = 0;
  double bytes = 0;  ///< in all of them
};
GroupSums group_sums(const DeviceProfile& device, const ModelSpec& model, const StagePlan& stage,
                     int micro_batch);

/// Whether the device holds the model alone, at a micro-batch that the rule allows.
bool holds_model(const DeviceProfile& device, const MicroBatchRule& rule);

/// The device as if it held the model alone: itself where it does, else with its summed layer
/// speeds at any micro-batch up to the largest measured, shares standing for layers too large to be
/// measured whole. kInvalidSpec when neither was measured of a micro-batch that the rule allows: of
/// what comes back one is always allowed.
Result<DeviceProfile> as_whole(const DeviceProfile& device, const ModelSpec& model,
                               const MicroBatchRule& rule);

/// How far pass_seconds() may be off, relatively: each layer by what its curves tell, as they may
/// all be too long or too short together. Where the whole model was measured, too, by what that
/// tells, if it is more.
Result<double> uncertainty_of(const DeviceProfile& device, const ModelSpec& model,
                              const StagePlan& stage, int member, int micro_batch);

}  // namespace motley
