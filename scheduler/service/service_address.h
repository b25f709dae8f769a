#pragma once
// Where a client finds its coordinator, and what it was told when it logged in.

#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "scheduler/service/endpoint.h"

namespace motley {

/// A service across the network, and by what each side knows the other.
struct Login {
  Endpoint at;
  std::string authority;  ///< certificate (PEM) of whom the service's one must be signed by
  std::string token;
};

/// One of the two.
struct ServiceAddress {
  std::string socket;          ///< path
  std::optional<Login> login;  ///< over TLS

  std::string to_string() const;
};

/// What the command line said; empty: nothing.
struct ServiceChoice {
  std::string socket;
  std::string server;  ///< "HOST:PORT", which one has logged in to
};

/// The first that is there: the choice (kUsage for both), $MOTLEY_SERVER, $MOTLEY_SOCKET, the
/// newest login, this machine's own coordinator.
Result<ServiceAddress> find_service(const ServiceChoice& choice);

/// The file of logins, the newest last: `${XDG_CONFIG_HOME}/motley/logins.json`, mode 0600.
/// Missing: none.
std::string login_file();
Result<std::vector<Login>> read_logins();
/// In the place of an older one to the same address.
Result<Unit> keep_login(const Login& login);
/// kNotFound where there is none.
Result<Unit> forget_login(const Endpoint& at);

}  // namespace motley
