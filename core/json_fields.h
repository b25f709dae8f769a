#pragma once
// Strict reading of a JSON object, member by member: every document of ours that comes back from a
// file or a socket is read through this. The first fault is kept and names its JSON pointer:
//
//   /train/optimizer/lr: expected a number, found a string
//
// Missing and unknown members are faults, integers must fit their type, nothing is converted.

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/ids.h"
#include "core/result.h"

namespace motley {

/// No duration in a document is longer.
inline constexpr double kMostSeconds = 1e12;

class JsonFields {
 public:
  /// `json` must outlive this. `pointer` is where it stands in its document: "" for the root.
  explicit JsonFields(const nlohmann::json& json, std::string pointer = {});

  JsonFields& read(const char* key, bool& out);
  JsonFields& read(const char* key, int& out);
  JsonFields& read(const char* key, int64_t& out);
  JsonFields& read(const char* key, uint64_t& out);
  JsonFields& read(const char* key, double& out);  ///< finite
  JsonFields& read(const char* key, std::string& out);
  /// Also refuses what lies outside [least, most].
  JsonFields& read_between(const char* key, int& out, int least, int most);
  JsonFields& read_between(const char* key, int64_t& out, int64_t least, int64_t most);
  JsonFields& read_between(const char* key, double& out, double least, double most);
  JsonFields& read(const char* key, std::vector<std::string>& out);
  JsonFields& read(const char* key, std::vector<int64_t>& out);
  JsonFields& read(const char* key, std::vector<double>& out);
  JsonFields& read(const char* key, std::map<std::string, double>& out);

  template <class Tag>
  JsonFields& read(const char* key, Quantity<Tag>& out) {
    int64_t value = 0;
    read(key, value);
    out = Quantity<Tag>(value);
    return *this;
  }
  template <class Tag>
  JsonFields& read(const char* key, Id<Tag>& out) {
    int value = 0;
    read(key, value);
    out = Id<Tag>(value);
    return *this;
  }
  template <class Tag>
  JsonFields& read_between(const char* key, Quantity<Tag>& out, int64_t least, int64_t most) {
    int64_t value = 0;
    read_between(key, value, least, most);
    out = Quantity<Tag>(value);
    return *this;
  }
  /// null: nothing.
  template <class T>
  JsonFields& read(const char* key, std::optional<T>& out) {
    out.reset();
    if (!is_null(key)) read(key, out.emplace());
    return *this;
  }
  /// The member "version", which must be the one this program knows.
  JsonFields& read_version(int known);
  /// null: not a number (JSON has none).
  JsonFields& read_maybe_nan(const char* key, double& out);
  /// Keeps `out` when the member is missing.
  template <class T>
  JsonFields& read_if(const char* key, T& out) {
    if (has(key)) read(key, out);
    return *this;
  }
  /// A member that is one of the words of `parse`, a function from string_view to optional<E>.
  template <class E, class Parse>
  JsonFields& read_word(const char* key, E& out, Parse parse) {
    std::string word;
    read(key, word);
    if (!fault_) {
      if (const std::optional<E> value = parse(word))
        out = *value;
      else
        fault(key, "unknown word '" + word + "'");
    }
    return *this;
  }

  /// Reads the object `key` with `body(JsonFields&)`.
  template <class Body>
  JsonFields& object(const char* key, Body body) {
    if (const nlohmann::json* json = member(key)) adopt_from(*json, path_of(key), body);
    return *this;
  }
  /// Reads each element (an object) of the array `key` with `body(JsonFields&)`.
  template <class Body>
  JsonFields& each(const char* key, Body body) {
    const nlohmann::json* array = member(key);
    const size_t count = array ? array_size(key, *array) : 0;
    for (size_t i = 0; i < count && !fault_; ++i)
      adopt_from(element(*array, i), path_of(key) + "/" + std::to_string(i), body);
    return *this;
  }

  /// Whether it is there; either way the member then counts as known.
  bool has(const char* key);
  /// Present and null.
  bool is_null(const char* key);
  /// The member for reading by other means, marked as known; null (and a fault) when missing.
  const nlohmann::json* member(const char* key);
  /// Members that nobody asks for are no fault: for documents that others wrote.
  JsonFields& leave_others();
  /// Nor are those that people write for people: core/FORMATS.md, "foreign profile".
  JsonFields& leave_notes();
  /// The object itself, to go through keys that are not known; empty where it is none.
  const nlohmann::json& whole() const;
  /// Notes a fault of this member; `key` null: of the object itself. Only the first one counts.
  void fault(const char* key, const std::string& what);
  /// The same for a member read as a document of its own: `what` begins with its pointer.
  void fault_within(const char* key, const std::string& what);

  /// The first fault, or a complaint about a member that nobody asked for: of two, where a missing
  /// one is spelt wrongly, the one that says so.
  Result<Unit> done();

 private:
  template <class Body>
  void adopt_from(const nlohmann::json& json, std::string path, Body body) {
    JsonFields inner(json, std::move(path));
    body(inner);
    adopt(inner.done());
  }
  void adopt(Result<Unit> inner);
  std::string path_of(const char* key) const;
  size_t array_size(const char* key, const nlohmann::json& array);
  static const nlohmann::json& element(const nlohmann::json& array, size_t index);

  const nlohmann::json* json_ = nullptr;  ///< null when it is not an object
  std::string pointer_;
  std::vector<std::string_view> known_;
  std::optional<Error> fault_;
  bool leave_others_ = false;
  std::string_view missing_;  ///< the member whose absence is the fault
};

/// A whole text as JSON; kCorrupt with the byte, line and column of the fault (whose place names no
/// file). Depth is bounded.
Result<nlohmann::json> parse_json(std::string_view text);

}  // namespace motley
