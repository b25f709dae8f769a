#pragma once
// What text is: JSON and YAML can hold nothing else, paths may be anything.

#include <cstddef>
#include <string_view>

namespace motley {

/// Bytes of the UTF-8 character at the front of `text`, which is not empty; 0 when it is none.
size_t utf8_character_bytes(std::string_view text);

bool is_utf8(std::string_view text);

}  // namespace motley
