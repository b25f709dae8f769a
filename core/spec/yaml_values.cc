#include "core/spec/yaml_values.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "core/log.h"
#include "core/units.h"

namespace motley {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::string number_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

/// A plain scalar's text without a plus sign; nothing of it is left when it cannot be a number.
std::string_view numeric_text(const YamlNode& node) {
  if (node.kind != YamlNode::Kind::kScalar || node.quoted) return {};
  std::string_view text = node.text;
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  return text;
}

template <class Number>
bool parse_all(std::string_view text, Number* out) {
  const std::string_view digits = text.substr(!text.empty() && text.front() == '-' ? 1 : 0);
  if (digits.empty() || !(is_digit(digits.front()) || digits.front() == '.')) return false;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), *out);
  return parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
}

}  // namespace

std::string found_text(const YamlNode& node) {
  constexpr size_t kShown = 60;
  switch (node.kind) {
    case YamlNode::Kind::kNull:
      return "nothing";
    case YamlNode::Kind::kList:
      return node.items.empty() ? "an empty list" : "a list";
    case YamlNode::Kind::kMapping:
      return node.items.empty() ? "an empty mapping" : "a mapping";
    case YamlNode::Kind::kScalar:
      break;
  }
  std::string text = one_line(node.text);
  if (text.size() > kShown) {
    size_t end = kShown;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
    text = text.substr(0, end) + "…";
  }
  const bool looks_like_number = node.quoted && !text.empty() && is_digit(text.front());
  return (looks_like_number ? "the text '" : "'") + text + "'";
}

tl::unexpected<Error> fail_expected(const YamlNode& node, const std::string& expects) {
  return fail_at(node, "expected " + expects + ", found " + found_text(node));
}

std::string IntegerRange::expects() const {
  if (low == high) return std::to_string(low);
  if (high == INT64_MAX) return "an integer of at least " + std::to_string(low);
  return "an integer from " + std::to_string(low) + " to " + std::to_string(high);
}

std::string NumberRange::expects() const {
  if (!above_low && !below_high)
    return "a number from " + number_text(low) + " to " + number_text(high);
  return "a number " + std::string(above_low ? "above " : "from ") + number_text(low) +
         (below_high ? " and below " : " and at most ") + number_text(high);
}

bool NumberRange::contains(double value) const {
  return std::isfinite(value) && (above_low ? value > low : value >= low) &&
         (below_high ? value < high : value <= high);
}

Result<int64_t> to_integer(const YamlNode& node, const IntegerRange& range) {
  int64_t value = 0;
  if (!parse_all(numeric_text(node), &value) || value < range.low || value > range.high)
    return fail_expected(node, range.expects());
  return value;
}

Result<int64_t> to_count(const YamlNode& node, const IntegerRange& range) {
  const std::string_view text = numeric_text(node);
  if (text.empty() || !is_digit(text.front())) return fail_expected(node, range.expects());
  const Result<int64_t> value = parse_count(text);
  if (!value) return fail_at(node, value.error().message);
  if (*value < range.low || *value > range.high) return fail_expected(node, range.expects());
  return *value;
}

Result<double> to_number(const YamlNode& node, const NumberRange& range) {
  double value = 0;
  if (!parse_all(numeric_text(node), &value) || !range.contains(value))
    return fail_expected(node, range.expects());
  return value;
}

Result<bool> to_flag(const YamlNode& node, std::string_view yes, std::string_view no) {
  if (node.kind == YamlNode::Kind::kScalar && !node.quoted) {
    if (node.text == yes) return true;
    if (node.text == no) return false;
  }
  return fail_expected(node, listed({yes, no}));
}

Result<std::string> to_text(const YamlNode& node, const std::string& expects) {
  if (node.kind != YamlNode::Kind::kScalar || node.text.empty())
    return fail_expected(node, expects);
  return node.text;
}

Result<size_t> to_word(const YamlNode& node, const std::vector<std::string_view>& words) {
  if (node.kind != YamlNode::Kind::kScalar) return fail_expected(node, listed(words));
  const auto found = std::find(words.begin(), words.end(), node.text);
  if (found != words.end()) return static_cast<size_t>(found - words.begin());
  const std::string near = did_you_mean(node.text, words.data(), words.size());
  return fail_at(node, "expected " + listed(words) + ", found " + found_text(node) +
                           (near.empty() ? "" : " (did you mean '" + near + "'?)"));
}

Result<std::vector<const YamlNode*>> to_list(const YamlNode& node, const std::string& expects) {
  std::vector<const YamlNode*> elements;
  if (node.kind == YamlNode::Kind::kScalar) elements.push_back(&node);
  if (node.kind == YamlNode::Kind::kList)
    for (const YamlNode& item : node.items) elements.push_back(&item);
  if (elements.empty()) return fail_expected(node, expects);
  for (const YamlNode* element : elements)
    if (element->kind != YamlNode::Kind::kScalar) return fail_expected(*element, expects);
  return elements;
}

Result<std::vector<std::string>> to_texts(const YamlNode& node) {
  MOTLEY_TRY(const auto elements, to_list(node, "a text or a list of texts"));
  std::vector<std::string> texts;
  for (const YamlNode* element : elements) {
    MOTLEY_TRY(texts.emplace_back(), to_text(*element));
  }
  return texts;
}

std::string listed(const std::vector<std::string_view>& words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += i + 1 == words.size() ? " or " : ", ";
    text += words[i];
  }
  return text;
}

bool is_plain_name(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' ||
           c == '_' || c == '-';
  });
}

bool is_path(std::string_view text) { return text.find('\n') == text.npos && text.size() <= 4096; }

}  // namespace motley
