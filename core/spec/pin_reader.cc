#include "core/spec/pin_reader.h"

#include "core/spec/job_spec.h"

namespace motley {
namespace {

constexpr IntegerRange kLayer{0, ModelSpec::kMostLayers + 1};  // embedding and head besides blocks

Result<Unit> read_layers(const YamlNode& node, PinnedStage& stage) {
  if (node.kind != YamlNode::Kind::kList || node.items.size() != 2)
    return fail_at(node, "'layers': expected the first and the last layer, such as [0, 6]");
  MOTLEY_TRY(const int64_t first, to_integer(node.items[0], kLayer));
  MOTLEY_TRY(const int64_t last, to_integer(node.items[1], kLayer));
  stage.first_layer = static_cast<LayerIndex>(first);
  stage.last_layer = static_cast<LayerIndex>(last);
  return Unit{};
}

Result<std::vector<double>> to_shares(const YamlNode& node) {
  MOTLEY_TRY(const auto elements, to_list(node, "a list of shares, such as [0.7, 0.3]"));
  std::vector<double> shares;
  for (const YamlNode* element : elements) {
    MOTLEY_TRY(shares.emplace_back(),
               to_number(*element, {.low = 0, .high = 1, .above_low = true}));
  }
  return shares;
}

Result<std::vector<Recompute>> to_recompute(const YamlNode& node) {
  MOTLEY_TRY(const auto elements, to_list(node, "a word, or a list of one for each layer"));
  std::vector<std::string_view> words;
  for (const Named<Recompute>& named : kRecomputeNames) words.push_back(named.name);
  std::vector<Recompute> recompute;
  for (const YamlNode* element : elements) {
    MOTLEY_TRY(const size_t i, to_word(*element, words));
    recompute.push_back(kRecomputeNames[i].value);
  }
  return recompute;
}

/// An empty list leaves out nothing.
Result<std::vector<std::string>> to_left_out(const YamlNode& node) {
  if (node.kind == YamlNode::Kind::kList && node.items.empty()) return std::vector<std::string>{};
  return to_texts(node);
}

const YamlKeys<PinnedStage>& stage_keys() {
  static const YamlKeys<PinnedStage> keys = {
      YamlKey<PinnedStage>("layers", "the first and the last layer", read_layers).required(),
      converted("devices", "a list of device ids", &PinnedStage::devices, to_texts).required(),
      converted("shares", "a list of shares", &PinnedStage::shares, to_shares),
      converted("recompute", "none, attention, mlp or block, or a list of one for each layer",
                &PinnedStage::recompute, to_recompute),
      word("precision", &PinnedStage::precision),
  };
  return keys;
}

const YamlKeys<PinnedReplica>& replica_keys() {
  static const YamlKeys<PinnedReplica> keys = [] {
    YamlKeys<PinnedReplica> list = {
        sections("stages", &PinnedReplica::stages, stage_keys),
        integer("micro_batch", &PinnedReplica::micro_batch, {1, TrainSpec::kMostSamples}),
        integer("grains", &PinnedReplica::grains, {1, TrainSpec::kMostSamples}),
    };
    list.front().is_required = true;
    return list;
  }();
  return keys;
}

}  // namespace

const YamlKeys<PinSpec>& pin_keys() {
  static const YamlKeys<PinSpec> keys = {
      sections("replicas", &PinSpec::replicas, replica_keys),
      converted("leave_out", "a list of device ids", &PinSpec::leave_out, to_left_out),
  };
  return keys;
}

}  // namespace motley
