#include "core/spec/yaml_tree.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "core/units.h"
#include "core/utf8.h"

namespace motley {
namespace {

YamlNode* find_mutable(YamlNode& mapping, std::string_view name) {
  return const_cast<YamlNode*>(std::as_const(mapping).find(name));
}

/// The value of `name`, made when there is none.
YamlNode& find_or_add(YamlNode& mapping, std::string_view name, const std::string* source) {
  if (YamlNode* found = find_mutable(mapping, name)) return *found;
  mapping.items.push_back(
      {.kind = YamlNode::Kind::kScalar, .source = source, .text = std::string(name)});
  mapping.items.push_back({.source = source});
  return mapping.items.back();
}

std::string_view take_word(std::string_view* path) {
  const size_t dot = path->find('.');
  const std::string_view word = path->substr(0, dot);
  path->remove_prefix(dot == std::string_view::npos ? path->size() : dot + 1);
  return word;
}

bool is_key_path(std::string_view path) {
  return !path.empty() && path.front() != '.' && path.back() != '.' &&
         path.find("..") == std::string_view::npos;
}

/// Everything below comes from the command line: no lines there.
void forget_places(YamlNode& node, const std::string* source) {
  node.source = source;
  node.line = node.column = 0;
  for (YamlNode& item : node.items) forget_places(item, source);
}

/// The element of a list whose number, from 0 on, a path has; null when there is none.
const YamlNode* item_of(const YamlNode& list, std::string_view number) {
  size_t position = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), position);
  const bool is_number = error == std::errc() && end == number.data() + number.size();
  return is_number && position < list.items.size() ? &list.items[position] : nullptr;
}

/// Where the value of that key is to be, made when there is none. kUsage when there is no such
/// place.
Result<YamlNode*> place_for(YamlNode& root, const std::string& path, const std::string* source) {
  YamlNode* node = &root;
  for (std::string_view rest = path; !rest.empty();) {
    if (node->kind == YamlNode::Kind::kNull) node->kind = YamlNode::Kind::kMapping;
    if (node->kind != YamlNode::Kind::kMapping)
      return fail(ErrorCode::kUsage, *source + ": there is no mapping to set '" +
                                         std::string(take_word(&rest)) + "' in");
    node = &find_or_add(*node, take_word(&rest), source);
  }
  return node;
}

}  // namespace

const YamlNode* YamlNode::find(std::string_view name) const {
  for (size_t i = 0; i < member_count(); ++i)
    if (key(i).text == name) return &value(i);
  return nullptr;
}

tl::unexpected<Error> fail_at(const YamlNode& node, std::string message) {
  return fail(ErrorCode::kInvalidSpec, std::move(message), node.place());
}

const YamlNode& YamlTree::nearest(std::string_view path) const {
  const YamlNode* node = &root;
  while (!path.empty()) {
    const std::string_view word = take_word(&path);
    const YamlNode* inner =
        node->kind == YamlNode::Kind::kList ? item_of(*node, word) : node->find(word);
    if (!inner) break;
    node = inner;
  }
  return *node;
}

Result<Unit> override_value(YamlTree& tree, const std::string& path, const std::string& value,
                            const std::string& where) {
  if (!is_key_path(path) || value.find_first_not_of(" \t\n") == std::string::npos)
    return fail(ErrorCode::kUsage, where + ": expected key=value, such as train.steps=100");
  Result<YamlTree> parsed = parse_yaml(value, where, kJobLimits);
  if (!parsed) {
    Error error = std::move(parsed).error();
    error.place = {.file = where};
    return fail(std::move(error));
  }
  tree.sources.push_back(std::make_unique<const std::string>(where));
  const std::string* source = tree.sources.back().get();

  MOTLEY_TRY(YamlNode* const node, place_for(tree.root, path, source));
  *node = std::move(parsed->root);
  forget_places(*node, source);
  return Unit{};
}

Result<Unit> put_value(YamlNode& root, const std::string& path, YamlNode value) {
  if (!is_key_path(path))
    return fail_at(value, "'" + path + "' is no key (write it like train.seed)");
  const auto node = place_for(root, path, value.source);
  if (!node) return fail_at(value, "'" + path + "': there is no mapping to set it in");
  **node = std::move(value);
  return Unit{};
}

Result<std::string> read_yaml_file(const std::string& path, size_t limit) {
  std::error_code ignored;
  if (!is_utf8(std::filesystem::absolute(path, ignored).string()))
    return fail(ErrorCode::kInvalidSpec,
                "its path is not UTF-8, so no JSON can name it (rename the file or its directory)",
                {.file = path});
  if (std::filesystem::is_directory(path, ignored))
    return fail(ErrorCode::kNotFound, "is a directory, not a YAML file", {.file = path});
  std::ifstream file(path, std::ios::binary);
  if (!file) return fail(ErrorCode::kNotFound, std::strerror(errno), {.file = path});
  std::string text(limit + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) return fail(ErrorCode::kIo, "cannot be read", {.file = path});
  text.resize(static_cast<size_t>(file.gcount()));
  if (text.size() > limit)
    return fail(ErrorCode::kInvalidSpec,
                "larger than " + format_bytes(Bytes(static_cast<int64_t>(limit))) +
                    ", the limit for this kind of file",
                {.file = path});
  return text;
}

}  // namespace motley
