#include "scheduler/service/service_client.h"

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <utility>  // before Asio of Boost 1.74

#include "core/clock.h"
#include "core/json_fields.h"
#include "scheduler/service/ask_again.h"
#include "scheduler/service/certificates.h"
#include "scheduler/service/tls_client.h"

namespace motley {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::local::stream_protocol;
using boost::system::error_code;
using nlohmann::json;

constexpr auto kTryAgain = std::chrono::milliseconds(200);
/// Of a line: a node that is silent for five seconds is lost.
constexpr auto kSilence = std::chrono::milliseconds(3000);

/// What the service says is wrong.
Error refusal_in(const std::string& body, int status) {
  const json document = json::parse(body, nullptr, false);
  if (document.is_object() && document.contains("error")) {
    const json& error = document["error"];
    if (error.is_object() && error.value("message", "") != "")
      return {error_code_of_name(error.value("code", "")), error.value("message", ""), {}};
  }
  return {
      ErrorCode::kInternal, "the coordinator answered with status " + std::to_string(status), {}};
}

struct StreamEvent {
  std::string id, kind, data;
};

std::string field_of(const std::string& event, const std::string& name) {
  const std::string head = "\n" + name + ": ";
  const size_t found = event.find(head);
  if (found == std::string::npos) return "";
  const size_t begin = found + head.size();
  return event.substr(begin, event.find('\n', begin) - begin);
}

/// Takes a whole event out of what has come.
std::optional<StreamEvent> next_event(std::string* text) {
  const size_t end = text->find("\n\n");
  if (end == std::string::npos) return std::nullopt;
  const std::string event = "\n" + text->substr(0, end + 1);
  text->erase(0, end + 2);
  return StreamEvent{field_of(event, "id"), field_of(event, "event"), field_of(event, "data")};
}

}  // namespace

/// Over the network, or else by the socket.
struct ServiceClient::Connection {
  std::unique_ptr<TlsConnection> tls;
  asio::io_context context;
  stream_protocol::socket socket{context};
  bool kept = false;  ///< more is to be asked, and can be
};

Error ServiceClient::broken_off(const std::string& why) const {
  return {
      ErrorCode::kPeerLost,
      "the coordinator at " + address_.to_string() + " broke off without an answer (" + why + ")",
      {}};
}

Error ServiceClient::no_answer(const std::string& why) const {
  return {ErrorCode::kNoDevice,
          "no coordinator answers on " + address_.socket + " (" + why +
              "): start one with `motley serve`, or name its socket with --socket PATH",
          {}};
}

template <class Stream>
Result<ServiceClient::Answer> ServiceClient::exchange(Stream& stream, const Call& call,
                                                      const TakeBytes& take, bool* kept) const {
  http::request<http::string_body> request(http::string_to_verb(call.method), call.target, 11);
  request.set(http::field::host, address_.login ? address_.login->at.to_string() : "motley");
  if (!*kept) request.set(http::field::connection, "close");
  if (address_.login) request.set(http::field::authorization, "Bearer " + address_.login->token);
  for (const auto& [name, value] : call.headers) request.set(name, value);
  request.body() = call.body;
  request.prepare_payload();
  error_code error;
  http::write(stream, request, error);
  // One that refuses before it has read everything has still answered.
  boost::beast::flat_buffer buffer;
  http::response_parser<http::buffer_body> parser;
  parser.body_limit(UINT64_MAX);
  http::read_header(stream, buffer, parser, error);
  if (error) return fail(broken_off(error.message()));
  Answer answer{static_cast<int>(parser.get().result_int()),
                parser.get().count(http::field::retry_after) > 0, ""};
  const auto keep = [&](std::string_view bytes) {
    answer.refusal += bytes;
    return true;
  };
  std::array<char, 16384> piece;
  while (!parser.is_done()) {
    parser.get().body().data = piece.data();
    parser.get().body().size = piece.size();
    // Some: read() would wait until the piece is full, and who follows wants to see what there is.
    http::read_some(stream, buffer, parser, error);
    if (error == http::error::need_buffer) error = {};
    const size_t bytes = piece.size() - parser.get().body().size;
    const std::string_view come(piece.data(), bytes);
    if (bytes > 0 && !(answer.is_refusal() ? keep(come) : take(come))) break;
    if (error) return fail(broken_off(error.message()));
  }
  *kept = *kept && parser.is_done() && parser.keep_alive();
  return answer;
}

Result<Unit> ServiceClient::call(const Call& call, const TakeBytes& take) const {
  AskAgain again;
  while (true) {
    MOTLEY_TRY(const auto connection, connect());
    MOTLEY_TRY(const Answer answer, ask(*connection, call, take));
    if (!answer.is_refusal()) return Unit{};
    if (!answer.later || !again.after_a_while())
      return fail(refusal_in(answer.refusal, answer.status));
  }
}

Result<std::unique_ptr<ServiceClient::Connection>> ServiceClient::connect() const {
  auto connection = std::make_unique<Connection>();
  if (address_.login) {
    MOTLEY_TRY(connection->tls, TlsConnection::open(address_.login->at, address_.login->authority));
    return connection;
  }
  if (address_.socket.size() > 107)
    return fail(ErrorCode::kUsage, "the path of the socket is too long: " + address_.socket);
  error_code error;
  connection->socket.connect(stream_protocol::endpoint(address_.socket), error);
  if (error) return fail(no_answer(error.message()));
  return connection;
}

Result<ServiceClient::Answer> ServiceClient::ask(Connection& connection, const Call& call,
                                                 const TakeBytes& take) const {
  if (connection.tls) return exchange(connection.tls->stream(), call, take, &connection.kept);
  return exchange(connection.socket, call, take, &connection.kept);
}

Result<json> ServiceClient::answer(const Call& asked) const {
  std::string body;
  MOTLEY_TRY_VOID(call(asked, [&](std::string_view bytes) {
    body += bytes;
    return true;
  }));
  return parse_json(body);
}

Result<json> ServiceClient::get(const std::string& target) const {
  return answer({"GET", target, "", {{"Accept", "application/json"}}});
}

Result<json> ServiceClient::remove(const std::string& target) const {
  return answer({"DELETE", target, "", {{"Accept", "application/json"}}});
}

Result<json> ServiceClient::patch(const std::string& target, const std::string& body) const {
  return answer({"PATCH", target, body, {{"Accept", "application/json"}}});
}

Result<json> ServiceClient::post(const std::string& target, const std::string& body,
                                 const std::string& idempotency_key) const {
  Call asked{"POST", target, body, {{"Accept", "application/json"}}};
  if (!idempotency_key.empty()) asked.headers["Idempotency-Key"] = idempotency_key;
  return answer(asked);
}

Result<Unit> ServiceClient::follow_once(const std::string& target, const TakeEvent& take,
                                        Followed* followed) const {
  std::string text;
  const auto on_bytes = [&](std::string_view bytes) {
    followed->heard = true;
    text += bytes;
    while (const auto event = next_event(&text)) {
      if (!event->id.empty()) followed->last_id = event->id;
      const json data = json::parse(event->data, nullptr, false);
      followed->over = event->kind == "end" || (!data.is_discarded() && !take(data));
      if (followed->over) return false;
    }
    return true;
  };
  Call asked{"GET", target, "", {{"Accept", "text/event-stream"}}};
  if (!followed->last_id.empty()) asked.headers["Last-Event-ID"] = followed->last_id;
  MOTLEY_TRY_VOID(call(asked, on_bytes));
  followed->heard = true;
  return Unit{};
}

Result<Unit> ServiceClient::follow(const std::string& target, const TakeEvent& take,
                                   Nanos next_coordinator) const {
  Followed followed;
  Nanos give_up{0};
  while (true) {
    followed.heard = false;
    const auto read = follow_once(target, take, &followed);
    if (followed.over) return Unit{};
    const Nanos now = steady_clock().now();
    if (followed.heard) give_up = now + next_coordinator;
    const bool gone = !read && (read.error().code == ErrorCode::kNoDevice ||
                                read.error().code == ErrorCode::kPeerLost);
    if (!read && (!gone || now >= give_up)) return read;
    std::this_thread::sleep_for(kTryAgain);
  }
}

ServiceLine::ServiceLine(const ServiceClient& client) : client_(client) {}
ServiceLine::~ServiceLine() = default;

Result<json> ServiceLine::post(const std::string& target, const std::string& body) {
  if (!connection_) {
    MOTLEY_TRY(connection_, client_.connect());
    connection_->kept = true;
    if (connection_->tls) connection_->tls->give_up_within(kSilence);
  }
  std::string text;
  const auto answer =
      client_.ask(*connection_, {"POST", target, body, {{"Accept", "application/json"}}},
                  [&](std::string_view bytes) {
                    text += bytes;
                    return true;
                  });
  if (!answer || !connection_->kept) connection_.reset();
  if (!answer) return fail(answer.error());
  if (answer->is_refusal()) return fail(refusal_in(answer->refusal, answer->status));
  return parse_json(text);
}

Result<std::string> fetch_authority(const Endpoint& at, const std::string& fingerprint) {
  MOTLEY_TRY(const auto connection, TlsConnection::open(at, ""));
  std::string shown;
  for (const std::string& certificate : connection->certificates()) {
    MOTLEY_TRY(shown, fingerprint_of(certificate));
    if (shown == fingerprint) return certificate;
  }
  return fail(ErrorCode::kNotPermitted, at.to_string() + " shows the fingerprint " +
                                            (shown.empty() ? "of nobody" : shown) + ", not " +
                                            fingerprint + ": it is not the service that was meant");
}

}  // namespace motley
