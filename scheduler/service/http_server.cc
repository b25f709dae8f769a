#include "scheduler/service/http_server.h"

#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ssl/context.hpp>
#include <ctime>
#include <set>
#include <utility>  // before Asio of Boost 1.74

#include "core/log.h"
#include "scheduler/service/http_session.h"

namespace motley {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using asio::local::stream_protocol;
using boost::system::error_code;

constexpr size_t kLongestSocketPath = 107;
constexpr int kOwnDescriptors = 512;  // of attempts, the database, files that are read
constexpr auto kGatherNews = std::chrono::milliseconds(5);
constexpr auto kAcceptPause = std::chrono::milliseconds(100);

/// Its user, or root, who may do as that user anyway.
bool is_ours(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
         (peer.uid == ::geteuid() || peer.uid == 0);
}

/// Whoever has one address of an IPv6 network has all of its /64.
std::string peer_name(const tcp::endpoint& endpoint) {
  const asio::ip::address address = endpoint.address();
  if (address.is_v4()) return address.to_string();
  if (address.to_v6().is_v4_mapped())
    return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6()).to_string();
  auto bytes = address.to_v6().to_bytes();
  std::fill(bytes.begin() + 8, bytes.end(), 0);
  return asio::ip::make_address_v6(bytes).to_string() + "/64";
}

Result<std::shared_ptr<asio::ssl::context>> tls_context(const Certificate& certificate) {
  auto context = std::make_shared<asio::ssl::context>(asio::ssl::context::tls_server);
  error_code error;
  context->set_options(asio::ssl::context::default_workarounds | SSL_OP_NO_RENEGOTIATION |
                           SSL_OP_CIPHER_SERVER_PREFERENCE,
                       error);
  if (!error) context->use_certificate_chain(asio::buffer(certificate.chain), error);
  if (!error)
    context->use_private_key(asio::buffer(certificate.key), asio::ssl::context::pem, error);
  if (error || SSL_CTX_set_min_proto_version(context->native_handle(), TLS1_2_VERSION) != 1)
    return fail(ErrorCode::kInternal, "TLS cannot be set up: " + error.message());
  return context;
}

/// The TCP listener: what it shows, and when it is to ask for another certificate.
struct Door {
  CertificateSource source;
  std::shared_ptr<asio::ssl::context> tls;
  int64_t renew_at = 0;
};

class Server final : public HttpServer {
 public:
  Server(asio::io_context& context, HttpHandler handler, HttpLimits limits, HttpGate gate)
      : context_(context),
        unix_acceptor_(context),
        tls_acceptor_(context),
        unix_pause_(context),
        tls_pause_(context),
        news_(context),
        state_(std::make_shared<ServerState>(std::move(handler), std::move(gate), limits)) {}

  Result<Unit> listen(const std::string& path) override {
    if (path.size() > kLongestSocketPath)
      return fail(ErrorCode::kUsage, "the path of the socket is too long (" +
                                         std::to_string(kLongestSocketPath) +
                                         " bytes at most): " + path + "; --socket PATH moves it");
    if (somebody_listens(path))
      return fail(ErrorCode::kNotPermitted, "another coordinator listens on " + path);
    MOTLEY_TRY_VOID(remove_dead_socket(path));
    error_code error;
    unix_acceptor_.open(stream_protocol(), error);
    const mode_t before = ::umask(0177);
    if (!error) unix_acceptor_.bind(stream_protocol::endpoint(path), error);
    ::umask(before);
    if (!error) unix_acceptor_.listen(asio::socket_base::max_listen_connections, error);
    if (error) return fail(ErrorCode::kIo, "cannot listen on " + path + ": " + error.message());
    accept_unix();
    return Unit{};
  }

  Result<uint16_t> listen(TlsDoor door) override {
    door_.source = std::move(door.certificate);
    MOTLEY_TRY_VOID(open_door());
    const std::string where = door.at.to_string();
    error_code error;
    tcp::resolver resolver(context_);
    const auto found =
        resolver.resolve(door.at.host, std::to_string(door.at.port), tcp::resolver::passive, error);
    if (error || found.empty())
      return fail(ErrorCode::kNoDevice,
                  "cannot listen on " + where + ": no such address: " + error.message());
    const tcp::endpoint endpoint = found.begin()->endpoint();
    tls_acceptor_.open(endpoint.protocol(), error);
    if (!error) tls_acceptor_.set_option(asio::socket_base::reuse_address(true), error);
    if (!error) tls_acceptor_.bind(endpoint, error);
    if (!error) tls_acceptor_.listen(asio::socket_base::max_listen_connections, error);
    if (error) return fail(bind_error(where, error));
    accept_tls();
    return tls_acceptor_.local_endpoint(error).port();
  }

  void stop() override {
    state_->stopping = true;
    error_code ignored;
    unix_acceptor_.close(ignored);
    tls_acceptor_.close(ignored);
    unix_pause_.cancel();
    tls_pause_.cancel();
    for (const auto& weak : sessions_)
      if (const auto session = weak.lock()) session->stop();
  }

  /// What is written within a moment is one piece of news.
  void wake_followers() override {
    if (std::exchange(has_news_, true)) return;
    news_.expires_after(kGatherNews);
    news_.async_wait([this](error_code) {
      has_news_ = false;
      for (const auto& weak : sessions_)
        if (const auto session = weak.lock()) session->wake();
    });
  }

  int64_t requests() const override { return state_->requests; }

 private:
  static Error bind_error(const std::string& where, const error_code& error) {
    const bool ours = error != asio::error::address_in_use && error != asio::error::access_denied;
    return {ours ? ErrorCode::kNoDevice : ErrorCode::kNotPermitted,
            "cannot listen on " + where + ": " + error.message(),
            {}};
  }

  /// Whoever names another file by mistake keeps it.
  static Result<Unit> remove_dead_socket(const std::string& path) {
    struct stat status {};
    if (::lstat(path.c_str(), &status) != 0) return Unit{};
    if (!S_ISSOCK(status.st_mode))
      return fail(ErrorCode::kUsage, path + " is there and is no socket; --socket PATH moves it");
    ::unlink(path.c_str());
    return Unit{};
  }

  bool somebody_listens(const std::string& path) {
    stream_protocol::socket probe(context_);
    error_code error;
    probe.connect(stream_protocol::endpoint(path), error);
    return !error;
  }

  Result<Unit> open_door() {
    MOTLEY_TRY(Certificate certificate, door_.source());
    MOTLEY_TRY(door_.tls, tls_context(certificate));
    door_.renew_at = certificate.renew_at;
    state_->names = std::move(certificate.names);
    return Unit{};
  }

  /// One that nears its end is replaced while the service goes on.
  void renew_certificate() {
    if (std::time(nullptr) < door_.renew_at) return;
    if (const auto renewed = open_door(); !renewed) {
      constexpr int64_t kTryAgain = 3600;
      door_.renew_at = std::time(nullptr) + kTryAgain;
      log_warning("the certificate cannot be renewed: " + renewed.error().to_string());
    }
  }

  void accept_unix() {
    unix_acceptor_.async_accept([this](error_code error, stream_protocol::socket socket) {
      if (error == asio::error::operation_aborted) return;
      if (error) return accept_later(unix_pause_, &Server::accept_unix);
      begin_unix(std::move(socket));
      accept_unix();
    });
  }

  void begin_unix(stream_protocol::socket socket) {
    const bool crowded = !state_->known.has_room("");
    const bool ours = is_ours(socket.native_handle());
    const auto session =
        std::make_shared<HttpSession<UnixStream>>(state_, state_->known, "", std::move(socket));
    remember(session);
    if (crowded)
      session->refuse(busy_response("too many connections"));
    else if (!ours)
      session->refuse(
          error_response(403, {ErrorCode::kNotPermitted, "the socket is another user's", {}}));
    else
      session->start();
  }

  void accept_tls() {
    tls_acceptor_.async_accept([this](error_code error, tcp::socket socket) {
      if (error == asio::error::operation_aborted) return;
      if (error) return accept_later(tls_pause_, &Server::accept_tls);
      begin_tls(std::move(socket));
      accept_tls();
    });
  }

  /// One too many is not worth a handshake: whoever asks takes the silence for "try again".
  void begin_tls(tcp::socket socket) {
    error_code error;
    const tcp::endpoint endpoint = socket.remote_endpoint(error);
    if (error) return;
    const std::string peer = peer_name(endpoint);
    if (!state_->strangers.has_room(peer)) return;
    socket.set_option(tcp::no_delay(true), error);
    socket.set_option(asio::socket_base::keep_alive(true), error);
    renew_certificate();
    const auto session = std::make_shared<HttpSession<TlsStream>>(state_, state_->strangers, peer,
                                                                  std::move(socket), *door_.tls);
    remember(session);
    session->start();
  }

  void remember(const std::shared_ptr<Session>& session) {
    std::erase_if(sessions_, [](const auto& weak) { return weak.expired(); });
    sessions_.insert(session);
  }

  /// Out of descriptors, for one: that passes, and asking at once would only burn time.
  void accept_later(asio::steady_timer& pause, void (Server::*accept)()) {
    pause.expires_after(kAcceptPause);
    pause.async_wait([this, accept](error_code error) {
      if (!error) (this->*accept)();
    });
  }

  asio::io_context& context_;
  stream_protocol::acceptor unix_acceptor_;
  tcp::acceptor tls_acceptor_;
  asio::steady_timer unix_pause_, tls_pause_, news_;
  bool has_news_ = false;
  Door door_;
  std::shared_ptr<ServerState> state_;
  std::set<std::weak_ptr<Session>, std::owner_less<std::weak_ptr<Session>>> sessions_;
};

}  // namespace

/// Of what the service itself leaves over a quarter each for those who are known on the network and
/// on the socket, the rest for strangers and followers.
HttpLimits limits_within(int descriptors) {
  HttpLimits limits;
  const int quarter = std::max(4, (descriptors - kOwnDescriptors) / 4);
  limits.known = std::min(limits.known, quarter);
  limits.strangers = std::min(limits.strangers, quarter);
  limits.strangers_of_peer = std::min(limits.strangers_of_peer, quarter);
  limits.followers = std::min(limits.followers, quarter / 2);
  limits.followers_of_peer = std::min(limits.followers_of_peer, quarter / 2);
  return limits;
}

std::unique_ptr<HttpServer> make_http_server(asio::io_context& context, HttpHandler handler,
                                             HttpLimits limits, HttpGate gate) {
  return std::make_unique<Server>(context, std::move(handler), limits, std::move(gate));
}

}  // namespace motley
