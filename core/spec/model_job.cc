#include "core/spec/model_job.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "core/log.h"
#include "core/spec/model_presets.h"
#include "core/units.h"

namespace motley {
namespace {

std::string job_text(const std::string& model) {
  return "version: 1\nmodel: {" + model +
         "}\ntrain: {global_batch: " + std::to_string(kModelJobBatch) + ", steps: 1}\n";
}

bool is_preset(const std::string& word) {
  const auto presets = model_presets();
  return std::any_of(presets.begin(), presets.end(),
                     [&](const ModelPreset& preset) { return preset.name == word; });
}

/// A job has a model, a model has layers.
bool is_model(const YamlNode& root) {
  return root.find("model") == nullptr && root.find("train") == nullptr &&
         (root.find("layers") != nullptr || root.find("preset") != nullptr);
}

/// The model's nodes keep their places in its file.
Result<YamlTree> tree_around(YamlTree model, const std::string& source) {
  MOTLEY_TRY(YamlTree tree, parse_yaml(job_text(""), source, kJobLimits));
  for (size_t i = 0; i < tree.root.member_count(); ++i)
    if (tree.root.key(i).text == "model") tree.root.items[2 * i + 1] = std::move(model.root);
  for (auto& text : model.sources) tree.sources.push_back(std::move(text));
  return tree;
}

tl::unexpected<Error> neither(const std::string& word) {
  std::vector<std::string_view> names;
  std::string list;
  for (const ModelPreset& preset : model_presets()) {
    names.push_back(preset.name);
    list += (list.empty() ? "" : ", ") + std::string(preset.name);
  }
  const std::string near = did_you_mean(word, names.data(), names.size());
  return fail(ErrorCode::kNotFound,
              "'" + one_line(word) + "' is neither a file nor a model known by name" +
                  (near.empty() ? " (" + list + ")" : " (did you mean '" + near + "'?)"));
}

}  // namespace

Result<JobSpec> read_job_or_model(const std::string& word, const std::vector<Override>& overrides) {
  std::error_code error;
  if (!std::filesystem::exists(word, error)) {
    if (!is_preset(word)) return neither(word);
    MOTLEY_TRY(YamlTree tree, parse_yaml(job_text("preset: " + word), word, kJobLimits));
    return job_of(std::move(tree), word, "", overrides, JobParts::kWithoutData);
  }
  MOTLEY_TRY(const std::string text, read_yaml_file(word, kJobLimits.bytes));
  MOTLEY_TRY(YamlTree tree, parse_yaml(text, word, kJobLimits));
  if (!is_model(tree.root)) return read_job(word, overrides);
  MOTLEY_TRY(YamlTree around, tree_around(std::move(tree), word));
  return job_of(std::move(around), word, "", overrides, JobParts::kWithoutData);
}

}  // namespace motley
