#pragma once
// One layer of a kind as a stage of its own: what is measured and counted once for all layers
// alike.

#include <functional>
#include <string>
#include <vector>

#include "core/plan.h"
#include "core/result.h"
#include "core/spec/job_spec.h"
#include "worker/engine/engine.h"

namespace motley {

/// A kind of layer and how one rank computes it.
struct LayerKind {
  std::string layer;  ///< embedding, block or head
  double share = 1;   ///< below 1: with others, of which this rank is the first
  Recompute recompute = Recompute::kNone;
};

/// kInvalidSpec for another word, or a share of no head, column or row.
Result<Unit> check_layer_kind(const LayerKind& kind, const ModelSpec& model);

/// The engine of a kind that is valid. Where it shares its layer, `group` is still to be set.
EngineOptions layer_engine_options(const JobSpec& job, const LayerKind& kind,
                                   std::vector<int> micro_batches);

/// The same of a layer without its optimizer's state, which no pass needs: in a plan it may be the
/// host's or other ranks'.
EngineOptions pass_options(const JobSpec& job, const LayerKind& kind,
                           std::vector<int> micro_batches);

/// Whether a micro-batch of one sample of it fits a device.
using LayerFits = std::function<bool(const LayerKind&)>;

/// All that fit, whole and shared. The block first: it tells best what beginning a section costs.
std::vector<LayerKind> kinds_that_fit(const ModelSpec& model, const LayerFits& fits);

/// What a kind is looked at up to `most`, of which it may not hold all.
std::vector<int> layer_micro_batches(const LayerKind& kind, int most);
/// The same of the whole model: 1, 2, 3, 4, 6, 8, 12, 16, … up to `largest`, and `largest` itself:
/// dense where curves bend.
std::vector<int> model_micro_batches(int largest);

}  // namespace motley
