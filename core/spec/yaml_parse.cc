// The only file that sees yaml-cpp. Its event parser is used, not its document tree: the tree
// expands aliases (442 bytes become gigabytes), keeps duplicate keys and has no limits, and nobody
// has asked it not to.

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <sstream>
#include <unordered_set>

#include "core/log.h"
#include "core/spec/yaml_tree.h"
#include "core/units.h"
#include "core/utf8.h"

namespace motley {
namespace {

/// Thrown through yaml-cpp out of an event, caught in parse_yaml.
struct Refused {
  Error error;
};

/// Finds what stands at a mark without walking the text from its beginning each time.
class Lines {
 public:
  explicit Lines(std::string_view text) : text_(text) {
    starts_.push_back(0);
    for (size_t i = 0; i < text.size(); ++i)
      if (text[i] == '\n') starts_.push_back(i + 1);
  }
  /// The text from the mark on.
  std::string_view from(const YAML::Mark& mark) const {
    const auto line = static_cast<size_t>(mark.line);
    if (mark.line < 0 || mark.column < 0 || line >= starts_.size()) return {};
    const size_t offset = starts_[line] + static_cast<size_t>(mark.column);
    return offset < text_.size() ? text_.substr(offset) : std::string_view();
  }
  bool has_at(const YAML::Mark& mark, char c) const {
    return from(mark).substr(0, 1) == std::string_view(&c, 1);
  }

 private:
  std::string_view text_;
  std::vector<size_t> starts_;
};

/// Whether the quoted scalar at the front of `text` ends; yaml-cpp lets the end of the file do.
bool closes_quote(std::string_view text) {
  const char quote = text.empty() ? '\0' : text.front();
  if (quote != '"' && quote != '\'') return true;
  for (size_t i = 1; i < text.size(); ++i) {
    const bool escape = quote == '"' ? text[i] == '\\' : text.substr(i, 2) == "''";
    if (escape) {
      ++i;
    } else if (text[i] == quote) {
      return true;
    }
  }
  return false;
}

class TreeBuilder final : public YAML::EventHandler {
 public:
  TreeBuilder(std::string_view text, const std::string* source, const YamlLimits& limits)
      : lines_(text), source_(source), limits_(limits) {}

  YamlNode take_root() { return std::move(root_); }
  const Lines& lines() const { return lines_; }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1) refuse(mark, "a second document starts here (only one is allowed)");
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    add(make(mark, anchor, {}, YamlNode::Kind::kNull));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override { refuse_alias(mark); }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    YamlNode node = make(mark, anchor, tag, YamlNode::Kind::kScalar);
    node.quoted = tag == "!";
    if (node.quoted && !closes_quote(lines_.from(mark))) refuse(mark, "this quote is never closed");
    node.text = value;
    add(std::move(node));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(make(mark, anchor, tag, YamlNode::Kind::kList));
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(make(mark, anchor, tag, YamlNode::Kind::kMapping));
  }
  void OnMapEnd() override { close(); }
  void OnAnchor(const YAML::Mark& mark, const std::string&) override { refuse_anchor(mark); }

  [[noreturn]] void refuse_alias(const YAML::Mark& mark) {
    refuse(mark, "aliases are not allowed (write the value again)");
  }

 private:
  struct Open {
    YamlNode node;
    std::unordered_set<std::string> keys;  ///< of a mapping, to find the second of a kind at once
  };

  [[noreturn]] void refuse(const YAML::Mark& mark, const std::string& what) {
    throw Refused{{ErrorCode::kInvalidSpec, what, {*source_, mark.line + 1, mark.column + 1}}};
  }
  [[noreturn]] void refuse_anchor(const YAML::Mark& mark) {
    refuse(mark, "anchors are not allowed (write the value again where it is needed)");
  }

  YamlNode make(const YAML::Mark& mark, YAML::anchor_t anchor, const std::string& tag,
                YamlNode::Kind kind) {
    if (++nodes_ > limits_.nodes)
      refuse(mark, "more than " + std::to_string(limits_.nodes) + " nodes");
    if (anchor != YAML::NullAnchor) refuse_anchor(mark);
    if (lines_.has_at(mark, '!') || (!tag.empty() && tag != "?" && tag != "!"))
      refuse(mark, "tags are not allowed (leave it out)");
    return {.kind = kind, .line = mark.line + 1, .column = mark.column + 1, .source = source_};
  }

  void open(YamlNode node) {
    const YAML::Mark mark = mark_of(node);
    check_key(node);
    if (open_.size() >= static_cast<size_t>(limits_.depth))
      refuse(mark, "nested deeper than " + std::to_string(limits_.depth) + " levels");
    open_.push_back({std::move(node), {}});
  }

  void close() {
    YamlNode node = std::move(open_.back().node);
    open_.pop_back();
    add_checked(std::move(node));
  }

  void add(YamlNode node) {
    check_key(node);
    add_checked(std::move(node));
  }

  void add_checked(YamlNode node) {
    // yaml-cpp notices a missing value only at the next token; the key is where to look.
    const bool is_value = !open_.empty() && open_.back().node.kind == YamlNode::Kind::kMapping &&
                          open_.back().node.items.size() % 2 == 1;
    if (node.kind == YamlNode::Kind::kNull && is_value) {
      node.line = open_.back().node.items.back().line;
      node.column = open_.back().node.items.back().column;
    }
    (open_.empty() ? root_ : open_.back().node.items.emplace_back()) = std::move(node);
  }

  /// If `node` stands where a mapping's key does, it must be a new word.
  void check_key(const YamlNode& node) {
    if (open_.empty()) return;
    Open& parent = open_.back();
    if (parent.node.kind != YamlNode::Kind::kMapping || parent.node.items.size() % 2 == 1) return;
    // yaml-cpp also takes a list that never ends for a key.
    if (node.kind != YamlNode::Kind::kScalar)
      refuse(mark_of(node), "a key must be a word (or was a bracket left open?)");
    if (!parent.keys.insert(node.text).second)
      refuse(mark_of(node), "duplicate key '" + one_line(node.text) + "'");
  }

  static YAML::Mark mark_of(const YamlNode& node) {
    YAML::Mark mark;
    mark.line = node.line - 1;
    mark.column = node.column - 1;
    return mark;
  }

  Lines lines_;
  const std::string* source_;
  YamlLimits limits_;
  size_t documents_ = 0;
  size_t nodes_ = 0;
  std::vector<Open> open_;
  YamlNode root_;
};

/// Bytes of the UTF-8 character at the front of `text`; 0 when it is none, or one that no text
/// needs (controls).
size_t character_bytes(std::string_view text) {
  const char c = text.front();
  const bool control = (c >= 0 && c < 0x20 && c != '\n' && c != '\t' && c != '\r') || c == 0x7f;
  return control ? 0 : utf8_character_bytes(text);
}

/// What yaml-cpp would take without a word: bytes that are no text, and tabs that look like spaces.
Result<Unit> check_characters(std::string_view text, const std::string& source) {
  int line = 1;
  size_t start = 0;
  bool indentation = true;
  bool tab = false;
  for (size_t i = 0; i < text.size();) {
    const SourcePlace place{source, line, static_cast<int>(i - start) + 1};
    const size_t bytes = character_bytes(text.substr(i));
    if (bytes == 0)
      return fail(ErrorCode::kInvalidSpec, "not UTF-8 text (save the file as UTF-8)", place);
    const char c = text[i];
    if (c == '\n') {
      ++line;
      start = i + 1;
      indentation = true;
      tab = false;
    } else if (indentation && c == '\t') {
      tab = true;
    } else if (indentation && c != ' ' && c != '\r') {
      if (tab && c != '#')
        return fail(ErrorCode::kInvalidSpec, "a tab in the indentation (use spaces)",
                    {source, line, 1});
      indentation = false;
    }
    i += bytes;
  }
  return Unit{};
}

/// yaml-cpp reads a bracket to its end before it tells of its beginning, holding a token of some
/// 200 bytes for each mark; so their number is limited before it starts.
Result<Unit> check_marks(std::string_view text, const std::string& source, size_t most) {
  constexpr std::string_view kMarks = "[]{},:?";
  const auto marks = std::count_if(
      text.begin(), text.end(), [&](char c) { return kMarks.find(c) != std::string_view::npos; });
  if (static_cast<size_t>(marks) <= most) return Unit{};
  return fail(ErrorCode::kInvalidSpec,
              "more than " + std::to_string(most) + " brackets, commas and colons",
              {.file = source});
}

Result<YamlNode> build(std::string_view text, const std::string* source, const YamlLimits& limits) {
  TreeBuilder builder(text, source, limits);
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(builder))
      return fail(ErrorCode::kInvalidSpec, "the file is empty", {*source, 1, 1});
    while (parser.HandleNextDocument(builder)) {
    }
    return builder.take_root();
  } catch (const Refused& refused) {
    return fail(refused.error);
  } catch (const YAML::Exception& error) {
    const bool known = !error.mark.is_null();
    const std::string what = known && builder.lines().has_at(error.mark, '*')
                                 ? "aliases are not allowed (write the value again)"
                                 : "not valid YAML: " + one_line(error.msg);
    return fail(ErrorCode::kInvalidSpec, what,
                {*source, known ? error.mark.line + 1 : 0, known ? error.mark.column + 1 : 0});
  }
}

}  // namespace

Result<YamlTree> parse_yaml(std::string_view text, const std::string& source,
                            const YamlLimits& limits) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  if (text.size() > limits.bytes)
    return fail(ErrorCode::kInvalidSpec,
                "larger than " + format_bytes(Bytes(static_cast<int64_t>(limits.bytes))),
                {.file = source});
  if (text.substr(0, kByteOrderMark.size()) == kByteOrderMark)
    text.remove_prefix(kByteOrderMark.size());
  MOTLEY_TRY_VOID(check_marks(text, source, limits.nodes));
  MOTLEY_TRY_VOID(check_characters(text, source));
  YamlTree tree;
  tree.sources.push_back(std::make_unique<const std::string>(source));
  MOTLEY_TRY(tree.root, build(text, tree.sources.back().get(), limits));
  return tree;
}

}  // namespace motley
