#pragma once
// HTTP/1.1 over a Unix socket that only its owner may use, and over TLS for those whom a token
// admits; never without TLS on a network. Beast inside; sizes, times and the number of connections
// are limited (HttpLimits).

#include <chrono>
#include <memory>
#include <string>

#include "core/result.h"
#include "scheduler/service/certificates.h"
#include "scheduler/service/endpoint.h"
#include "scheduler/service/http_message.h"

namespace boost::asio {
class io_context;
}

namespace motley {

struct HttpLimits {
  uint32_t header_bytes = 8 << 10;
  uint64_t body_bytes = 1 << 20;
  std::chrono::milliseconds handshake_time{5'000};
  std::chrono::milliseconds header_time{5'000};
  std::chrono::milliseconds body_time{10'000};
  std::chrono::milliseconds idle_time{30'000};  ///< between requests, and for a write to go on
  // Connections, of all addresses together; the Unix socket has its own beside them.
  int strangers = 512;         ///< that have shown no valid token yet
  int strangers_of_peer = 64;  ///< of each address (IPv6: each /64)
  int known = 4096;            ///< that have: nodes, people; of the socket too, where all are known
  int followers = 512;         ///< of people, that follow logs and events
  int followers_of_peer = 256;  ///< of each address, and of the socket
};
/// As many of each kind as a process can have that may open so many descriptors; all that
/// HttpLimits has by itself with kEnoughDescriptors.
HttpLimits limits_within(int descriptors);
constexpr int kEnoughDescriptors = 17'000;

/// Where TLS is spoken.
struct TlsDoor {
  Endpoint at;  ///< an address of this machine, or a name of it; port 0: a free one
  CertificateSource certificate;
};

class HttpServer {
 public:
  virtual ~HttpServer() = default;
  /// Binds the socket, with mode 0600; one that nobody listens on any more is replaced. kUsage
  /// where the path is too long for a socket, or another file; kNotPermitted where somebody
  /// listens.
  virtual Result<Unit> listen(const std::string& path) = 0;
  /// Beside the socket; the port that it is. kNoDevice: no such address here; kNotPermitted: the
  /// port is taken, or not ours to take.
  virtual Result<uint16_t> listen(TlsDoor door) = 0;
  /// No further connections; those that wait for a request, or follow, are closed.
  virtual void stop() = 0;
  /// Something was written that those who follow may wait for.
  virtual void wake_followers() = 0;
  virtual int64_t requests() const = 0;  ///< answered since the start
};

/// Runs on the thread of `context`, which outlives it. Without a gate every body is read.
std::unique_ptr<HttpServer> make_http_server(boost::asio::io_context& context, HttpHandler handler,
                                             HttpLimits limits = {}, HttpGate gate = {});

}  // namespace motley
