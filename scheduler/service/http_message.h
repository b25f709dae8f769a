#pragma once
// A request and its response as the API sees them: no socket, no library of others.

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "core/ids.h"
#include "core/result.h"
#include "scheduler/service/caller.h"

namespace motley {

struct HttpRequest {
  std::string method;  ///< "GET"
  std::string path;    ///< "/v1/jobs/7", decoded
  std::map<std::string, std::string> query;
  std::string body;
  std::string accept;
  std::string idempotency_key;
  std::string last_event_id;
  bool local = false;  ///< over the Unix socket, by the service's own user or root
  std::string token;   ///< of "Authorization: Bearer …"; empty: none
  std::string peer;    ///< the address of who asks; empty: local
  Caller caller;       ///< who that is, once the API has found out
  std::string name;    ///< in the path, where the route has one
};

/// The text before the first `separator`, taken off `text` together with it.
std::string_view cut_off(std::string_view* text, char separator);
/// Parts `target` ("/v1/jobs?state=queued") of a request line; kUsage where it is malformed.
Result<Unit> read_target(std::string_view target, HttpRequest* request);
/// As part of a target: letters, digits, '-', '.', '_', '~' as they are.
std::string percent_encoded(std::string_view text);

/// A response that goes on: asked again and again for what has been added.
class EventSource {
 public:
  virtual ~EventSource() = default;
  /// Whole server-sent events; empty: nothing new.
  virtual std::string next() = 0;
  virtual bool over() const = 0;  ///< nothing will follow
  /// After which it may have something new although nothing was written to the database.
  virtual std::chrono::milliseconds patience() const = 0;
};

/// As what the connection of who asks is counted from now on; of each there may be so many.
enum class Standing : uint8_t {
  kStranger,  ///< has shown nothing yet; one that is known stays it
  kKnown,     ///< has shown a valid token, or is local
  kFollower,  ///< known, and follows what people look at: as long as they like
};

struct HttpResponse {
  int status = 200;
  std::string type = "application/json";
  std::string body;
  std::string allow;                    ///< methods, with status 405
  std::shared_ptr<EventSource> events;  ///< instead of a body
  Nanos pause{0};                       ///< before it is sent
  int retry_after = 0;                  ///< seconds: the same may do then; 0: it is not said
  Standing standing = Standing::kStranger;
};

using HttpReply = std::function<void(HttpResponse)>;
/// Calls `reply` once, now or later, on the thread it was called on.
using HttpHandler = std::function<void(HttpRequest request, HttpReply reply)>;
/// Asked before a body is read: the answer, where it does not depend on the body.
using HttpGate = std::function<std::optional<HttpResponse>(const HttpRequest& head)>;

HttpResponse json_response(const nlohmann::json& document, int status = 200);
/// {"error": {"code": "invalid_spec", "message": "job.yaml:3:5: …"}}
HttpResponse error_response(int status, const Error& error);
/// Status 503 and kNoDevice, which those who ask take for something that passes.
HttpResponse busy_response(const std::string& why);
/// "id: 7\nevent: job\ndata: {…}\n\n"; `data` has no line break.
std::string event_text_of(std::string_view id, std::string_view kind, std::string_view data);
std::string json_event_of(std::string_view id, std::string_view kind, const nlohmann::json& data);

}  // namespace motley
