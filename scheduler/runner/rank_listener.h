#pragma once
// Where ranks connect: a Unix socket when all are on this host, else TCP. Heavy (Asio): for the .cc
// files of scheduler/runner only.

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <functional>
#include <string>
#include <utility>  // before Asio of Boost 1.74

#include "core/result.h"
#include "scheduler/runner/rank_session.h"

namespace motley {

class RankListener {
 public:
  explicit RankListener(boost::asio::io_context& context) : local_(context), tcp_(context) {}

  /// Both return the address as ranks are told it (Attempt::control).
  Result<std::string> listen_here(const std::string& path);
  Result<std::string> listen_for(const std::string& remote_host);

  /// Hands every connection on, as long as the context runs.
  void start(const std::function<void(RankSession::Socket)>& take);

 private:
  boost::asio::local::stream_protocol::acceptor local_;
  boost::asio::ip::tcp::acceptor tcp_;
};

}  // namespace motley
