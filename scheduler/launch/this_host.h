#pragma once
// Whether a host of a fleet is the machine we run on.

#include <string>

namespace motley {

/// As the system calls it.
std::string own_host_name();

/// True for "localhost", our host name with or without its domain, and addresses of our interfaces.
bool is_this_host(const std::string& host);

/// Our address as `host` sees it, for a listener it shall reach; an address of some interface when
/// its name cannot be resolved here.
std::string own_address_towards(const std::string& host);

}  // namespace motley
