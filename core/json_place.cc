#include "core/json_place.h"

#include <algorithm>

namespace motley {
namespace {

/// Walks over valid JSON; what it does not look for it skips.
class JsonWalker {
 public:
  explicit JsonWalker(std::string_view text) : text_(text) { skip_space(); }

  size_t position() const { return position_; }

  /// Enters the member or element `key` of the value here; false where there is none, and then it
  /// stays before the value.
  bool enter(std::string_view key) {
    const size_t before = position_;
    if (position_ < text_.size() && (text_[position_] == '{' || text_[position_] == '[')) {
      const bool object = text_[position_] == '{';
      ++position_;
      skip_space();
      for (size_t index = 0; position_ < text_.size() && !closes(text_[position_]); ++index) {
        if (found(object, index, key)) return true;
        skip_value();
        if (position_ < text_.size() && text_[position_] == ',') ++position_;
        skip_space();
      }
    }
    position_ = before;
    return false;
  }

 private:
  static bool closes(char c) { return c == '}' || c == ']'; }

  /// Whether the member or element that begins here is the one; goes past a member's name.
  bool found(bool object, size_t index, std::string_view key) {
    if (!object) return std::to_string(index) == key;
    const size_t name = position_;
    skip_string();
    const bool same = text_.substr(name + 1, position_ - name - 2) == key;
    skip_space();
    ++position_;  // the colon
    skip_space();
    return same;
  }

  void skip_space() {
    while (position_ < text_.size() &&
           std::string_view(" \t\r\n").find(text_[position_]) != std::string_view::npos)
      ++position_;
  }

  void skip_string() {
    for (++position_; position_ < text_.size() && text_[position_] != '"'; ++position_)
      if (text_[position_] == '\\') ++position_;
    ++position_;
  }

  /// Ends before what follows the value.
  void skip_value() {
    int depth = 0;
    do {
      const char c = text_[position_];
      if (c == '"') {
        skip_string();
      } else {
        depth += (c == '{' || c == '[') - closes(c);
        ++position_;
      }
      skip_space();
    } while (position_ < text_.size() &&
             (depth > 0 || !(closes(text_[position_]) || text_[position_] == ',')));
  }

  std::string_view text_;
  size_t position_ = 0;
};

}  // namespace

SourcePlace place_in_json(std::string_view text, std::string_view pointer) {
  JsonWalker walker(text);
  while (pointer.starts_with('/')) {
    pointer.remove_prefix(1);
    const size_t end = std::min(pointer.find('/'), pointer.size());
    if (!walker.enter(pointer.substr(0, end))) break;
    pointer.remove_prefix(end);
  }
  return place_at(text, walker.position());
}

SourcePlace place_at(std::string_view text, size_t offset) {
  const std::string_view before = text.substr(0, offset);
  const size_t line_end = before.rfind('\n');
  const size_t line_begin = line_end == std::string_view::npos ? 0 : line_end + 1;
  return {"", 1 + static_cast<int>(std::count(before.begin(), before.end(), '\n')),
          1 + static_cast<int>(before.size() - line_begin)};
}

tl::unexpected<Error> invalid_at(const std::string& pointer, const std::string& what) {
  return fail(ErrorCode::kInvalidSpec, pointer + ": " + what);
}

Error placed_in(Error error, std::string_view text, const std::string& path) {
  if (!error.place.file.empty()) return error;
  const size_t end = error.message.find(": ");
  if (error.message.starts_with('/') && end != std::string::npos)
    error.place = place_in_json(text, std::string_view(error.message).substr(0, end));
  error.place.file = path;
  return error;
}

}  // namespace motley
