// token create, ls, revoke: who may ask the service over the network.

#include <cstdio>
#include <nlohmann/json.hpp>

#include "core/units.h"
#include "scheduler/cli/service_command.h"
#include "scheduler/report/table.h"
#include "scheduler/service/caller.h"
#include "scheduler/service/http_message.h"

namespace motley {
namespace {

using nlohmann::json;

class TokenCommand final : public Command {
 public:
  void declare(CommandLine& line) override {
    line.positional("WHAT", "create, ls or revoke", &what_)
        .completes({"create", "ls", "revoke"})
        .optional_word("ID", "with revoke: the token's number", &id_)
        .option(
            "--user", "NAME",
            "whose jobs it submits and changes (default: yours); with revoke: all of this user's",
            &user_)
        .option("--role", "ROLE", "what it allows: viewer, user (default), admin or node", &role_)
        .completes({"viewer", "user", "admin", "node"})
        .option("--node", "NAME",
                "with the role node: of which (default: the first that joins by it)", &node_)
        .option("--expires", "TIME", "it is valid as long, as 30d (default: until it is revoked)",
                &expires_)
        .option("--label", "TEXT", "what it is for", &label_)
        .flag("--json", "one JSON object", &json_);
    declare_service(line, &service_);
  }

  Result<int> run() override {
    const bool has_wishes =
        !role_.empty() || !node_.empty() || !expires_.empty() || !label_.empty();
    if (what_ != "create" && has_wishes)
      return fail(ErrorCode::kUsage, "--role, --node, --expires and --label are about create");
    if (what_ == "ls" && !user_.empty())
      return fail(ErrorCode::kUsage, "--user is about create and revoke");
    const bool one_is_named = id_.empty() != user_.empty();
    if (what_ == "revoke" ? !one_is_named : !id_.empty())
      return fail(
          ErrorCode::kUsage,
          "motley token create, ls, revoke ID (see motley token ls), or revoke --user NAME");
    MOTLEY_TRY(const ServiceClient client, client_of(service_));
    if (what_ == "create") return create(client);
    if (what_ == "ls") return list(client);
    if (what_ == "revoke") return revoke(client);
    return fail(ErrorCode::kUsage, "token takes create, ls or revoke, not '" + what_ + "'");
  }

 private:
  Result<int> create(const ServiceClient& client) const {
    json wish = json::object();
    if (!user_.empty()) wish["user"] = user_;
    if (!role_.empty()) wish["role"] = role_;
    if (!node_.empty()) wish["node"] = node_;
    if (!label_.empty()) wish["label"] = label_;
    if (!expires_.empty()) {
      MOTLEY_TRY(const Nanos lasts, parse_duration(expires_));
      wish["expires_seconds"] = static_cast<int64_t>(seconds_of(lasts));
    }
    MOTLEY_TRY(
        const json token,
        client.post("/v1/tokens", wish.dump(-1, ' ', false, json::error_handler_t::replace)));
    if (json_) {
      std::printf("%s\n", token.dump().c_str());
      return 0;
    }
    std::printf("%s\n", token.value("token", "").c_str());
    tell_how_to_use(token);
    return 0;
  }

  static void tell_how_to_use(const json& token) {
    std::fprintf(stderr, "token %s, %s of %s, is told this once\n", token["id"].dump().c_str(),
                 token.value("role", "").c_str(), token.value("user", "").c_str());
    if (!token["address"].is_string()) {
      std::fprintf(stderr,
                   "nobody can use it yet: the service listens on no network; "
                   "motley serve --listen HOST:PORT\n");
      return;
    }
    const std::string address = token["address"].get<std::string>();
    const std::string fingerprint = token["fingerprint"].get<std::string>();
    if (token.value("role", "") == name_of(Role::kNode))
      std::fprintf(stderr,
                   "on the other machine, with the token in FILE:  motley agent --join %s "
                   "--token-file FILE --fingerprint %s%s\n",
                   address.c_str(), fingerprint.c_str(),
                   token["node"].is_string() ? (" --name " + node_of(token)).c_str() : "");
    else
      std::fprintf(stderr, "on the other machine:  motley login %s --fingerprint %s\n",
                   address.c_str(), fingerprint.c_str());
  }

  Result<int> list(const ServiceClient& client) const {
    MOTLEY_TRY(const json page, client.get("/v1/tokens"));
    if (json_) {
      std::printf("%s\n", page.dump().c_str());
      return 0;
    }
    TextTable table({{"token", Align::kRight},
                     {"user", Align::kLeft},
                     {"role", Align::kLeft},
                     {"node", Align::kLeft},
                     {"created", Align::kLeft},
                     {"expires", Align::kLeft},
                     {"state", Align::kLeft},
                     {"label", Align::kLeft}});
    for (const json& token : page["tokens"])
      table.add_row({token["id"].dump(), token.value("user", ""), token.value("role", ""),
                     node_of(token), time_text(token["created"]), time_text(token["expires"]),
                     state_of(token), token.value("label", "")});
    std::printf("%s", table.to_string().c_str());
    return 0;
  }

  static std::string node_of(const json& token) {
    return token["node"].is_string() ? token["node"].get<std::string>() : "-";
  }

  static std::string state_of(const json& token) {
    if (!token["revoked"].is_null()) return "revoked";
    return token.value("valid", false) ? "valid" : "expired";
  }

  Result<int> revoke(const ServiceClient& client) const {
    if (!id_.empty() && !is_number(id_))
      return fail(ErrorCode::kUsage,
                  "a token is named by its number, not '" + id_ + "': see motley token ls");
    const std::string target = id_.empty() ? "/v1/tokens/revoke?user=" + percent_encoded(user_)
                                           : "/v1/tokens/" + id_ + "/revoke";
    MOTLEY_TRY(const json answer, client.post(target));
    if (json_) {
      std::printf("%s\n", answer.dump().c_str());
      return 0;
    }
    for (const json& token : id_.empty() ? answer["tokens"] : json::array({answer}))
      std::printf("token %s of %s is revoked\n", token["id"].dump().c_str(),
                  token.value("user", "").c_str());
    return 0;
  }

  std::string what_, id_, user_, role_, node_, expires_, label_;
  ServiceChoice service_;
  bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_token_command() { return std::make_unique<TokenCommand>(); }

}  // namespace motley
