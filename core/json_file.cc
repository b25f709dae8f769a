#include "core/json_file.h"

#include <nlohmann/json.hpp>

#include "core/json_fields.h"

namespace motley {
namespace {

constexpr Bytes kLargestDocument{256 << 20};

}  // namespace

Result<nlohmann::json> parse_json_file(std::string_view text, const std::string& path,
                                       ErrorCode code) {
  auto json = parse_json(text);
  if (json) return json;
  Error error = std::move(json.error());
  error.code = code;
  error.place.file = path;
  return fail(std::move(error));
}

Result<nlohmann::json> read_json_file(FileSystem& fs, const std::string& path, ErrorCode code) {
  MOTLEY_TRY(const std::string text, read_text(fs, path, kLargestDocument));
  return parse_json_file(text, path, code);
}

}  // namespace motley
