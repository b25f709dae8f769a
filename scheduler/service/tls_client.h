#pragma once
// The client's end of TLS: a connection to a service that has proved to be the one meant.

#include <boost/asio/io_context.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/ssl/ssl_stream.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/result.h"
#include "scheduler/service/endpoint.h"

namespace motley {

class TlsConnection {
 public:
  /// Whom to believe: the certificate (PEM) of an authority, or, empty, nobody has to prove
  /// anything. kNoDevice: nobody there, or no TLS; kNotPermitted: it is somebody else, or its
  /// certificate is for other names or has expired. Where it closes the connection at once, as with
  /// one too many from here, it is asked again for some seconds.
  static Result<std::unique_ptr<TlsConnection>> open(const Endpoint& at,
                                                     const std::string& authority);

  using Stream = boost::beast::ssl_stream<boost::beast::tcp_stream>;
  Stream& stream() { return stream_; }
  /// From now on it breaks off once what was sent has not arrived for so long.
  void give_up_within(std::chrono::milliseconds silence);
  /// What the other side has shown, in PEM: its own certificate, then those above it.
  std::vector<std::string> certificates();

 private:
  explicit TlsConnection(boost::asio::ssl::context tls)
      : tls_(std::move(tls)), stream_(context_, tls_) {}
  static Result<std::unique_ptr<TlsConnection>> open_once(const Endpoint& at,
                                                          const std::string& authority,
                                                          bool* turned_away);
  Result<Unit> connect(const Endpoint& at);
  Result<Unit> shake_hands(const Endpoint& at, bool verified, bool* turned_away);

  boost::asio::io_context context_;
  boost::asio::ssl::context tls_;
  Stream stream_;
};

}  // namespace motley
