#pragma once
// What the handlers of the API have in common: reading parameters, and answers.

#include <string>
#include <string_view>

#include "scheduler/service/http_message.h"

namespace motley {

/// The status of an error about what is there.
int status_of(ErrorCode code);
/// The same of a submission or an offer: its own fault, unless the disk or we are to blame.
int status_of_refused(ErrorCode code);
void refuse(const HttpReply& reply, const Error& error);

/// Of the query; empty where it is missing.
std::string text_in(const HttpRequest& request, const std::string& name);
Result<int64_t> number_in(const HttpRequest& request, const std::string& name, int64_t otherwise,
                          int64_t most);
/// By which a repeated submission is known; nobody finds another's job by it.
Result<std::string> submission_key(const HttpRequest& request);
/// A parameter that is not known is a slip, which would else pass for an answer: kUsage. `known`:
/// names, a space between two.
Result<Unit> only(const HttpRequest& request, std::string_view known);
bool wants_events(const HttpRequest& request);

}  // namespace motley
