#include "scheduler/service/access.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <optional>
#include <utility>

#include "scheduler/service/event_text.h"
#include "scheduler/service/node_json.h"
#include "scheduler/service/secret.h"

namespace motley {
namespace {

constexpr std::string_view kPrefix = "mtl_";
constexpr size_t kLongestUser = 64;
constexpr size_t kLongestLabel = 200;
constexpr std::chrono::milliseconds kLookAtClock{1'000};
constexpr Nanos kLongest{int64_t{3'153'600'000} * 1'000'000'000};  // a hundred years

/// The number that a token begins with, and the secret that follows.
struct TokenText {
  int64_t id = 0;
  std::string_view secret;
};

std::optional<TokenText> token_text(std::string_view text) {
  if (!text.starts_with(kPrefix)) return std::nullopt;
  text.remove_prefix(kPrefix.size());
  const std::string_view number = cut_off(&text, '_');
  TokenText token{0, text};
  const char* end = number.data() + number.size();
  const auto parsed = std::from_chars(number.data(), end, token.id);
  if (parsed.ec != std::errc() || parsed.ptr != end || token.id <= 0) return std::nullopt;
  return token;
}

bool is_name(const std::string& text) {
  const auto fits = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '.' || c == '_' || c == '-' || c == '@';
  };
  return !text.empty() && text.size() <= kLongestUser &&
         std::all_of(text.begin(), text.end(), fits);
}

Result<Unit> check(const TokenWish& wish) {
  if (!is_name(wish.user))
    return fail(
        ErrorCode::kUsage,
        "user: expected up to 64 letters, digits, '.', '_', '-' or '@', found '" + wish.user + "'");
  if (wish.label.size() > kLongestLabel) return fail(ErrorCode::kUsage, "label: at most 200 bytes");
  if (wish.lasts < Nanos(0) || wish.lasts > kLongest)
    return fail(ErrorCode::kUsage, "a token lasts a hundred years at most");
  if (wish.node.empty()) return Unit{};
  if (wish.role != Role::kNode)
    return fail(ErrorCode::kUsage, "node: only a token of the role node speaks for a node");
  if (!is_node_name(wish.node))
    return fail(
        ErrorCode::kUsage,
        "node: expected up to 64 letters, digits, '.', '-' or '_', found '" + wish.node + "'");
  return Unit{};
}

/// "token 3 (user) of eva"
std::string name_for_people(const StoredToken& token) {
  return "token " + std::to_string(token.id) + " (" + token.role + ") of " + token.user;
}

}  // namespace

class Access::LimitedEvents final : public EventSource {
 public:
  LimitedEvents(std::shared_ptr<EventSource> events, Caller caller, const Access& access)
      : events_(std::move(events)),
        caller_(std::move(caller)),
        access_(access),
        revocations_(access.revocations_) {}

  std::string next() override {
    const bool perhaps_ended = revocations_ != access_.revocations_ || has_expired();
    revocations_ = access_.revocations_;
    if (perhaps_ended && !access_.still_valid(caller_)) ended_ = true;
    return ended_ ? "" : events_->next();
  }
  bool over() const override { return ended_ || events_->over(); }
  std::chrono::milliseconds patience() const override {
    return caller_.expires == 0 ? events_->patience() : std::min(events_->patience(), kLookAtClock);
  }

 private:
  bool has_expired() const {
    return caller_.expires != 0 && access_.around_.wall_time() >= caller_.expires;
  }

  const std::shared_ptr<EventSource> events_;
  const Caller caller_;
  const Access& access_;
  int64_t revocations_;
  bool ended_ = false;
};

bool Access::is_valid(const StoredToken& token) const {
  return token.revoked == 0 && (token.expires == 0 || around_.wall_time() < token.expires);
}

Result<Caller> Access::caller_of(const HttpRequest& request) const {
  if (request.local) return Caller{around_.own_name, Role::kAdmin};
  if (request.token.empty()) return Caller{};
  const Error refusal{ErrorCode::kNotPermitted,
                      "the token is not valid, or not any more: ask the service's administrator "
                      "for another one",
                      {}};
  const auto text = token_text(request.token);
  if (!text) return fail(refusal);
  MOTLEY_TRY(const std::optional<StoredToken> token, find_token(around_.kept, text->id));
  if (!token || !equal_secrets(sha256_of(text->secret), token->hash) || !is_valid(*token))
    return fail(refusal);
  const std::optional<Role> role = role_of_name(token->role);
  if (!role) return fail(refusal);
  return Caller{token->user, *role, token->id, token->expires, token->node};
}

bool Access::still_valid(const Caller& caller) const {
  if (caller.token == 0) return true;
  const auto token = find_token(around_.kept, caller.token);
  return token && *token && is_valid(**token);
}

std::shared_ptr<EventSource> Access::limited(std::shared_ptr<EventSource> events,
                                             Caller caller) const {
  if (caller.token == 0) return events;
  return std::make_shared<LimitedEvents>(std::move(events), std::move(caller), *this);
}

void Access::create(const TokenWish& wish, Created done, const std::string& by) {
  if (const auto fine = check(wish); !fine) return done(fail(fine.error()), "");
  const auto secret = new_secret();
  if (!secret) return done(fail(secret.error()), "");
  auto token = std::make_shared<StoredToken>();
  token->user = wish.user;
  token->role = name_of(wish.role);
  token->label = wish.label;
  token->node = wish.node;
  token->hash = sha256_of(*secret);
  token->created = around_.wall_time();
  token->expires = wish.lasts > Nanos(0) ? token->created + wish.lasts.value() : 0;
  around_.store.write(
      [token, by](Database& database) -> Result<Unit> {
        MOTLEY_TRY(token->id, add_token(database, *token));
        return add_service_event(database, token->created,
                                 name_for_people(*token) + " is created" + by_whom(by));
      },
      [token, secret = *secret, done = std::move(done)](const Result<Unit>& written) {
        if (!written) return done(fail(written.error()), "");
        done(*token, std::string(kPrefix) + std::to_string(token->id) + "_" + secret);
      });
}

/// `missing`: what is said where there is none.
void Access::revoke_those(const IsMeant& meant, const std::string& missing, const std::string& by,
                          Revoked done) {
  const auto revoked = std::make_shared<std::vector<StoredToken>>();
  const int64_t now = around_.wall_time();
  around_.store.write(
      [revoked, meant, missing, by, now](Database& database) -> Result<Unit> {
        MOTLEY_TRY(const std::vector<StoredToken> tokens, list_tokens(database));
        revoked->clear();
        for (const StoredToken& token : tokens) {
          if (!meant(token)) continue;
          StoredToken& ended = revoked->emplace_back(token);
          if (token.revoked != 0) continue;
          ended.revoked = now;
          MOTLEY_TRY_VOID(revoke_token(database, token.id, now));
          MOTLEY_TRY_VOID(add_service_event(database, now,
                                            name_for_people(token) + " is revoked" + by_whom(by)));
        }
        return revoked->empty() ? fail(ErrorCode::kNotFound, missing) : Result<Unit>(Unit{});
      },
      [this, revoked, done = std::move(done)](const Result<Unit>& written) {
        if (!written) return done(fail(written.error()));
        ++revocations_;
        done(*revoked);
      });
}

void Access::revoke(int64_t id, Revoked done, const std::string& by) {
  revoke_those([id](const StoredToken& token) { return token.id == id; },
               "there is no token " + std::to_string(id), by, std::move(done));
}

void Access::revoke_all_of(const std::string& user, Revoked done, const std::string& by) {
  revoke_those(
      [user](const StoredToken& token) { return token.user == user && token.revoked == 0; },
      "no token of " + user + " is there to be revoked", by, std::move(done));
}

Result<Unit> check_speaks_for(const Caller& caller, const std::string& node) {
  if (caller.role != Role::kNode || caller.node.empty() || caller.node == node) return Unit{};
  return fail(ErrorCode::kNotPermitted, "the token is node " + caller.node + "'s, not " + node +
                                            "'s: motley token create --role node --node " + node +
                                            " makes another");
}

void Access::bind(const Caller& caller, const std::string& node, Bound done) {
  if (caller.role != Role::kNode || !caller.node.empty())
    return done(check_speaks_for(caller, node));
  around_.store.write(
      [id = caller.token, node](Database& database) { return bind_token(database, id, node); },
      [this, caller, node, done = std::move(done)](const Result<Unit>& written) {
        if (!written) return done(written);
        // Another request may have been quicker.
        const auto token = find_token(around_.kept, caller.token);
        if (!token) return done(fail(token.error()));
        Caller bound = caller;
        bound.node = (*token)->node;
        done(check_speaks_for(bound, node));
      });
}

}  // namespace motley
