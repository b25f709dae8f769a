#include "scheduler/runner/rank_listener.h"

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/basic_stream_socket.hpp>

#include "scheduler/launch/this_host.h"

namespace motley {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using asio::local::stream_protocol;
using boost::system::error_code;

template <class Protocol>
error_code listen(typename Protocol::acceptor& acceptor,
                  const typename Protocol::endpoint& endpoint) {
  error_code error;
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  return error;
}

template <class Protocol>
void accept_forever(typename Protocol::acceptor& acceptor,
                    const std::function<void(RankSession::Socket)>& take) {
  acceptor.async_accept([&acceptor, take](error_code error, typename Protocol::socket socket) {
    if (error == asio::error::operation_aborted) return;
    if (!error) take(RankSession::Socket(std::move(socket)));
    accept_forever<Protocol>(acceptor, take);
  });
}

}  // namespace

Result<std::string> RankListener::listen_here(const std::string& path) {
  if (const error_code error = listen<stream_protocol>(local_, path))
    return fail(ErrorCode::kIo, "cannot listen on " + path + ": " + error.message());
  return "unix:" + path;
}

Result<std::string> RankListener::listen_for(const std::string& remote_host) {
  if (const error_code error = listen<tcp>(tcp_, tcp::endpoint(tcp::v4(), 0)))
    return fail(ErrorCode::kIo, "cannot listen on TCP: " + error.message());
  return "tcp:" + own_address_towards(remote_host) + ":" +
         std::to_string(tcp_.local_endpoint().port());
}

void RankListener::start(const std::function<void(RankSession::Socket)>& take) {
  if (local_.is_open()) accept_forever<stream_protocol>(local_, take);
  if (tcp_.is_open()) accept_forever<tcp>(tcp_, take);
}

}  // namespace motley
