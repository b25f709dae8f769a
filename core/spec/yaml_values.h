#pragma once
// One YAML value as one C++ value, or an error that says what was expected and what was found.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "core/spec/yaml_tree.h"

namespace motley {

/// "'abc'", "nothing", "a list", "an empty mapping": what stands there, for messages.
std::string found_text(const YamlNode& node);

/// "expected an integer from 1 to 8, found 'x'", at the value.
tl::unexpected<Error> fail_expected(const YamlNode& node, const std::string& expects);

struct IntegerRange {
  int64_t low = 0;
  int64_t high = INT64_MAX;
  std::string expects() const;  ///< "an integer from 1 to 8"
};

struct NumberRange {
  double low = 0;
  double high = 0;
  bool above_low = false;       ///< low itself is not allowed
  bool below_high = false;      ///< high itself is not allowed
  std::string expects() const;  ///< "a number above 0, at most 1"
  bool contains(double value) const;
};

Result<int64_t> to_integer(const YamlNode& node, const IntegerRange& range);
/// Also with the suffixes of parse_count: "10B".
Result<int64_t> to_count(const YamlNode& node, const IntegerRange& range);
Result<double> to_number(const YamlNode& node, const NumberRange& range);
Result<bool> to_flag(const YamlNode& node, std::string_view yes = "true",
                     std::string_view no = "false");
/// A scalar as it stands, quoted or not.
Result<std::string> to_text(const YamlNode& node, const std::string& expects = "a text");
/// The position of the scalar among `words`.
Result<size_t> to_word(const YamlNode& node, const std::vector<std::string_view>& words);
/// A list of scalars; a single scalar counts as a list of one.
Result<std::vector<const YamlNode*>> to_list(const YamlNode& node, const std::string& expects);

/// A list of texts; a single one counts as a list of one.
Result<std::vector<std::string>> to_texts(const YamlNode& node);

/// A scalar through one of the parsers of core/units.h, its error put at the value.
template <class T>
Result<T> to_measure(const YamlNode& node, const std::string& expects,
                     Result<T> (*parse)(std::string_view)) {
  MOTLEY_TRY(const std::string text, to_text(node, expects));
  Result<T> value = parse(text);
  if (!value) return fail_at(node, std::move(value).error().message);
  return value;
}

/// "fast or exact", "a, b or c".
std::string listed(const std::vector<std::string_view>& words);

/// Letters, digits, '.', '_' and '-': names that become directories and addresses.
bool is_plain_name(std::string_view text);
/// Of one line, no longer than the system takes.
bool is_path(std::string_view text);

}  // namespace motley
