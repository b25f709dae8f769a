#include "planner/costs/layer_times.h"

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "core/holdings.h"
#include "core/spec/names.h"

namespace motley {
namespace {

constexpr const char* kKinds[] = {"embedding", "block", "head"};

std::string kind_of(LayerIndex layer, const ModelSpec& model) {
  if (layer == 0) return "embedding";
  return layer <= model.layers ? "block" : "head";
}

Error not_measured(const DeviceProfile& device, const std::string& what) {
  return {ErrorCode::kInvalidSpec,
          "the profile of " + device.device + " (" + device.type + ") has no curve of " + what +
              ", which the plan needs: it was not measured (see `motley profile --refresh`), or is "
              "too large for the device",
          {}};
}

PassSeconds at(const LayerCurve& curve, int micro_batch) {
  const double forward = curve.forward_seconds_at(micro_batch);
  return {forward, curve.seconds_at(micro_batch) - forward};
}

/// The measured shares below 1 of a kind, rising.
std::vector<const LayerCurve*> shared_curves(const DeviceProfile& device, const std::string& kind) {
  std::vector<const LayerCurve*> curves;
  for (const LayerCurve& curve : device.curves)
    if (curve.layer == kind && curve.share < 1 && curve.recompute == Recompute::kNone)
      curves.push_back(&curve);
  std::sort(curves.begin(), curves.end(),
            [](const LayerCurve* a, const LayerCurve* b) { return a->share < b->share; });
  return curves;
}

PassSeconds scaled(const PassSeconds& seconds, double factor) {
  return {seconds.forward * factor, seconds.backward * factor};
}

PassSeconds on_line(const SharedLayer& line, double part) {
  const double way = (part - line.low) / (line.high - line.low);
  const PassSeconds &from = line.from, &to = line.to;
  return {std::max(0.0, from.forward + way * (to.forward - from.forward)),
          std::max(0.0, from.backward + way * (to.backward - from.backward))};
}

/// The straight line through the outermost measured shares; through the whole layer where there is
/// only one, and through nothing where the whole was too large to be measured.
Result<SharedLayer> line_of(const DeviceProfile& device, const std::string& kind, int micro_batch) {
  const std::vector<const LayerCurve*> shared = shared_curves(device, kind);
  if (shared.empty()) return fail(not_measured(device, "a shared layer '" + kind + "'"));
  const LayerCurve& low = *shared.front();
  const LayerCurve* const high = shared.size() > 1 ? shared.back() : device.curve(kind);
  SharedLayer line;
  if (high == nullptr) {
    line.high = low.share;
    line.to = at(low, micro_batch);
    return line;
  }
  line.low = low.share;
  line.high = high->share;
  line.from = at(low, micro_batch);
  line.to = at(*high, micro_batch);
  return line;
}

/// A whole layer that was too large to be measured lies on the line of its shares, too.
Result<PassSeconds> at_share(const DeviceProfile& device, const std::string& kind, double share,
                             int micro_batch) {
  const LayerCurve* whole = device.curve(kind);
  if (share == 1 && whole != nullptr) return at(*whole, micro_batch);
  const auto line = line_of(device, kind, micro_batch);
  if (line) return on_line(*line, share);
  return fail(share == 1 ? not_measured(device, "the layer '" + kind + "'") : line.error());
}

double part_of(const LayerParts& parts, const std::string& kind) {
  return kind == "block" ? parts.block() : parts.vocabulary;
}

double part_of(const LayerParts& parts, Recompute part) {
  if (part == Recompute::kAttention) return parts.heads;
  return part == Recompute::kMlp ? parts.columns : parts.block();
}

Recompute recompute_of(const StagePlan& stage, LayerIndex layer, const ModelSpec& model) {
  const bool block = layer > 0 && layer <= model.layers;
  if (!block || stage.recompute.empty()) return Recompute::kNone;
  return stage.recompute[static_cast<size_t>(layer - stage.first_layer)];
}

/// The block that computes a part again, of the largest share measured; null where none was.
const LayerCurve* recomputing_curve(const DeviceProfile& device, Recompute part) {
  const LayerCurve* largest = nullptr;
  for (const LayerCurve& curve : device.curves)
    if (curve.layer == "block" && curve.recompute == part &&
        (largest == nullptr || curve.share > largest->share))
      largest = &curve;
  return largest;
}

/// Computing a shared block again sums its attention again, which begins another section.
double section_begun_again(const DeviceProfile& device, Recompute part, bool shared) {
  return part == Recompute::kBlock && shared ? device.step_overhead_seconds : 0;
}

/// What computing a part of a whole block again adds to its backward pass.
Result<double> recompute_seconds(const DeviceProfile& device, Recompute part, int micro_batch) {
  if (part == Recompute::kNone) return 0.0;
  const LayerCurve* with = recomputing_curve(device, part);
  if (with == nullptr)
    return fail(not_measured(device, "a block with recompute " + spec_name(part)));
  MOTLEY_TRY(const PassSeconds without, at_share(device, "block", with->share, micro_batch));
  const double added = at(*with, micro_batch).backward - without.backward -
                       section_begun_again(device, part, with->share < 1);
  return std::max(0.0, added) / with->share;
}

/// Of all layers, one after the other; 0 where one was not measured.
double summed_seconds(const DeviceProfile& device, const ModelSpec& model, int micro_batch) {
  double sum = 0;
  for (const char* kind : kKinds) {
    const auto layer = at_share(device, kind, 1, micro_batch);
    if (!layer) return 0;
    sum += (layer->forward + layer->backward) * (std::string(kind) == "block" ? model.layers : 1);
  }
  return sum;
}

/// How much longer (or less long) layers take among others than by themselves: up to the largest
/// micro-batch of which the device holds the whole model, and beyond it as there.
double among_others(const DeviceProfile& device, const ModelSpec& model, int micro_batch) {
  const LayerCurve* whole = device.curve("model");
  if (whole == nullptr) return 1;
  const int known = std::min(micro_batch, whole->points.back().micro_batch);
  const double sum = summed_seconds(device, model, known);
  return sum > 0 ? whole->seconds_at(known) / sum : 1;
}

/// Of the summed layers, at the micro-batches of which all were measured; without a fit.
LayerCurve summed_curve(const DeviceProfile& device, const ModelSpec& model) {
  LayerCurve summed;
  for (const LayerCurve& block : device.curves) {
    if (block.layer != "block" || !summed.points.empty()) continue;  // any will do for the sizes
    for (const CurvePoint& point : block.points) {
      const double seconds = summed_seconds(device, model, point.micro_batch);
      if (seconds <= 0) break;
      summed.points.push_back({.micro_batch = point.micro_batch,
                               .seconds = seconds * among_others(device, model, point.micro_batch),
                               .spread = point.spread,
                               .repetitions = point.repetitions});
    }
  }
  return summed;
}

int largest_measured(const LayerCurve& curve) {
  return curve.points.empty() ? 0 : curve.points.back().micro_batch;
}

}  // namespace

bool is_measured(const DeviceProfile& device, Recompute part) {
  return part == Recompute::kNone || recomputing_curve(device, part) != nullptr;
}

LayerParts parts_of(const ModelSpec& model, const std::vector<double>& shares, int member) {
  if (shares.size() == 1) return {};
  const MemberShape shape = member_shape(model, shares, member);
  const auto part = [](int64_t own, int64_t all) {
    return static_cast<double>(own) / static_cast<double>(all);
  };
  return {part(shape.heads.count, model.heads), part(shape.columns.count, int64_t{4} * model.width),
          part(shape.vocabulary.count, model.vocab)};
}

PassSeconds SharedLayer::at(double part) const { return scaled(on_line(*this, part), among); }

Result<SharedLayer> shared_layer(const DeviceProfile& device, const ModelSpec& model,
                                 LayerIndex layer, Recompute recompute, int micro_batch) {
  MOTLEY_TRY(SharedLayer shared, line_of(device, kind_of(layer, model), micro_batch));
  MOTLEY_TRY(shared.again, recompute_seconds(device, recompute, micro_batch));
  shared.begins = section_begun_again(device, recompute, true);
  shared.among = among_others(device, model, micro_batch);
  return shared;
}

Result<PassSeconds> pass_seconds(const DeviceProfile& device, const ModelSpec& model,
                                 const StagePlan& stage, int member, int micro_batch) {
  const LayerParts parts = parts_of(model, stage.shares, member);
  PassSeconds sum;
  for (LayerIndex layer = stage.first_layer; layer <= stage.last_layer; ++layer) {
    const std::string kind = kind_of(layer, model);
    MOTLEY_TRY(const PassSeconds own, at_share(device, kind, part_of(parts, kind), micro_batch));
    const Recompute again = recompute_of(stage, layer, model);
    MOTLEY_TRY(const double extra, recompute_seconds(device, again, micro_batch));
    sum.forward += own.forward;
    sum.backward += own.backward + extra * part_of(parts, again);
    sum.backward += section_begun_again(device, again, stage.ranks.size() > 1);
  }
  return scaled(sum, among_others(device, model, micro_batch));
}

GroupSums group_sums(const DeviceProfile& device, const ModelSpec& model, const StagePlan& stage,
                     int micro_batch) {
  GroupSums sums;
  if (stage.ranks.size() == 1) return sums;
  for (LayerIndex layer = stage.first_layer; layer <= stage.last_layer; ++layer) {
    const auto shared = shared_curves(device, kind_of(layer, model));
    if (shared.empty()) continue;
    sums.count += shared.front()->sums;
    sums.bytes += shared.front()->sum_bytes_per_sample * micro_batch;
  }
  return sums;
}

bool holds_model(const DeviceProfile& device, const MicroBatchRule& rule) {
  return device.curve("model") != nullptr && !micro_batch_sizes(device, rule).empty();
}

Result<DeviceProfile> as_whole(const DeviceProfile& device, const ModelSpec& model,
                               const MicroBatchRule& rule) {
  if (holds_model(device, rule)) return device;
  LayerCurve summed = summed_curve(device, model);
  DeviceProfile whole = device;
  whole.memory.clear();
  for (int samples = 1; samples <= largest_measured(summed); ++samples)
    whole.memory.push_back({samples, Bytes(0), Bytes(0)});
  if (micro_batch_sizes(whole, rule).empty())
    return fail(not_measured(device, "the model or its layers"));
  summed.fit = fit_curve(summed.points);
  whole.curves = {std::move(summed)};
  return whole;
}

double forward_seconds(const DeviceProfile& device, const ModelSpec& model, const StagePlan& stage,
                       int micro_batch) {
  constexpr double kUsual = 1.0 / 3;  // backward pass: twice the products
  const LayerCurve& curve = *device.curve("model");
  if (const double forward = curve.forward_seconds_at(micro_batch); forward > 0) return forward;
  const auto pass = pass_seconds(device, model, stage, 0, micro_batch);
  return curve.seconds_at(micro_batch) *
         (pass ? pass->forward / (pass->forward + pass->backward) : kUsual);
}

Result<double> uncertainty_of(const DeviceProfile& device, const ModelSpec& model,
                              const StagePlan& stage, int member, int micro_batch) {
  const LayerParts parts = parts_of(model, stage.shares, member);
  double seconds = 0, error = 0;
  for (LayerIndex layer = stage.first_layer; layer <= stage.last_layer; ++layer) {
    const std::string kind = kind_of(layer, model);
    MOTLEY_TRY(const PassSeconds own, at_share(device, kind, part_of(parts, kind), micro_batch));
    double uncertainty = 0;
    for (const LayerCurve& curve : device.curves)
      if (curve.layer == kind)
        uncertainty = std::max(uncertainty, curve.uncertainty_at(micro_batch));
    seconds += own.forward + own.backward;
    error += (own.forward + own.backward) * uncertainty;
  }
  const double of_layers = seconds > 0 ? error / seconds : 0;
  const LayerCurve* whole = device.curve("model");
  return whole == nullptr ? of_layers : std::max(of_layers, whole->uncertainty_at(micro_batch));
}

}  // namespace motley
