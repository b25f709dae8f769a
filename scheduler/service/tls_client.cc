#include "scheduler/service/tls_client.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <array>
#include <boost/asio/connect.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <chrono>
#include <utility>

#include "scheduler/service/ask_again.h"

namespace motley {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr auto kConnectTime = std::chrono::seconds(10);

/// Who is gone without a word is noticed within half a minute, also by those that only listen.
void watch(tcp::socket& socket) {
  error_code ignored;
  socket.set_option(asio::socket_base::keep_alive(true), ignored);
  socket.set_option(tcp::no_delay(true), ignored);
  const std::array<std::pair<int, int>, 4> kOptions = {
      {{TCP_KEEPIDLE, 10}, {TCP_KEEPINTVL, 5}, {TCP_KEEPCNT, 3}, {TCP_USER_TIMEOUT, 25'000}}};
  for (const auto& [name, value] : kOptions)
    (void)::setsockopt(socket.native_handle(), IPPROTO_TCP, name, &value, sizeof value);
}

/// Why the certificate that was shown is not believed.
Error not_believed(const Endpoint& at, long why) {
  const std::string who = "the service at " + at.to_string();
  switch (why) {
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
      return {ErrorCode::kNotPermitted,
              who + " is not known by that name: `motley serve --name " + at.host +
                  "` adds it to its certificate",
              {}};
    case X509_V_ERR_CERT_HAS_EXPIRED:
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return {ErrorCode::kNotPermitted,
              "the certificate of " + who + " is not valid now (" +
                  X509_verify_cert_error_string(why) + "): is one of the clocks wrong?",
              {}};
    default:
      return {ErrorCode::kNotPermitted,
              who +
                  " is not the one that was logged in to: its certificate is another "
                  "authority's (" +
                  X509_verify_cert_error_string(why) + "); motley login again if that is right",
              {}};
  }
}

bool set_expected_name(SSL* ssl, const std::string& host) {
  error_code no_address;
  asio::ip::make_address(host, no_address);
  X509_VERIFY_PARAM* expected = SSL_get0_param(ssl);
  if (!no_address) return X509_VERIFY_PARAM_set1_ip_asc(expected, host.c_str()) == 1;
  return SSL_set_tlsext_host_name(ssl, host.c_str()) == 1 &&
         X509_VERIFY_PARAM_set1_host(expected, host.c_str(), host.size()) == 1;
}

}  // namespace

Result<std::unique_ptr<TlsConnection>> TlsConnection::open(const Endpoint& at,
                                                           const std::string& authority) {
  AskAgain again;
  while (true) {
    bool turned_away = false;
    auto connection = open_once(at, authority, &turned_away);
    if (!turned_away || !again.after_a_while()) return connection;
  }
}

Result<std::unique_ptr<TlsConnection>> TlsConnection::open_once(const Endpoint& at,
                                                                const std::string& authority,
                                                                bool* turned_away) {
  asio::ssl::context tls(asio::ssl::context::tls_client);
  error_code error;
  const bool verified = !authority.empty();
  if (verified) tls.add_certificate_authority(asio::buffer(authority), error);
  if (!error)
    tls.set_verify_mode(verified ? asio::ssl::verify_peer : asio::ssl::verify_none, error);
  if (error || SSL_CTX_set_min_proto_version(tls.native_handle(), TLS1_2_VERSION) != 1)
    return fail(ErrorCode::kCorrupt, "the certificate that was kept of " + at.to_string() +
                                         " cannot be used: motley login again");
  std::unique_ptr<TlsConnection> connection(new TlsConnection(std::move(tls)));
  MOTLEY_TRY_VOID(connection->connect(at));
  MOTLEY_TRY_VOID(connection->shake_hands(at, verified, turned_away));
  boost::beast::get_lowest_layer(connection->stream_).expires_never();
  return connection;
}

void TlsConnection::give_up_within(std::chrono::milliseconds silence) {
  const auto time = static_cast<int>(silence.count());
  (void)::setsockopt(boost::beast::get_lowest_layer(stream_).socket().native_handle(), IPPROTO_TCP,
                     TCP_USER_TIMEOUT, &time, sizeof time);
}

Result<Unit> TlsConnection::connect(const Endpoint& at) {
  error_code error;
  tcp::resolver resolver(context_);
  const auto found = resolver.resolve(at.host, std::to_string(at.port), error);
  if (error)
    return fail(ErrorCode::kNoDevice, "there is no host " + at.host + ": " + error.message());
  auto& tcp_stream = boost::beast::get_lowest_layer(stream_);
  tcp_stream.expires_after(kConnectTime);
  tcp_stream.async_connect(found, [&](error_code failed, const tcp::endpoint&) { error = failed; });
  context_.run();
  context_.restart();
  if (error)
    return fail(ErrorCode::kNoDevice, "no coordinator answers on " + at.to_string() + " (" +
                                          error.message() +
                                          "): it listens there with `motley serve --listen`");
  watch(tcp_stream.socket());
  return Unit{};
}

Result<Unit> TlsConnection::shake_hands(const Endpoint& at, bool verified, bool* turned_away) {
  SSL* ssl = stream_.native_handle();
  if (verified && !set_expected_name(ssl, at.host))
    return fail(ErrorCode::kInternal, "TLS cannot be set up for " + at.to_string());
  error_code error;
  boost::beast::get_lowest_layer(stream_).expires_after(kConnectTime);
  stream_.async_handshake(asio::ssl::stream_base::client,
                          [&](error_code failed) { error = failed; });
  context_.run();
  context_.restart();
  if (!error) return Unit{};
  const long why = SSL_get_verify_result(ssl);
  if (verified && why != X509_V_OK) return fail(not_believed(at, why));
  *turned_away = error == asio::ssl::error::stream_truncated || error == asio::error::eof ||
                 error == asio::error::connection_reset || error == asio::error::broken_pipe;
  return fail(ErrorCode::kNoDevice, "what listens on " + at.to_string() +
                                        " does not speak TLS as a coordinator would, or has too "
                                        "many connections from here (" +
                                        error.message() + ")");
}

std::vector<std::string> TlsConnection::certificates() {
  std::vector<std::string> texts;
  STACK_OF(X509)* chain = SSL_get_peer_cert_chain(stream_.native_handle());
  for (int i = 0; i < sk_X509_num(chain); ++i) {
    const std::unique_ptr<BIO, decltype(&BIO_free_all)> bio(BIO_new(BIO_s_mem()), &BIO_free_all);
    char* bytes = nullptr;
    if (!bio || PEM_write_bio_X509(bio.get(), sk_X509_value(chain, i)) != 1) continue;
    const long size = BIO_get_mem_data(bio.get(), &bytes);
    texts.emplace_back(bytes, static_cast<size_t>(size));
  }
  return texts;
}

}  // namespace motley
