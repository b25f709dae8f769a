#pragma once
// What a request and a response are in Beast's words.

#include <boost/asio/error.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/string_body.hpp>
#include <optional>
#include <string>
#include <vector>

#include "scheduler/service/http_message.h"

namespace motley {

using HttpText = boost::beast::http::string_body;

std::string header_of(const boost::beast::http::request<HttpText>& request,
                      boost::beast::string_view name);
/// Its body is taken. kUsage where the target is malformed.
Result<HttpRequest> request_of(boost::beast::http::request<HttpText>& message);
boost::beast::http::response<HttpText> message_of(HttpResponse response, bool keep_alive);
/// What the request line and header came to; nothing where they are fine.
std::optional<HttpResponse> refusal_of(boost::system::error_code error);
/// Whether `host` (of the header, perhaps with a port) is one of `names`: a page of another site,
/// whose name was made to mean our address, is not answered.
bool is_addressed(std::string host, const std::vector<std::string>& names);

}  // namespace motley
