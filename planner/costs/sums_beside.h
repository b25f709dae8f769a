#pragma once
// What a step waits for of sums that go on while it computes (worker/train/stepper.h). They do
// between hosts where all ranks compute on CPUs at the speed that these have: gradients go out as
// the last backward pass makes them, from the head to the embedding, and weights that others have
// updated come in as the next forward pass uses them. Sums of GPUs and of paced ranks begin when
// all is computed; those within a host take the time of the cores that compute.

#include "core/model.h"
#include "core/plan.h"
#include "planner/plain/device_index.h"
#include "planner/request.h"

namespace motley {

/// Whether sums of this plan between hosts go on beside computing; `index` is the request's.
bool sums_go_beside(const PlanRequest& request, const Plan& plan, const DeviceIndex& index);

/// Of which plans over several hosts they do: none, those of some of the admitted devices, all.
enum class PlansBeside { kNone, kOfSome, kAll };
PlansBeside plans_with_sums_beside(const PlanRequest& request);
/// The devices meant by kOfSome.
FleetSpec devices_with_sums_beside(const PlanRequest& request);

/// Of the elements that ranks with these layers hold the part whose gradients are there only when
/// a backward pass is over, and whose weights a forward pass needs when it begins.
double part_of_first_layer(const ModelSpec& model, LayerIndex first, LayerIndex last);

/// Seconds from the step's begin.
struct PassTimes {
  double begins = 0, ends = 0;
};

/// Gradients or weights that ranks exchange beside computing.
struct SumsBeside {
  double seconds = 0;              ///< if nothing is computed
  double part_of_first_layer = 0;  ///< what is final last, or needed first
  double busy_share = 0;           ///< as ReductionPoint has it
};

/// Of whole replicas that take so many seconds.
SumsBeside sums_of_whole(const PlanRequest& request, double seconds);

/// When gradients are summed that go out from the begin of this backward pass on, those of the
/// first layer when it is over; not before the pass ends.
double end_with_sums(const SumsBeside& gradients, const PassTimes& backward);

/// When a forward pass ends that begins as soon as it can with the weights of the first layer, and
/// ends when it has had all of them; they are sent when ranks are ready for the step.
double end_with_weights(const SumsBeside& weights, const PassTimes& forward, double ready);

}  // namespace motley
