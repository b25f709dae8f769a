#include "scheduler/service/service_client.h"

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>  // before Asio of Boost 1.74

#include "core/json_fields.h"
#include "scheduler/service/service_directory.h"

namespace motley {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::local::stream_protocol;
using boost::system::error_code;
using nlohmann::json;

Error no_answer(const std::string& socket, const error_code& error) {
  return {ErrorCode::kNoDevice,
          "no coordinator answers on " + socket + " (" + error.message() +
              "): start one with `motley serve`, or name its socket with --socket PATH",
          {}};
}

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

/// Takes whole events out of what has come; their data.
std::optional<std::string> next_data(std::string* text) {
  const size_t end = text->find("\n\n");
  if (end == std::string::npos) return std::nullopt;
  const std::string event = text->substr(0, end + 1);
  text->erase(0, end + 2);
  const size_t data = event.find("data: ");
  if (data == std::string::npos) return "";
  const size_t begin = data + 6;
  return event.substr(begin, event.find('\n', begin) - begin);
}

}  // namespace

ServiceClient::ServiceClient(const std::string& socket)
    : socket_(socket.empty() ? default_socket() : socket) {}

Result<int> ServiceClient::call(const Call& call, const TakeBytes& take) const {
  asio::io_context context;
  stream_protocol::socket socket(context);
  error_code error;
  if (socket_.size() > 107)
    return fail(ErrorCode::kUsage, "the path of the socket is too long: " + socket_);
  socket.connect(stream_protocol::endpoint(socket_), error);
  if (error) return fail(no_answer(socket_, error));
  http::request<http::string_body> request(http::string_to_verb(call.method), call.target, 11);
  request.set(http::field::host, "motley");
  request.set(http::field::connection, "close");
  for (const auto& [name, value] : call.headers) request.set(name, value);
  request.body() = call.body;
  request.prepare_payload();
  http::write(socket, request, error);
  // One that refuses before it has read everything has still answered.
  boost::beast::flat_buffer buffer;
  http::response_parser<http::buffer_body> parser;
  parser.body_limit(UINT64_MAX);
  http::read_header(socket, buffer, parser, error);
  if (error) return fail(no_answer(socket_, error));
  std::array<char, 16384> piece;
  while (!parser.is_done()) {
    parser.get().body().data = piece.data();
    parser.get().body().size = piece.size();
    http::read(socket, buffer, parser, error);
    if (error == http::error::need_buffer) error = {};
    const size_t bytes = piece.size() - parser.get().body().size;
    if (bytes > 0 && !take({piece.data(), bytes})) break;
    if (error == http::error::end_of_stream || error == http::error::partial_message) break;
    if (error) return fail(no_answer(socket_, error));
  }
  return static_cast<int>(parser.get().result_int());
}

Result<json> ServiceClient::answer(const Call& asked) const {
  std::string body;
  MOTLEY_TRY(const int status, call(asked, [&](std::string_view bytes) {
               body += bytes;
               return true;
             }));
  if (status >= 300) return fail(refusal_in(body, status));
  return parse_json(body);
}

Result<json> ServiceClient::get(const std::string& target) const {
  return answer({"GET", target, "", {{"Accept", "application/json"}}});
}

Result<json> ServiceClient::post(const std::string& target, const std::string& body,
                                 const std::string& idempotency_key) const {
  Call asked{"POST", target, body, {{"Accept", "application/json"}}};
  if (!idempotency_key.empty()) asked.headers["Idempotency-Key"] = idempotency_key;
  return answer(asked);
}

Result<Unit> ServiceClient::follow(const std::string& target, const TakeEvent& take) const {
  std::string text;
  const auto on_bytes = [&](std::string_view bytes) {
    text += bytes;
    while (const auto data = next_data(&text)) {
      const json document = json::parse(*data, nullptr, false);
      if (!document.is_discarded() && !take(document)) return false;
    }
    return true;
  };
  const Call asked{"GET", target, "", {{"Accept", "text/event-stream"}}};
  MOTLEY_TRY(const int status, call(asked, on_bytes));
  if (status >= 300) return fail(refusal_in(text, status));
  return Unit{};
}

}  // namespace motley
