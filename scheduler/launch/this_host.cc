#include "scheduler/launch/this_host.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "scheduler/launch/child_process.h"

namespace motley {
namespace {

std::string text_of(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address->sa_family == AF_INET)
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text,
                sizeof text);
  else if (address->sa_family == AF_INET6)
    ::inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text,
                sizeof text);
  return text;
}

struct InterfaceAddress {
  std::string address;
  bool loopback = false;
};

std::vector<InterfaceAddress> interface_addresses() {
  std::vector<InterfaceAddress> addresses;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return addresses;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, &::freeifaddrs);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    const std::string address = text_of(entry->ifa_addr);
    if (!address.empty()) addresses.push_back({address, (entry->ifa_flags & IFF_LOOPBACK) != 0});
  }
  return addresses;
}

std::string without_domain(const std::string& name) { return name.substr(0, name.find('.')); }

/// The source address the system would choose for a packet to `host`.
std::string routed_source(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  hints.ai_family = AF_INET;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), "9", &hints, &found) != 0) return "";
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, &::freeaddrinfo);
  const Fd probe(::socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  // Connecting a datagram socket sends nothing; it only chooses the route.
  if (!probe.valid() || ::connect(probe.get(), found->ai_addr, found->ai_addrlen) != 0 ||
      ::getsockname(probe.get(), reinterpret_cast<sockaddr*>(&own), &length) != 0)
    return "";
  return text_of(reinterpret_cast<const sockaddr*>(&own));
}

}  // namespace

std::string own_host_name() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return name;
}

bool is_this_host(const std::string& host) {
  const std::string own = own_host_name();
  if (host == "localhost" || host == own) return true;
  const std::vector<InterfaceAddress> addresses = interface_addresses();
  if (std::any_of(addresses.begin(), addresses.end(),
                  [&](const InterfaceAddress& entry) { return entry.address == host; }))
    return true;
  // Short against long form of one name; an address is not a name with a domain.
  const bool is_address = host.find_first_not_of("0123456789.") == std::string::npos ||
                          host.find(':') != std::string::npos;
  const bool one_is_short =
      host.find('.') == std::string::npos || own.find('.') == std::string::npos;
  return !is_address && one_is_short && without_domain(host) == without_domain(own);
}

std::string own_address_towards(const std::string& host) {
  const std::string routed = routed_source(host);
  if (!routed.empty() && routed != "127.0.0.1") return routed;
  for (const InterfaceAddress& entry : interface_addresses())
    if (!entry.loopback && entry.address.find(':') == std::string::npos) return entry.address;
  return "127.0.0.1";
}

}  // namespace motley
