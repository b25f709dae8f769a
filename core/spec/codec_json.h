#pragma once
// How gradients are compressed, as JSON: the word of a codec without parameters, or an object with
// its type and them. Format: core/FORMATS.md.

#include <nlohmann/json_fwd.hpp>

#include "core/compression.h"
#include "core/json_fields.h"

namespace motley {

nlohmann::json to_json(const CodecSpec& codec);

/// The member `key`. Ranges are left to first_fault().
void read_codec(JsonFields& fields, const char* key, CodecSpec& codec);

}  // namespace motley
