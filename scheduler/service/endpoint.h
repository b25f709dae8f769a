#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/result.h"

namespace motley {

struct Endpoint {
  std::string host;  ///< a name, or an address without brackets
  uint16_t port = 0;

  std::string to_string() const;  ///< "host:port", "[::1]:port"
};

/// The inverse; names in small letters. kUsage for anything else.
Result<Endpoint> parse_endpoint(std::string_view text);
/// Letters, digits, '-', '.', '_', or an IPv6 address: what a certificate may name.
bool is_host(std::string_view text);

}  // namespace motley
