#pragma once
// Random secrets, what is kept of them, and how they are compared.

#include <string>
#include <string_view>

#include "core/result.h"

namespace motley {

/// 256 random bits as 64 hexadecimal digits.
Result<std::string> new_secret();
/// 64 hexadecimal digits.
std::string sha256_of(std::string_view bytes);
/// In a time that tells nothing about where they differ.
bool equal_secrets(std::string_view a, std::string_view b);

}  // namespace motley
