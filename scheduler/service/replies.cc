#include "scheduler/service/replies.h"

#include <charconv>

namespace motley {

int status_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kUsage:
      return 400;
    case ErrorCode::kNotFound:
      return 404;
    case ErrorCode::kNotPermitted:
      return 409;
    case ErrorCode::kInvalidSpec:
      return 422;
    case ErrorCode::kIo:
      return 507;  // what cannot be kept is refused
    default:
      return 500;
  }
}

int status_of_refused(ErrorCode code) {
  if (code == ErrorCode::kUsage) return 409;  // the key belongs to another job
  if (code == ErrorCode::kIo) return 507;
  return code == ErrorCode::kInternal ? 500 : 422;
}

void refuse(const HttpReply& reply, const Error& error) {
  reply(error_response(status_of(error.code), error));
}

std::string text_in(const HttpRequest& request, const std::string& name) {
  const auto found = request.query.find(name);
  return found == request.query.end() ? "" : found->second;
}

Result<int64_t> number_in(const HttpRequest& request, const std::string& name, int64_t otherwise,
                          int64_t most) {
  const auto found = request.query.find(name);
  if (found == request.query.end()) return otherwise;
  int64_t number = 0;
  const char* end = found->second.data() + found->second.size();
  const auto parsed = std::from_chars(found->second.data(), end, number);
  if (parsed.ec != std::errc() || parsed.ptr != end || number < 0 || number > most)
    return fail(ErrorCode::kUsage, name + ": expected a number from 0 to " + std::to_string(most) +
                                       ", found '" + found->second + "'");
  return number;
}

Result<std::string> submission_key(const HttpRequest& request) {
  constexpr size_t kLongest = 256;
  const std::string& key = request.idempotency_key;
  if (key.size() > kLongest)
    return fail(ErrorCode::kInvalidSpec, "Idempotency-Key: at most 256 bytes");
  return request.caller.token == 0 || key.empty() ? key : request.caller.user + "/" + key;
}

Result<Unit> only(const HttpRequest& request, std::string_view known) {
  for (const auto& [name, value] : request.query) {
    std::string_view rest = known;
    bool found = false;
    while (!rest.empty() && !found) found = cut_off(&rest, ' ') == name;
    if (!found) return fail(ErrorCode::kUsage, "unknown parameter '" + name + "'");
  }
  return Unit{};
}

bool wants_events(const HttpRequest& request) {
  return request.accept.find("text/event-stream") != std::string::npos;
}

}  // namespace motley
