#include "core/spec/pin_json.h"

#include <nlohmann/json.hpp>

#include "core/or_null.h"
#include "core/spec/names.h"

namespace motley {
namespace {

using nlohmann::json;

json stage_json(const PinnedStage& stage) {
  json recompute = json::array();
  for (const Recompute part : stage.recompute) recompute.push_back(spec_name(part));
  return {{"layers", {stage.first_layer, stage.last_layer}},
          {"devices", stage.devices},
          {"shares", stage.shares},
          {"recompute", recompute},
          {"precision", spec_name(stage.precision)}};
}

json replica_json(const PinnedReplica& replica) {
  json stages = json::array();
  for (const PinnedStage& stage : replica.stages) stages.push_back(stage_json(stage));
  return {{"stages", stages},
          {"micro_batch", or_null(replica.micro_batch)},
          {"grains", or_null(replica.grains)}};
}

void read_stage(JsonFields& fields, PinnedStage& stage) {
  std::vector<int64_t> layers;
  std::vector<std::string> recompute;
  fields.read("layers", layers)
      .read("devices", stage.devices)
      .read("shares", stage.shares)
      .read_if("recompute", recompute)
      .read_word("precision", stage.precision, from_spec_name<Precision>);
  for (const std::string& word : recompute) {
    const auto part = from_spec_name<Recompute>(word);
    if (!part) return fields.fault("recompute", "unknown word '" + word + "'");
    stage.recompute.push_back(*part);
  }
  constexpr int64_t kLast = ModelSpec::kMostLayers + 1;  // embedding and head besides the blocks
  const auto is_layer = [](int64_t layer) { return layer >= 0 && layer <= kLast; };
  if (layers.size() != 2 || !is_layer(layers[0]) || !is_layer(layers[1]))
    return fields.fault("layers", "expected the first and the last layer");
  stage.first_layer = static_cast<LayerIndex>(layers[0]);
  stage.last_layer = static_cast<LayerIndex>(layers[1]);
}

void read_replica(JsonFields& fields, PinnedReplica& replica) {
  fields.each("stages", [&](JsonFields& f) { read_stage(f, replica.stages.emplace_back()); })
      .read("micro_batch", replica.micro_batch)
      .read("grains", replica.grains);
}

}  // namespace

json to_json(const PinSpec& pin) {
  json replicas = json::array();
  for (const PinnedReplica& replica : pin.replicas) replicas.push_back(replica_json(replica));
  return {{"replicas", replicas}, {"leave_out", pin.leave_out}};
}

void read_pin(JsonFields& fields, PinSpec& pin) {
  fields.each("replicas", [&](JsonFields& f) { read_replica(f, pin.replicas.emplace_back()); })
      .read("leave_out", pin.leave_out);
}

}  // namespace motley
