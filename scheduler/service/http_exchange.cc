#include "scheduler/service/http_exchange.h"

#include <algorithm>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/error.hpp>
#include <cctype>

namespace motley {

namespace beast = boost::beast;
namespace http = boost::beast::http;

namespace {

/// Of "Authorization: Bearer TOKEN".
std::string bearer(const std::string& authorization) {
  constexpr std::string_view kScheme = "Bearer ";
  if (!beast::iequals(beast::string_view(authorization).substr(0, kScheme.size()),
                      beast::string_view(kScheme.data(), kScheme.size())))
    return "";
  return authorization.substr(kScheme.size());
}

}  // namespace

std::string header_of(const http::request<HttpText>& request, beast::string_view name) {
  const auto found = request.find(name);
  return found == request.end() ? "" : std::string(found->value().data(), found->value().size());
}

Result<HttpRequest> request_of(http::request<HttpText>& message) {
  HttpRequest request;
  request.method = std::string(message.method_string());
  request.accept = header_of(message, "Accept");
  request.idempotency_key = header_of(message, "Idempotency-Key");
  request.last_event_id = header_of(message, "Last-Event-ID");
  request.token = bearer(header_of(message, "Authorization"));
  request.body = std::move(message.body());
  const beast::string_view target = message.target();
  MOTLEY_TRY_VOID(read_target({target.data(), target.size()}, &request));
  return request;
}

http::response<HttpText> message_of(HttpResponse response, bool keep_alive) {
  http::response<HttpText> message(static_cast<http::status>(response.status), 11);
  message.set(http::field::content_type, response.type);
  message.set(http::field::cache_control, "no-store");
  if (!response.allow.empty()) message.set(http::field::allow, response.allow);
  if (response.status == 401) message.set(http::field::www_authenticate, "Bearer");
  if (response.retry_after > 0)
    message.set(http::field::retry_after, std::to_string(response.retry_after));
  message.keep_alive(keep_alive);
  message.body() = std::move(response.body);
  message.prepare_payload();
  return message;
}

std::optional<HttpResponse> refusal_of(boost::system::error_code error) {
  if (error == http::error::header_limit)
    return error_response(431, {ErrorCode::kUsage, "the header is too long", {}});
  if (error == http::error::body_limit)
    return error_response(413, {ErrorCode::kUsage, "the body is too long (1 MiB at most)", {}});
  if (error.category() == http::make_error_code(http::error::bad_target).category() &&
      error != http::error::end_of_stream && error != http::error::partial_message)
    return error_response(400, {ErrorCode::kUsage, "not HTTP: " + error.message(), {}});
  return std::nullopt;
}

bool is_addressed(std::string host, const std::vector<std::string>& names) {
  if (host.starts_with('[')) {
    const size_t end = host.find(']');
    if (end == std::string::npos) return false;
    host = host.substr(1, end - 1);
  } else if (const size_t colon = host.find(':'); colon != std::string::npos) {
    host.resize(colon);
  }
  for (char& c : host) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return std::find(names.begin(), names.end(), host) != names.end();
}

}  // namespace motley
