#include "scheduler/service/http_message.h"

#include <cctype>
#include <nlohmann/json.hpp>
#include <optional>

namespace motley {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::optional<std::string> percent_decoded(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    if (i + 2 >= text.size()) return std::nullopt;
    const int high = hex_digit(text[i + 1]), low = hex_digit(text[i + 2]);
    if (high < 0 || low < 0 || (high == 0 && low == 0)) return std::nullopt;
    decoded += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return decoded;
}

tl::unexpected<Error> malformed(std::string_view target) {
  return fail(ErrorCode::kUsage, "malformed target '" + std::string(target.substr(0, 100)) + "'");
}

}  // namespace

std::string_view cut_off(std::string_view* text, char separator) {
  const size_t end = text->find(separator);
  const std::string_view part = text->substr(0, end);
  text->remove_prefix(end == std::string_view::npos ? text->size() : end + 1);
  return part;
}

Result<Unit> read_target(std::string_view target, HttpRequest* request) {
  std::string_view rest = target;
  const auto path = percent_decoded(cut_off(&rest, '?'));
  if (!path || path->empty() || path->front() != '/') return malformed(target);
  request->path = *path;
  while (!rest.empty()) {
    std::string_view pair = cut_off(&rest, '&');
    if (pair.empty()) continue;
    const auto name = percent_decoded(cut_off(&pair, '='));
    const auto value = percent_decoded(pair);
    if (!name || !value || !request->query.emplace(*name, *value).second) return malformed(target);
  }
  return Unit{};
}

std::string percent_encoded(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string encoded;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0 || c == '-' || c == '.' || c == '_' || c == '~') {
      encoded += c;
    } else {
      encoded += '%';
      encoded += kDigits[byte / 16];
      encoded += kDigits[byte % 16];
    }
  }
  return encoded;
}

namespace {

std::string line_of(const nlohmann::json& document) {
  return document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

HttpResponse json_response(const nlohmann::json& document, int status) {
  HttpResponse response;
  response.status = status;
  response.body = line_of(document) + "\n";
  return response;
}

HttpResponse error_response(int status, const Error& error) {
  return json_response({{"error", {{"code", name_of(error.code)}, {"message", error.to_string()}}}},
                       status);
}

HttpResponse busy_response(const std::string& why) {
  HttpResponse response = error_response(503, {ErrorCode::kNoDevice, why + ": try again", {}});
  response.retry_after = 1;
  return response;
}

std::string event_text_of(std::string_view id, std::string_view kind, std::string_view data) {
  return "id: " + std::string(id) + "\nevent: " + std::string(kind) +
         "\ndata: " + std::string(data) + "\n\n";
}

std::string json_event_of(std::string_view id, std::string_view kind, const nlohmann::json& data) {
  return event_text_of(id, kind, line_of(data));
}

}  // namespace motley
