#pragma once
// What commands ask of a coordinator. Blocking; one connection a request, but for a ServiceLine;
// HTTP inside.

#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "core/ids.h"
#include "core/result.h"
#include "scheduler/service/service_address.h"

namespace motley {

class ServiceClient {
 public:
  explicit ServiceClient(ServiceAddress address) : address_(std::move(address)) {}

  /// kNoDevice with a hint where nobody answers; kNotPermitted where somebody else does, or our
  /// token is refused; else what the service says where it refuses.
  /// kPeerLost where the connection broke before the answer came.
  Result<nlohmann::json> get(const std::string& target) const;
  Result<nlohmann::json> remove(const std::string& target) const;
  Result<nlohmann::json> patch(const std::string& target, const std::string& body) const;
  Result<nlohmann::json> post(const std::string& target, const std::string& body = {},
                              const std::string& idempotency_key = {}) const;

  /// Of server-sent events: their data, one after the other, until the service ends it or `take`
  /// says false. Goes on where it was when another coordinator takes over in time.
  using TakeEvent = std::function<bool(const nlohmann::json& data)>;
  Result<Unit> follow(const std::string& target, const TakeEvent& take,
                      Nanos next_coordinator = Nanos(10'000'000'000)) const;

 private:
  friend class ServiceLine;
  struct Connection;
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
  struct Answer {
    int status = 0;
    bool later = false;  ///< there are too many just now: nothing was done
    std::string refusal;
    bool is_refusal() const { return status >= 300; }
  };
  Result<Unit> follow_once(const std::string& target, const TakeEvent& take,
                           Followed* followed) const;
  /// The body goes to `take` as it comes. Whoever is turned away asks again for some seconds.
  Result<Unit> call(const Call& call, const TakeBytes& take) const;
  Result<std::unique_ptr<Connection>> connect() const;
  /// On one that is `kept` more can be asked afterwards, if it is still open then.
  Result<Answer> ask(Connection& connection, const Call& call, const TakeBytes& take) const;
  template <class Stream>
  Result<Answer> exchange(Stream& stream, const Call& call, const TakeBytes& take,
                          bool* kept) const;
  Error no_answer(const std::string& why) const;
  /// Whether what was asked was done nobody knows.
  Error broken_off(const std::string& why) const;
  Result<nlohmann::json> answer(const Call& call) const;

  ServiceAddress address_;
};

/// Of one who asks again and again, one thread: the same connection as long as it is good, so that
/// a coordinator that is crowded knows who asks. A request over the network that does not arrive
/// there fails within three seconds; for an answer to one that has it waits as the client does.
class ServiceLine {
 public:
  /// `client` outlives it.
  explicit ServiceLine(const ServiceClient& client);
  ~ServiceLine();
  /// As the client's, but whoever is turned away is told so at once.
  Result<nlohmann::json> post(const std::string& target, const std::string& body);

 private:
  const ServiceClient& client_;
  std::unique_ptr<ServiceClient::Connection> connection_;
};

/// The certificate (PEM) of the authority behind the service at `at`, whose fingerprint it must
/// have; nothing is told to whom else answers. kNotPermitted naming both where it has another.
Result<std::string> fetch_authority(const Endpoint& at, const std::string& fingerprint);

}  // namespace motley
