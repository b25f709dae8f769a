#include "worker/profiler/layer_kinds.h"

#include <sstream>

#include "core/holdings.h"

namespace motley {
namespace {

LayerIndex index_of(const LayerKind& kind, const ModelSpec& model) {
  if (kind.layer == "embedding") return 0;
  return kind.layer == "block" ? 1 : model.layers + 1;
}

std::vector<double> shares_of(const LayerKind& kind) {
  if (kind.share < 1) return {kind.share, 1 - kind.share};
  return {1.0};
}

/// The layer alone, on rank 0 and, where it is shared, one more.
StagePlan stage_of_kind(const LayerKind& kind, const ModelSpec& model) {
  StagePlan stage;
  stage.first_layer = stage.last_layer = index_of(kind, model);
  stage.shares = shares_of(kind);
  for (size_t i = 0; i < stage.shares.size(); ++i) stage.ranks.emplace_back(static_cast<int>(i));
  stage.recompute = {kind.recompute};
  return stage;
}

}  // namespace

Result<Unit> check_layer_kind(const LayerKind& kind, const ModelSpec& model) {
  if (kind.layer != "embedding" && kind.layer != "block" && kind.layer != "head")
    return fail(ErrorCode::kInvalidSpec,
                "unknown kind of layer '" + kind.layer + "'; there are embedding, block and head");
  if (!(kind.share > 0 && kind.share <= 1))
    return fail(ErrorCode::kInvalidSpec, "a share must be above 0 and at most 1");
  const char* lack = lack_of(model, stage_of_kind(kind, model), 0);
  if (lack == nullptr) return Unit{};
  std::ostringstream share;
  share << kind.share;
  return fail(ErrorCode::kInvalidSpec, "a share of " + share.str() + " gets " + lack);
}

EngineOptions layer_engine_options(const JobSpec& job, const LayerKind& kind,
                                   std::vector<int> micro_batches) {
  EngineOptions options;
  options.model = job.model;
  options.numerics = job.train.numerics;
  options.optimizer = job.train.optimizer;
  options.seed = job.train.seed;
  options.micro_batches = std::move(micro_batches);
  options.stage = stage_of_kind(kind, job.model);
  return options;
}

}  // namespace motley
