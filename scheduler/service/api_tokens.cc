// Of the API: who may ask what, and the tokens that say so.

#include <nlohmann/json.hpp>

#include "core/json_fields.h"
#include "core/log.h"
#include "core/spec/job_update.h"
#include "core/spec/json.h"
#include "scheduler/service/api.h"
#include "scheduler/service/job_json.h"
#include "scheduler/service/replies.h"

namespace motley {
namespace {

using nlohmann::json;

int status_of_token(ErrorCode code) {
  if (code == ErrorCode::kUsage) return 400;
  if (code == ErrorCode::kNotFound) return 404;
  return code == ErrorCode::kIo ? 507 : 500;  // what cannot be kept is refused
}

/// For a token that is wrong: guessing one after the other on a connection is slow.
constexpr Nanos kPause{1'000'000'000};
constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kMostSeconds = 3'153'600'000;

Result<TokenWish> wish_in(const HttpRequest& request) {
  MOTLEY_TRY(const json document, parse_json(request.body));
  TokenWish wish;
  wish.user = request.caller.user;
  std::string role = name_of(wish.role);
  int64_t seconds = 0;
  JsonFields fields(document);
  fields.read_if("user", wish.user)
      .read_if("role", role)
      .read_if("label", wish.label)
      .read_if("node", wish.node);
  if (fields.has("expires_seconds"))
    fields.read_between("expires_seconds", seconds, 1, kMostSeconds);
  MOTLEY_TRY_VOID(fields.done());
  const auto known = role_of_name(role);
  if (!known)
    return fail(ErrorCode::kUsage,
                "role: there are viewer, user, admin and node, not '" + role + "'");
  wish.role = *known;
  wish.lasts = Nanos(seconds * kSecond);
  return wish;
}

}  // namespace

HttpResponse Api::unauthorised(const HttpRequest& request, const Error& error) {
  log_warning("a token from " + one_line(request.peer) + " was refused");
  HttpResponse response = error_response(401, error);
  response.pause = kPause;
  return response;
}

std::optional<HttpResponse> Api::not_permitted(const Route& route, const HttpRequest& request,
                                               int64_t job) const {
  const auto forbidden = [](std::string why) {
    return error_response(403, {ErrorCode::kNotPermitted, std::move(why), {}});
  };
  const Caller& caller = request.caller;
  if (!admits(route.least, caller.role)) {
    if (caller.role == Role::kNobody)
      return error_response(401, {ErrorCode::kNotPermitted, "this takes a token", {}});
    return forbidden("this takes the role " + std::string(name_of(route.least)) +
                     "; the token has " + name_of(caller.role));
  }
  if (route.least == Role::kNode)
    if (const auto its_own = check_speaks_for(caller, request.name); !its_own)
      return forbidden(its_own.error().message);
  if (!route.of_owner || caller.role == Role::kAdmin) return std::nullopt;
  const auto stored = find_job(kept_, job);
  if (!stored) return error_response(status_of(stored.error().code), stored.error());
  if (stored->owner == caller.user) return std::nullopt;
  return forbidden("job " + std::to_string(job) + " is " + stored->owner + "'s; the token is " +
                   caller.user + "'s");
}

Result<Unit> Api::check_priority(const Caller& caller, int priority) const {
  if (caller.role != Role::kUser || priority <= user_priority_) return Unit{};
  return fail(ErrorCode::kNotPermitted,
              "priority " + std::to_string(priority) + " is above " +
                  std::to_string(user_priority_) +
                  ", the highest for the role user: an administrator may give it");
}

/// What is wrong with the job or the changes is told by who makes them.
Result<Unit> Api::check_priority(const Caller& caller, int64_t id,
                                 const std::vector<Override>& changes) const {
  const auto stored = find_job(kept_, id);
  if (!stored) return Unit{};
  const auto document = parse_json(stored->spec);
  const auto job = document ? job_from_json(*document) : fail(document.error());
  const auto updated = job ? updated_job(*job, changes) : fail(job.error());
  if (!updated || updated->service.priority == job->service.priority) return Unit{};
  return check_priority(caller, updated->service.priority);
}

json Api::token_json(const StoredToken& token) const {
  json document = to_json(token);
  document["valid"] = access_.is_valid(token);
  return document;
}

void Api::create_token(const HttpRequest& request, const HttpReply& reply) {
  const auto wish = wish_in(request);
  if (!wish) return reply(error_response(400, wish.error()));
  const auto answer = [this, reply](const Result<StoredToken>& token, const std::string& secret) {
    if (!token) return reply(error_response(status_of_token(token.error().code), token.error()));
    json document = token_json(*token);
    document["token"] = secret;
    document["address"] = door_.address.empty() ? json(nullptr) : json(door_.address);
    document["fingerprint"] = door_.fingerprint.empty() ? json(nullptr) : json(door_.fingerprint);
    reply(json_response(document, 201));
  };
  access_.create(*wish, answer, request.caller.user);
}

json Api::tokens_json(const std::vector<StoredToken>& tokens) const {
  json list = json::array();
  for (const StoredToken& token : tokens) list.push_back(token_json(token));
  return {{"tokens", list}};
}

void Api::list_tokens(const HttpRequest&, const HttpReply& reply) {
  const auto tokens = access_.tokens();
  if (!tokens) return reply(error_response(500, tokens.error()));
  reply(json_response(tokens_json(*tokens)));
}

void Api::revoke_token(const HttpRequest& request, const HttpReply& reply, int64_t id) {
  const auto answer = [this, reply](const Result<std::vector<StoredToken>>& revoked) {
    if (!revoked)
      return reply(error_response(status_of_token(revoked.error().code), revoked.error()));
    reply(json_response(token_json(revoked->front())));
  };
  access_.revoke(id, answer, request.caller.user);
}

void Api::revoke_tokens(const HttpRequest& request, const HttpReply& reply) {
  const std::string user = text_in(request, "user");
  if (user.empty()) return refuse(reply, {ErrorCode::kUsage, "user: whose tokens?", {}});
  const auto answer = [this, reply](const Result<std::vector<StoredToken>>& revoked) {
    if (!revoked)
      return reply(error_response(status_of_token(revoked.error().code), revoked.error()));
    reply(json_response(tokens_json(*revoked)));
  };
  access_.revoke_all_of(user, answer, request.caller.user);
}

void Api::whoami(const HttpRequest& request, const HttpReply& reply) {
  reply(json_response({{"user", request.caller.user}, {"role", name_of(request.caller.role)}}));
}

}  // namespace motley
