#include "core/spec/yaml_keys.h"

namespace motley {

tl::unexpected<Error> fail_unknown_key(const YamlNode& key,
                                       const std::vector<std::string_view>& known) {
  const std::string near = did_you_mean(key.text, known.data(), known.size());
  std::string names;
  for (const std::string_view name : known)
    names += (names.empty() ? "" : ", ") + std::string(name);
  const std::string hint = near.empty() ? "allowed here: " + names : "did you mean '" + near + "'?";
  return fail_at(key, "unknown key " + found_text(key) + " (" + hint + ")");
}

}  // namespace motley
