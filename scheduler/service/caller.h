#pragma once
// Who asks something of the service, and what that may be.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace motley {

/// What a token allows; each of the first four includes the one before it.
enum class Role : uint8_t {
  kNobody,  ///< no token
  kViewer,  ///< reads everything
  kUser,    ///< submits, and changes jobs of its own
  kAdmin,   ///< everything
  kNode,    ///< what a machine that lends its devices says and asks
};
const char* name_of(Role role);
/// Of the roles that a token may have.
std::optional<Role> role_of_name(std::string_view name);
/// Whether a route for `least` is open to `role`.
bool admits(Role least, Role role);

struct Caller {
  std::string user;
  Role role = Role::kNobody;
  int64_t token = 0;      ///< its number; 0: asked over the Unix socket
  int64_t expires = 0;    ///< nanoseconds since 1970; 0: never
  std::string node = {};  ///< that a token of the role node speaks for; empty: for none yet
};

}  // namespace motley
