#include "scheduler/service/replies.h"

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
