#include "scheduler/service/endpoint.h"

#include <algorithm>
#include <cctype>
#include <charconv>

namespace motley {

std::string Endpoint::to_string() const {
  const bool v6 = host.find(':') != std::string::npos;
  return (v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

bool is_host(std::string_view text) {
  const bool v6 = text.find(':') != std::string_view::npos;
  return !text.empty() && text.size() <= 253 &&
         std::all_of(text.begin(), text.end(), [v6](unsigned char c) {
           return v6 ? std::isxdigit(c) != 0 || c == ':' || c == '.'
                     : std::isalnum(c) != 0 || c == '-' || c == '.' || c == '_';
         });
}

Result<Endpoint> parse_endpoint(std::string_view text) {
  const auto refusal = fail(ErrorCode::kUsage, "expected HOST:PORT (or [ADDRESS]:PORT), found '" +
                                                   std::string(text) + "'");
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return refusal;
  std::string_view host = text.substr(0, colon);
  const bool in_brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (in_brackets) host = host.substr(1, host.size() - 2);
  const bool v6 = host.find(':') != std::string_view::npos;
  if (!is_host(host) || v6 != in_brackets) return refusal;
  Endpoint endpoint{std::string(host), 0};
  for (char& c : endpoint.host) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  const std::string_view port = text.substr(colon + 1);
  const char* end = port.data() + port.size();
  const auto parsed = std::from_chars(port.data(), end, endpoint.port);
  if (port.empty() || parsed.ec != std::errc() || parsed.ptr != end) return refusal;
  return endpoint;
}

}  // namespace motley
