#include "worker/profiler/layer_kinds.h"

#include <algorithm>
#include <set>
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

double share_of_heads(int heads, const ModelSpec& model) {
  return static_cast<double>(heads) / static_cast<double>(model.heads);
}

/// Those that let a straight line through two points tell the others: about a quarter of the
/// heads, and the rest; smaller where these do not fit. None where nothing can be shared.
std::vector<double> shares_to_look_at(const std::string& layer, const ModelSpec& model,
                                      const LayerFits& fits) {
  const int few = std::max(1, model.heads / 4);
  const auto most_that_fit = [&](int most) {
    while (most > 0 && !fits({layer, share_of_heads(most, model)})) --most;
    return most;
  };
  const int more = most_that_fit(model.heads - few);
  const int less = most_that_fit(std::min(few, more - 1));
  std::vector<double> shares;
  if (less > 0) shares.push_back(share_of_heads(less, model));
  if (more > 0) shares.push_back(share_of_heads(more, model));
  if (shares.size() == 2 || layer == "block" || fits({.layer = layer})) return shares;
  // Of the vocabulary a rank may have less than goes with one head.
  if (const double half = share_of_heads(1, model) / 2; fits({layer, half}))
    shares.insert(shares.begin(), half);
  return shares;
}

/// Of the whole block; where that does not fit, of the largest share among `kinds` of which it
/// does.
void add_recomputing(const LayerFits& fits, std::vector<LayerKind>* kinds) {
  std::set<double> shares = {1.0};
  for (const LayerKind& kind : *kinds)
    if (kind.layer == "block") shares.insert(kind.share);
  for (const Recompute part : {Recompute::kAttention, Recompute::kMlp, Recompute::kBlock}) {
    const auto largest = std::find_if(shares.rbegin(), shares.rend(), [&](double share) {
      return fits({"block", share, part});
    });
    if (largest != shares.rend()) kinds->push_back({"block", *largest, part});
  }
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

EngineOptions pass_options(const JobSpec& job, const LayerKind& kind,
                           std::vector<int> micro_batches) {
  EngineOptions options = layer_engine_options(job, kind, std::move(micro_batches));
  options.shard_optimizer = true;
  options.owned.emplace();
  return options;
}

std::vector<LayerKind> kinds_that_fit(const ModelSpec& model, const LayerFits& fits) {
  std::vector<LayerKind> kinds;
  for (const char* layer : {"block", "embedding", "head"}) {
    if (fits({.layer = layer})) kinds.push_back({.layer = layer});
    for (const double share : shares_to_look_at(layer, model, fits))
      kinds.push_back({.layer = layer, .share = share});
  }
  add_recomputing(fits, &kinds);
  return kinds;
}

std::vector<int> layer_micro_batches(const LayerKind& kind, int most) {
  const int base = kind.share == 1 && kind.recompute == Recompute::kNone ? 2 : 4;
  std::vector<int> sizes;
  for (int size = 1; size < most; size *= base) sizes.push_back(size);
  sizes.push_back(most);
  return sizes;
}

std::vector<int> model_micro_batches(int largest) {
  std::set<int> sizes = {1, 2, 3, largest};
  for (int power = 4; power <= largest; power *= 2) {
    sizes.insert(power);
    sizes.insert(power + power / 2);
  }
  sizes.erase(sizes.upper_bound(largest), sizes.end());
  return {sizes.begin(), sizes.end()};
}

}  // namespace motley
