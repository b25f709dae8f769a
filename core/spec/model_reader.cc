#include "core/spec/model_reader.h"

#include "core/spec/model_presets.h"
#include "core/spec/yaml_keys.h"

namespace motley {
namespace {

std::vector<std::string_view> preset_names() {
  std::vector<std::string_view> names;
  for (const ModelPreset& preset : model_presets()) names.push_back(preset.name);
  return names;
}

/// Read by read_model() before the others, wherever it stands.
YamlKey<ModelSpec> preset_key() {
  return {"preset", listed(preset_names()),
          [](const YamlNode&, ModelSpec&) -> Result<Unit> { return Unit{}; }};
}

/// Beside a preset.
const YamlKeys<ModelSpec>& differing_keys() {
  static const YamlKeys<ModelSpec> keys = {
      word("type", &ModelSpec::type, {"gpt"}),
      integer("layers", &ModelSpec::layers, {1, ModelSpec::kMostLayers}),
      integer("heads", &ModelSpec::heads, {1, ModelSpec::kMostHeads}),
      integer("width", &ModelSpec::width, {1, ModelSpec::kMostWidth}),
      integer("context", &ModelSpec::context, {1, ModelSpec::kMostContext}),
      integer("vocab", &ModelSpec::vocab, {1, ModelSpec::kMostVocab}),
      number("dropout", &ModelSpec::dropout, {.low = 0, .high = 1, .below_high = true}),
      preset_key(),
  };
  return keys;
}

/// Without one: the shape of a model has no defaults.
const YamlKeys<ModelSpec>& whole_keys() {
  static const YamlKeys<ModelSpec> keys = [] {
    YamlKeys<ModelSpec> list = differing_keys();
    for (YamlKey<ModelSpec>& key : list)
      key.is_required = key.name == "layers" || key.name == "heads" || key.name == "width" ||
                        key.name == "context";
    return list;
  }();
  return keys;
}

Result<ModelSpec> read_preset(const YamlNode& node) {
  const auto i = to_word(node, preset_names());
  if (!i) return fail_at(node, "'preset': " + i.error().message);
  const ModelPreset& preset = model_presets()[*i];
  MOTLEY_TRY(
      const YamlTree tree,
      parse_yaml(preset.yaml, "configs/models/" + std::string(preset.name) + ".yaml", kJobLimits));
  ModelSpec model;
  MOTLEY_TRY_VOID(read_mapping(tree.root, whole_keys(), model));
  return model;
}

}  // namespace

Result<Unit> read_model(const YamlNode& node, ModelSpec& model) {
  const YamlNode* preset = node.find("preset");
  if (!preset) return read_mapping(node, whole_keys(), model);
  MOTLEY_TRY(model, read_preset(*preset));
  return read_mapping(node, differing_keys(), model);
}

}  // namespace motley
