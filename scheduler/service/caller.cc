#include "scheduler/service/caller.h"

namespace motley {

const char* name_of(Role role) {
  switch (role) {
    case Role::kNobody:
      return "nobody";
    case Role::kViewer:
      return "viewer";
    case Role::kUser:
      return "user";
    case Role::kAdmin:
      return "admin";
    case Role::kNode:
      return "node";
  }
  return "?";
}

std::optional<Role> role_of_name(std::string_view name) {
  for (const Role role : {Role::kViewer, Role::kUser, Role::kAdmin, Role::kNode})
    if (name == name_of(role)) return role;
  return std::nullopt;
}

bool admits(Role least, Role role) {
  if (least == Role::kNobody || role == Role::kAdmin) return true;
  if (least == Role::kNode || role == Role::kNode) return least == role;
  return role >= least;
}

}  // namespace motley
