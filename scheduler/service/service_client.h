#pragma once
// What commands ask of a coordinator. Blocking; one connection a request; HTTP inside.

#include <functional>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "core/result.h"

namespace motley {

class ServiceClient {
 public:
  /// `socket`: empty: where coordinators listen unless told otherwise (default_socket()).
  explicit ServiceClient(const std::string& socket);

  /// kNoDevice with a hint where nobody answers; what the service says where it refuses.
  Result<nlohmann::json> get(const std::string& target) const;
  Result<nlohmann::json> post(const std::string& target, const std::string& body = {},
                              const std::string& idempotency_key = {}) const;

  /// Of server-sent events: their data, one after the other, until the service ends it or `take`
  /// says false. Goes on where it was when another coordinator takes over within ten seconds.
  using TakeEvent = std::function<bool(const nlohmann::json& data)>;
  Result<Unit> follow(const std::string& target, const TakeEvent& take) const;

 private:
  using TakeBytes = std::function<bool(std::string_view bytes)>;
  struct Call {
    std::string method;
    std::string target;
    std::string body;
    std::map<std::string, std::string> headers;
  };
  struct Followed {
    std::string last_id;
    bool heard = false;  ///< anything of the coordinator, on this connection
    bool over = false;
  };
  Result<Unit> follow_once(const std::string& target, const TakeEvent& take,
                           Followed* followed) const;
  /// The status; the body goes to `take` as it comes.
  Result<int> call(const Call& call, const TakeBytes& take) const;
  Result<nlohmann::json> answer(const Call& call) const;

  std::string socket_;
};

}  // namespace motley
