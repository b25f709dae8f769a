#pragma once
// YAML text as a tree in which every node knows where it stands. The strict part of YAML that specs
// are written in: mappings with plain words as keys, lists, scalars. yaml-cpp stays behind it.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace motley {

struct YamlNode {
  enum class Kind : uint8_t { kNull, kScalar, kList, kMapping };

  Kind kind = Kind::kNull;
  bool quoted = false;  ///< a scalar in quotes: text, never a number
  int line = 0;         ///< from 1; 0 on a command line
  int column = 0;
  const std::string* source = nullptr;  ///< of the YamlTree
  /// Of a scalar.
  std::string text = {};
  /// Of a list; of a mapping its keys and values in turns, as written.
  std::vector<YamlNode> items = {};

  SourcePlace place() const { return {*source, line, column}; }
  size_t member_count() const { return kind == Kind::kMapping ? items.size() / 2 : 0; }
  const YamlNode& key(size_t i) const { return items[2 * i]; }
  const YamlNode& value(size_t i) const { return items[2 * i + 1]; }
  /// The value of a mapping's key; null when there is none.
  const YamlNode* find(std::string_view name) const;
};

/// An error of what the user wrote at `node`.
tl::unexpected<Error> fail_at(const YamlNode& node, std::string message);

struct YamlLimits {
  size_t bytes;
  size_t nodes;  ///< keys count
  int depth;
};
inline constexpr YamlLimits kJobLimits{256 << 10, 20'000, 32};
inline constexpr YamlLimits kFleetLimits{8 << 20, 1'000'000, 32};

struct YamlTree {
  std::vector<std::unique_ptr<const std::string>> sources;  ///< what the nodes' `source` points to
  YamlNode root;

  /// The deepest node there is on the way to "train.eval.every" or, in a list, "pin.replicas.0";
  /// for errors that concern several keys.
  const YamlNode& nearest(std::string_view path) const;
};

/// Refuses, each with its place: more than `limits`, anchors, aliases, tags, duplicate keys, keys
/// that are not words, several documents, an empty one, what is not UTF-8, tabs in the indentation.
/// Memory stays below some 500 bytes a node of the limits, whatever the text.
Result<YamlTree> parse_yaml(std::string_view text, const std::string& source,
                            const YamlLimits& limits);

/// Puts `value` (YAML, e.g. "20" or "[a, b]") at `path` ("train.steps") as if written in the file,
/// replacing what was there. Its place in messages is `where` ("--set train.steps"). kUsage when
/// there is no such place.
Result<Unit> override_value(YamlTree& tree, const std::string& path, const std::string& value,
                            const std::string& where);

/// The same with a value of the tree's own, which keeps its place.
Result<Unit> put_value(YamlNode& root, const std::string& path, YamlNode value);

/// The text of a file of at most `limit` bytes. kNotFound, or kInvalidSpec when it is larger or its
/// path is not UTF-8.
Result<std::string> read_yaml_file(const std::string& path, size_t limit);

}  // namespace motley
