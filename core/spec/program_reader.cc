#include "core/spec/program_reader.h"

#include <algorithm>
#include <array>

namespace motley {
namespace {

constexpr const char* kCommand = "a list of words, or a command without anything for a shell";

/// Words between blanks; quotes, single or double, keep blanks. No shell: nothing else is special.
Result<std::vector<std::string>> split(const YamlNode& node) {
  std::vector<std::string> words;
  char quote = 0;
  bool inside = false;
  for (const char c : node.text) {
    if (quote != 0 ? c == quote : c == '\'' || c == '"') {
      quote = quote != 0 ? 0 : c;
    } else if (quote == 0 && (c == ' ' || c == '\t' || c == '\n')) {
      inside = false;
      continue;
    }
    if (!inside) words.emplace_back();
    inside = true;
    if (c != quote && !(quote == 0 && (c == '\'' || c == '"'))) words.back() += c;
  }
  if (quote != 0) return fail_at(node, "a quote is not closed");
  return words;
}

Result<std::vector<std::string>> to_command(const YamlNode& node) {
  std::vector<std::string> words;
  if (node.kind == YamlNode::Kind::kScalar) {
    MOTLEY_TRY(words, split(node));
  } else {
    MOTLEY_TRY(words, to_texts(node));
  }
  if (words.empty() || words.front().empty()) return fail_expected(node, kCommand);
  if (words.size() > ProgramSpec::kMostWords) return fail_at(node, "more than 1024 words");
  return words;
}

bool is_variable(std::string_view name) {
  return !name.empty() && name.find_first_not_of(
                              "abcdefghijklmnopqrstuvwxyz"
                              "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == std::string_view::npos;
}

/// env: {NAME: text}
Result<Unit> read_env(const YamlNode& node, ProgramSpec& program) {
  if (node.kind != YamlNode::Kind::kMapping) return fail_expected(node, "a mapping of texts");
  for (size_t i = 0; i < node.member_count(); ++i) {
    if (!is_variable(node.key(i).text))
      return fail_expected(node.key(i), "the name of a variable: letters, digits and '_'");
    MOTLEY_TRY(program.env[node.key(i).text], to_text(node.value(i), "a text"));
  }
  return Unit{};
}

}  // namespace

const YamlKeys<ProgramSpec>& program_keys() {
  using Spec = ProgramSpec;
  static const YamlKeys<Spec> keys = {
      converted("run", kCommand, &Spec::command, to_command),
      text("workdir", &Spec::workdir, "a path", is_path),
      YamlKey<Spec>("env", "a mapping of texts", read_env),
      converted("setup", kCommand, &Spec::setup, to_command),
  };
  return keys;
}

Result<bool> is_program(const YamlNode& job) {
  if (job.find("run") == nullptr) {
    for (const char* key : {"workdir", "env", "setup"})
      if (const YamlNode* node = job.find(key))
        return fail_at(*node, "'" + std::string(key) + "' is for a job with 'run'");
    return false;
  }
  const auto of_no_use = [](const YamlNode& node, const std::string& key) {
    return fail_at(node, "'" + key + "' is of no use to a job with 'run'");
  };
  for (const char* key : {"model", "data", "parallel", "pin"})
    if (const YamlNode* node = job.find(key)) return of_no_use(*node, key);
  constexpr std::array<std::pair<const char*, std::string_view>, 2> kParts = {
      {{"train", "global_batch grain"}, {"checkpoint", "dir every keep"}}};
  for (const auto& [section, allowed] : kParts) {
    const YamlNode* node = job.find(section);
    if (node == nullptr || node->kind != YamlNode::Kind::kMapping) continue;
    for (size_t i = 0; i < node->member_count(); ++i)
      if (allowed.find(node->key(i).text) == std::string_view::npos)
        return of_no_use(node->key(i), std::string(section) + "." + node->key(i).text);
  }
  return true;
}

}  // namespace motley
