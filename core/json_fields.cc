#include "core/json_fields.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/json_place.h"
#include "core/log.h"
#include "core/units.h"

namespace motley {
namespace {

using nlohmann::json;

const char* kind_of(const json& value) {
  switch (value.type()) {
    case json::value_t::null:
      return "null";
    case json::value_t::object:
      return "an object";
    case json::value_t::array:
      return "an array";
    case json::value_t::string:
      return "a string";
    case json::value_t::boolean:
      return "a truth value";
    default:
      return "a number";
  }
}

std::string expected(const char* what, const json& found) {
  return std::string("expected ") + what + ", found " + kind_of(found);
}

/// Checked: nlohmann's own conversions wrap around silently.
template <class Integer>
bool to_integer(const json& value, Integer* out) {
  if (value.is_number_unsigned()) {
    const uint64_t number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(std::numeric_limits<Integer>::max())) return false;
    *out = static_cast<Integer>(number);
    return true;
  }
  if (!value.is_number_integer()) return false;
  const int64_t number = value.get<int64_t>();
  if constexpr (std::is_signed_v<Integer>) {
    if (number < static_cast<int64_t>(std::numeric_limits<Integer>::min()) ||
        number > static_cast<int64_t>(std::numeric_limits<Integer>::max()))
      return false;
    *out = static_cast<Integer>(number);
    return true;
  }
  return false;  // negative, as nlohmann stores the others unsigned
}

bool nested_deeper_than(std::string_view text, int limit) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string && c == '\\')
      ++i;  // whatever it escapes
    else if (c == '"')
      in_string = !in_string;
    else if (!in_string && (c == '{' || c == '['))
      ++depth;
    else if (!in_string && (c == '}' || c == ']'))
      --depth;
    if (depth > limit) return true;
  }
  return false;
}

template <class Integer>
std::string integer_fault(const json& value) {
  if (!value.is_number()) return expected("an integer", value);
  return "expected an integer of " + std::to_string(sizeof(Integer) * 8) + " bits, found " +
         value.dump();
}

template <class Number>
std::string range_fault(Number found, Number least, Number most) {
  return "expected " + json(least).dump() + " to " + json(most).dump() + ", found " +
         json(found).dump();
}

}  // namespace

JsonFields::JsonFields(const json& value, std::string pointer) : pointer_(std::move(pointer)) {
  if (value.is_object())
    json_ = &value;
  else
    fault(nullptr, expected("an object", value));
}

bool JsonFields::has(const char* key) {
  known_.emplace_back(key);
  return json_ && json_->contains(key);
}

bool JsonFields::is_null(const char* key) { return has(key) && (*json_)[key].is_null(); }

const json* JsonFields::member(const char* key) {
  known_.emplace_back(key);
  if (!json_ || fault_) return nullptr;
  const auto found = json_->find(key);
  if (found != json_->end()) return &*found;
  fault(nullptr, "'" + std::string(key) + "' is missing");
  missing_ = key;
  return nullptr;
}

std::string JsonFields::path_of(const char* key) const { return pointer_ + "/" + key; }

void JsonFields::fault(const char* key, const std::string& what) {
  if (fault_) return;
  std::string path = key ? path_of(key) : pointer_;
  if (path.empty()) path = "/";
  fault_ = Error{ErrorCode::kInvalidSpec, path + ": " + what, {}};
}

void JsonFields::fault_within(const char* key, const std::string& what) {
  if (!fault_) fault_ = Error{ErrorCode::kInvalidSpec, path_of(key) + what, {}};
}

void JsonFields::adopt(Result<Unit> inner) {
  if (!inner && !fault_) fault_ = std::move(inner).error();
}

size_t JsonFields::array_size(const char* key, const json& array) {
  if (array.is_array()) return array.size();
  fault(key, expected("an array", array));
  return 0;
}

const json& JsonFields::element(const json& array, size_t index) { return array[index]; }

JsonFields& JsonFields::leave_others() {
  leave_others_ = true;
  return *this;
}

JsonFields& JsonFields::leave_notes() {
  constexpr const char* kNotes[] = {"name", "source", "notes", "comment", "description", "license"};
  known_.insert(known_.end(), std::begin(kNotes), std::end(kNotes));
  for (const auto& [key, value] : whole().items())
    if (key.starts_with('_')) known_.emplace_back(key);
  return *this;
}

const json& JsonFields::whole() const {
  static const json none = json::object();
  return json_ ? *json_ : none;
}

Result<Unit> JsonFields::done() {
  if (fault_ && missing_.empty()) return fail(*fault_);
  for (const auto& [key, value] : json_->items()) {
    if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
    const std::string near = did_you_mean(key, known_.data(), known_.size());
    if (fault_ ? near != missing_ : leave_others_) continue;
    fault_.reset();
    fault(nullptr, "unknown key '" + one_line(key) + "'" +
                       (near.empty() ? "" : " (did you mean '" + near + "'?)"));
    return fail(*fault_);
  }
  return fault_ ? Result<Unit>(fail(*fault_)) : Unit{};
}

JsonFields& JsonFields::read(const char* key, bool& out) {
  if (const json* value = member(key)) {
    if (value->is_boolean())
      out = value->get<bool>();
    else
      fault(key, expected("true or false", *value));
  }
  return *this;
}

JsonFields& JsonFields::read(const char* key, int& out) {
  if (const json* value = member(key))
    if (!to_integer(*value, &out)) fault(key, integer_fault<int>(*value));
  return *this;
}

JsonFields& JsonFields::read(const char* key, int64_t& out) {
  if (const json* value = member(key))
    if (!to_integer(*value, &out)) fault(key, integer_fault<int64_t>(*value));
  return *this;
}

JsonFields& JsonFields::read(const char* key, uint64_t& out) {
  if (const json* value = member(key))
    if (!to_integer(*value, &out)) fault(key, integer_fault<uint64_t>(*value));
  return *this;
}

JsonFields& JsonFields::read(const char* key, double& out) {
  if (const json* value = member(key)) {
    if (value->is_number() && std::isfinite(value->get<double>()))
      out = value->get<double>();
    else
      fault(key, expected("a number", *value));
  }
  return *this;
}

JsonFields& JsonFields::read_between(const char* key, int& out, int least, int most) {
  read(key, out);
  if (out < least || out > most) fault(key, range_fault(out, least, most));
  return *this;
}

JsonFields& JsonFields::read_between(const char* key, int64_t& out, int64_t least, int64_t most) {
  read(key, out);
  if (out < least || out > most) fault(key, range_fault(out, least, most));
  return *this;
}

JsonFields& JsonFields::read_between(const char* key, double& out, double least, double most) {
  read(key, out);
  if (out < least || out > most) fault(key, range_fault(out, least, most));
  return *this;
}

JsonFields& JsonFields::read_version(int known) {
  int version = known;
  read("version", version);
  if (version != known)
    fault("version", "this program reads version " + std::to_string(known) + ", found " +
                         std::to_string(version));
  return *this;
}

JsonFields& JsonFields::read_maybe_nan(const char* key, double& out) {
  if (!is_null(key)) return read(key, out);
  out = std::numeric_limits<double>::quiet_NaN();
  return *this;
}

JsonFields& JsonFields::read(const char* key, std::string& out) {
  if (const json* value = member(key)) {
    if (value->is_string())
      out = value->get<std::string>();
    else
      fault(key, expected("a string", *value));
  }
  return *this;
}

JsonFields& JsonFields::read(const char* key, std::vector<std::string>& out) {
  out.clear();
  const json* array = member(key);
  const size_t count = array ? array_size(key, *array) : 0;
  for (size_t i = 0; i < count && !fault_; ++i) {
    if ((*array)[i].is_string())
      out.push_back((*array)[i].get<std::string>());
    else
      fault((std::string(key) + "/" + std::to_string(i)).c_str(),
            expected("a string", (*array)[i]));
  }
  return *this;
}

JsonFields& JsonFields::read(const char* key, std::vector<int64_t>& out) {
  out.clear();
  const json* array = member(key);
  const size_t count = array ? array_size(key, *array) : 0;
  for (size_t i = 0; i < count && !fault_; ++i) {
    if (!to_integer((*array)[i], &out.emplace_back()))
      fault((std::string(key) + "/" + std::to_string(i)).c_str(),
            integer_fault<int64_t>((*array)[i]));
  }
  return *this;
}

JsonFields& JsonFields::read(const char* key, std::vector<double>& out) {
  out.clear();
  const json* array = member(key);
  const size_t count = array ? array_size(key, *array) : 0;
  for (size_t i = 0; i < count && !fault_; ++i) {
    if ((*array)[i].is_number())
      out.push_back((*array)[i].get<double>());
    else
      fault((std::string(key) + "/" + std::to_string(i)).c_str(),
            expected("a number", (*array)[i]));
  }
  return *this;
}

JsonFields& JsonFields::read(const char* key, std::map<std::string, double>& out) {
  out.clear();
  const json* object = member(key);
  if (object == nullptr) return *this;
  if (!object->is_object()) fault(key, expected("an object", *object));
  for (const auto& [name, value] : object->items()) {
    if (fault_) break;
    if (value.is_number())
      out[name] = value.get<double>();
    else
      fault((std::string(key) + "/" + name).c_str(), expected("a number", value));
  }
  return *this;
}

Result<json> parse_json(std::string_view text) {
  // Counted beforehand: the library's own callback for it makes parsing quadratic in the length of
  // an array of objects.
  if (nested_deeper_than(text, 64)) return fail(ErrorCode::kCorrupt, "JSON nested deeper than 64");
  try {
    return json::parse(text.begin(), text.end());
  } catch (const json::parse_error& error) {
    const bool ended = error.byte > text.size();
    return fail(ErrorCode::kCorrupt,
                ended ? std::string("not JSON: it ends too soon")
                      : "not JSON: broken at byte " + std::to_string(error.byte),
                place_at(text, error.byte > 0 ? error.byte - 1 : 0));
  } catch (const json::exception& error) {  // a number out of range
    return fail(ErrorCode::kCorrupt, "not JSON: a number is out of range");
  }
}

}  // namespace motley
