// Who is let in, and what each role may ask.

#include "scheduler/service/access.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "scheduler/service/api.h"
#include "scheduler/service/attempt_files.h"
#include "scheduler/service/node_json.h"
#include "scheduler/service/secret.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/scheduler/service/fake_service.h"

namespace motley {
namespace {

using nlohmann::json;
using testing::fleet_of;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kSecond = 1'000'000'000;

class AccessTest : public ::testing::Test {
 protected:
  AccessTest()
      : service_(fleet_of({"a"})),
        directory_(std::move(*ServiceDirectory::open(temporary_.path() + "/state"))),
        access_({service_.database(), service_.writer(), [this] { return now_; }, "ana"}),
        retention_({service_.coordinator(), service_.database(), service_.writer(), directory_,
                    service_.remover, [this] { return now_; }},
                   Nanos(0)),
        api_(service_.coordinator(), retention_, service_.database(), directory_, access_) {}

  /// The token, whole.
  std::string create(const TokenWish& wish) {
    std::string made;
    access_.create(wish, [&](const Result<StoredToken>& token, const std::string& secret) {
      EXPECT_TRUE(token) << token.error().message;
      made = secret;
    });
    service_.run();
    return made;
  }
  std::string token_of(const std::string& user, Role role) { return create({user, role, "", {}}); }
  Result<Unit> revoke(int64_t id) {
    Result<Unit> revoked = fail(ErrorCode::kInternal, "not answered");
    access_.revoke(id, [&](const Result<std::vector<StoredToken>>& tokens) {
      revoked = tokens ? Result<Unit>(Unit{}) : fail(tokens.error());
    });
    service_.run();
    return revoked;
  }
  Result<Caller> caller_with(const std::string& token) {
    HttpRequest request;
    request.token = token;
    return access_.caller_of(request);
  }

  static HttpRequest request_of(const std::string& token, const std::string& method,
                                const std::string& target, const std::string& body) {
    HttpRequest request;
    request.method = method;
    request.body = body;
    request.token = token;
    request.peer = "192.0.2.7";
    EXPECT_TRUE(read_target(target, &request));
    return request;
  }
  HttpResponse ask(const std::string& token, const std::string& method, const std::string& target,
                   const std::string& body = "", bool local = false) {
    HttpRequest request = request_of(token, method, target, body);
    request.local = local;
    HttpResponse answer;
    answer.status = 0;
    api_.handle(std::move(request), [&](HttpResponse response) { answer = std::move(response); });
    service_.run();
    return answer;
  }
  HttpResponse join(const std::string& token, const std::string& name,
                    const std::string& session = "first") {
    return ask(token, "POST", "/v1/nodes/" + name + "/join",
               to_json(testing::node_of_types(name, {"a"}, session)).dump());
  }
  std::shared_ptr<EventSource> followed(const std::string& token, const std::string& target) {
    HttpRequest request = request_of(token, "GET", target, "");
    request.accept = "text/event-stream";
    std::shared_ptr<EventSource> events;
    api_.handle(request, [&](const HttpResponse& response) { events = response.events; });
    EXPECT_TRUE(events);
    return events;
  }
  int64_t submit_as(const std::string& owner) {
    Result<int64_t> id = fail(ErrorCode::kInternal, "not answered");
    service_.coordinator().submit({{testing::job_on(1)}, owner, "", true},
                                  [&](Result<int64_t> result) { id = std::move(result); });
    service_.run();
    return *id;
  }

  int64_t now_ = 1'000 * kSecond;
  testing::TemporaryDirectory temporary_;
  testing::FakeService service_;
  ServiceDirectory directory_;
  Access access_;
  Retention retention_;
  Api api_;
};

TEST_F(AccessTest, ATokenNamesItsUserAndRole) {
  const std::string token = token_of("ben", Role::kViewer);
  EXPECT_TRUE(token.starts_with("mtl_1_"));
  EXPECT_EQ(token.size(), std::string("mtl_1_").size() + 64);
  const auto caller = caller_with(token);
  ASSERT_TRUE(caller);
  EXPECT_EQ(caller->user, "ben");
  EXPECT_EQ(caller->role, Role::kViewer);
  EXPECT_NE(token_of("ben", Role::kViewer).substr(6), token.substr(6));
}

TEST_F(AccessTest, OnlyTheHashIsKept) {
  const std::string secret = token_of("ben", Role::kUser).substr(6);
  const auto stored = find_token(service_.database(), 1);
  ASSERT_TRUE(stored && *stored);
  EXPECT_EQ((*stored)->hash, sha256_of(secret));
  EXPECT_THAT(ask("", "GET", "/v1/tokens", "", true).body, Not(HasSubstr((*stored)->hash)));
}

TEST_F(AccessTest, WhatIsNoTokenIsRefused) {
  const std::string token = token_of("ben", Role::kUser);
  std::string other = token;
  other.back() = other.back() == '0' ? '1' : '0';
  for (const std::string& wrong :
       {other, std::string("x"), std::string("mtl_"), std::string("mtl_1_"),
        "mtl_2_" + token.substr(6), token + "0", token.substr(0, token.size() - 1),
        std::string("mtl_-1_0"), std::string("mtl_99999999999999999999_0"), token.substr(4)}) {
    const auto refused = caller_with(wrong);
    ASSERT_FALSE(refused) << wrong;
    EXPECT_EQ(refused.error().code, ErrorCode::kNotPermitted);
    EXPECT_THAT(refused.error().message, Not(HasSubstr(wrong))) << "a token in a message";
  }
  EXPECT_EQ(caller_with("")->role, Role::kNobody);
}

TEST_F(AccessTest, TokensEnd) {
  const std::string token = create({"ben", Role::kUser, "", Nanos(10 * kSecond)});
  now_ += 9 * kSecond;
  EXPECT_TRUE(caller_with(token));
  now_ += kSecond;
  EXPECT_FALSE(caller_with(token));
  const std::string lasting = token_of("ben", Role::kUser);
  now_ += 1'000'000 * kSecond;
  EXPECT_TRUE(caller_with(lasting));
  ASSERT_TRUE(revoke(2));
  EXPECT_FALSE(caller_with(lasting));
  EXPECT_TRUE(revoke(2));
  EXPECT_EQ(revoke(3).error().code, ErrorCode::kNotFound);
}

TEST_F(AccessTest, AllTokensOfAUserEndAtOnceAndEventsSayWhoDidIt) {
  const std::string eva = token_of("eva", Role::kAdmin), ben = token_of("ben", Role::kUser),
                    other = token_of("ben", Role::kViewer);
  ASSERT_EQ(ask("", "POST", "/v1/tokens", R"({"user": "ben"})", true).status, 201);
  ASSERT_TRUE(revoke(2));
  const HttpResponse revoked = ask(eva, "POST", "/v1/tokens/revoke?user=ben");
  ASSERT_EQ(revoked.status, 200) << revoked.body;
  const json tokens = json::parse(revoked.body)["tokens"];
  ASSERT_EQ(tokens.size(), 2u) << "one was revoked before";
  EXPECT_EQ(tokens[0]["id"], 3);
  EXPECT_EQ(tokens[0]["valid"], false);
  EXPECT_FALSE(caller_with(other));
  EXPECT_TRUE(caller_with(eva));
  EXPECT_EQ(ask(eva, "POST", "/v1/tokens/revoke?user=ben").status, 404);
  EXPECT_EQ(ask(eva, "POST", "/v1/tokens/revoke").status, 400);
  const json events = json::parse(ask(eva, "GET", "/v1/events?last=3").body)["events"];
  EXPECT_EQ(events[0]["text"], "token 2 (user) of ben is revoked");
  EXPECT_EQ(events[1]["text"], "token 3 (viewer) of ben is revoked by eva");
  EXPECT_TRUE(events[1]["job"].is_null() && events[1]["node"].is_null());
  EXPECT_THAT(ask(eva, "GET", "/v1/events").body,
              HasSubstr("token 4 (user) of ben is created by ana"));
}

TEST_F(AccessTest, WhoFollowsIsCutOffWithTheToken) {
  const int64_t job = submit_as("ben");
  const std::string token = token_of("ben", Role::kViewer);
  const auto events = followed(token, "/v1/events?job=" + std::to_string(job));
  EXPECT_THAT(events->next(), HasSubstr("submitted"));
  ASSERT_TRUE(service_.ask(job, JobRequest::kCancel));
  ASSERT_TRUE(revoke(1));
  EXPECT_EQ(events->next(), "");
  EXPECT_TRUE(events->over());
}

TEST_F(AccessTest, AClockThatEndsATokenEndsWhoFollows) {
  const std::string token = create({"ben", Role::kViewer, "", Nanos(10 * kSecond)});
  const auto events = followed(token, "/v1/events");
  EXPECT_LE(events->patience(), std::chrono::seconds(1));
  events->next();
  now_ += 10 * kSecond;
  EXPECT_EQ(events->next(), "");
  EXPECT_TRUE(events->over());
  EXPECT_GT(followed(token_of("ben", Role::kViewer), "/v1/events")->patience(),
            std::chrono::seconds(1));
}

TEST_F(AccessTest, WhatACommandPrintsEndsWithTheToken) {
  const std::string token = token_of("eva", Role::kAdmin);
  service_.come("n1", {"a"});
  const auto submitted = service_.submit(testing::job_on(2));
  const AttemptOrder order = service_.launcher.orders.back();
  ASSERT_THAT(order.agents, ::testing::ElementsAre("n1"));
  const AttemptFiles files(directory_.attempt(order.id));
  ASSERT_TRUE(files.write_order(order));
  const json command = {{"id", "c1"},         {"job", *submitted}, {"attempt", 1},
                        {"node", "n1"},       {"command", "true"}, {"input", ""},
                        {"key", *files.key()}};
  ASSERT_EQ(ask("", "POST", "/v1/commands", command.dump(), true).status, 201);
  const auto output = followed(token, "/v1/commands/c1");
  EXPECT_FALSE(output->over());
  ASSERT_TRUE(revoke(1));
  EXPECT_EQ(output->next(), "");
  EXPECT_TRUE(output->over());
}

TEST_F(AccessTest, ATokenOfANodeSpeaksForNoOther) {
  const std::string token = create({"ana", Role::kNode, "", {}, "n1"});
  const HttpResponse refused = join(token, "n2");
  EXPECT_EQ(refused.status, 403);
  EXPECT_EQ(json::parse(refused.body)["error"]["message"],
            "the token is node n1's, not n2's: motley token create --role node --node n2 makes "
            "another");
  EXPECT_EQ(join(token, "n1").status, 200);
  EXPECT_EQ(join(token_of("root", Role::kAdmin), "n2").status, 200);
  const std::string life = R"({"session": "first", "running": [], "pieces": []})";
  EXPECT_EQ(ask(token, "POST", "/v1/nodes/n1/report", life).status, 200);
  EXPECT_EQ(ask(token, "POST", "/v1/nodes/n2/report", life).status, 403);
  EXPECT_EQ(ask(token, "POST", "/v1/nodes/n2/leave?session=first").status, 403);
  EXPECT_EQ(ask(token, "GET", "/v1/nodes/n2/orders?session=first").status, 403);
  EXPECT_EQ(service_.node("n2").state, NodeState::kAwaited) << "it left";
}

/// As what their connections count: who follows takes no place that a node needs.
TEST_F(AccessTest, WhoAsksIsAStrangerKnownOrAFollower) {
  const std::string viewer = token_of("ana", Role::kViewer);
  const std::string node = token_of("ana", Role::kNode);
  EXPECT_EQ(ask("", "GET", "/healthz").standing, Standing::kStranger);
  EXPECT_EQ(ask("mtl_9_no", "GET", "/v1/jobs").standing, Standing::kStranger);
  EXPECT_EQ(ask(viewer, "GET", "/v1/jobs").standing, Standing::kKnown);
  EXPECT_EQ(ask("", "GET", "/v1/jobs", "", true).standing, Standing::kKnown);
  EXPECT_EQ(join(node, "n1").standing, Standing::kKnown);
  EXPECT_EQ(ask(node, "GET", "/v1/nodes/n1/orders?session=first").standing, Standing::kKnown);
  const auto standing = [&](const std::string& target) {
    HttpRequest request = request_of(viewer, "GET", target, "");
    request.accept = "text/event-stream";
    Standing told = Standing::kStranger;
    api_.handle(request, [&](const HttpResponse& response) { told = response.standing; });
    return told;
  };
  EXPECT_EQ(standing("/v1/events"), Standing::kFollower);
  EXPECT_EQ(standing("/v1/jobs/" + std::to_string(submit_as("ana")) + "/logs"),
            Standing::kFollower);
}

TEST_F(AccessTest, ATokenWithoutANodeIsTheFirstOnesThatJoinsByIt) {
  const std::string token = token_of("ana", Role::kNode);
  service_.come("n1", {"a"});
  EXPECT_EQ(join(token, "n1", "another").status, 409);
  EXPECT_EQ(json::parse(ask("", "GET", "/v1/tokens", "", true).body)["tokens"][0]["node"], nullptr)
      << "who was refused has used it";
  EXPECT_EQ(join(token, "n2").status, 200);
  EXPECT_EQ(json::parse(ask("", "GET", "/v1/tokens", "", true).body)["tokens"][0]["node"], "n2");
  EXPECT_EQ(join(token, "n3").status, 403);
  EXPECT_EQ(join(token, "n2").status, 200);
}

TEST_F(AccessTest, OfTwoThatJoinAtOnceByATokenOneDoes) {
  const std::string token = token_of("ana", Role::kNode);
  std::vector<int> statuses;
  for (const char* name : {"n1", "n2"})
    api_.handle(request_of(token, "POST", std::string("/v1/nodes/") + name + "/join",
                           to_json(testing::node_of_types(name, {"a"})).dump()),
                [&](const HttpResponse& response) { statuses.push_back(response.status); });
  service_.run();
  EXPECT_THAT(statuses, ::testing::UnorderedElementsAre(200, 403));
  EXPECT_EQ(service_.coordinator().nodes().count("n2"), 0u);
}

TEST_F(AccessTest, WhatIsRefusedWhateverItsBodySaysIsKnownByItsHead) {
  const auto refused = [&](const std::string& token, const std::string& target) {
    const auto refusal = api_.refusal_of(request_of(token, "POST", target, ""));
    return refusal ? refusal->status : 0;
  };
  const std::string viewer = token_of("ben", Role::kViewer), user = token_of("ben", Role::kUser);
  EXPECT_EQ(refused("", "/v1/jobs"), 401);
  EXPECT_EQ(refused("mtl_1_00", "/v1/jobs"), 401);
  EXPECT_EQ(refused(viewer, "/v1/jobs"), 403);
  EXPECT_EQ(refused(user, "/v1/job"), 404);
  EXPECT_EQ(refused(user, "/v1/fleet"), 405);
  EXPECT_EQ(refused(user, "/v1/jobs?x=1"), 400);
  EXPECT_EQ(refused(user, "/v1/jobs?hold=true"), 0);
}

TEST_F(AccessTest, WishesAreChecked) {
  for (const char* wish :
       {R"({"user": "a b"})", R"({"user": ""})", R"({"role": "nobody"})", R"({"role": "king"})",
        R"({"expires_seconds": 0})", R"({"expires_seconds": 99999999999})", R"({"rolle": "user"})",
        R"([])", "", R"({"label": 7})", R"({"node": "n1"})", R"({"role": "node", "node": "a/b"})"})
    EXPECT_EQ(ask("", "POST", "/v1/tokens", wish, true).status, 400) << wish;
  const HttpResponse made =
      ask("", "POST", "/v1/tokens", R"({"label": "for \u00e9va", "expires_seconds": 60})", true);
  ASSERT_EQ(made.status, 201) << made.body;
  const json token = json::parse(made.body);
  EXPECT_EQ(token["user"], "ana");
  EXPECT_EQ(token["role"], "user");
  EXPECT_EQ(token["expires"], 1060.0);
  EXPECT_EQ(token["valid"], true);
  EXPECT_TRUE(token["address"].is_null());
  EXPECT_TRUE(caller_with(token["token"]));
}

/// Who gets through to each route, written down a second time.
struct Expected {
  const char* method;
  const char* path;
  const char* roles;  ///< without a token ("-"), viewer, user, admin, node
};
constexpr Expected kExpected[] = {
    {"GET", "/v1/jobs", "VUA"},
    {"POST", "/v1/jobs", "UA"},
    {"GET", "/v1/jobs/{id}", "VUA"},
    {"GET", "/v1/jobs/{id}/why", "VUA"},
    {"GET", "/v1/jobs/{id}/logs", "VUA"},
    {"POST", "/v1/jobs/{id}/cancel", "UA"},
    {"POST", "/v1/jobs/{id}/hold", "UA"},
    {"POST", "/v1/jobs/{id}/release", "UA"},
    {"POST", "/v1/jobs/{id}/requeue", "UA"},
    {"POST", "/v1/jobs/{id}/resume", "UA"},
    {"PATCH", "/v1/jobs/{id}", "UA"},
    {"DELETE", "/v1/jobs/{id}", "UA"},
    {"GET", "/v1/events", "VUA"},
    {"GET", "/v1/jobs/{id}/progress", "VUA"},
    {"GET", "/v1/devices", "VUA"},
    {"GET", "/v1/fleet", "VUA"},
    {"GET", "/v1/profiles", "VUA"},
    {"GET", "/v1/nodes", "VUA"},
    {"GET", "/v1/nodes/{name}", "VUA"},
    {"POST", "/v1/nodes/{name}/join", "AN"},
    {"POST", "/v1/nodes/{name}/report", "AN"},
    {"POST", "/v1/nodes/{name}/leave", "AN"},
    {"GET", "/v1/nodes/{name}/orders", "AN"},
    {"POST", "/v1/nodes/{name}/drain", "A"},
    {"POST", "/v1/nodes/{name}/undrain", "A"},
    {"DELETE", "/v1/nodes/{name}", "A"},
    {"POST", "/v1/commands", "A"},
    {"GET", "/v1/commands/{name}", "A"},
    {"POST", "/v1/tokens", "A"},
    {"GET", "/v1/tokens", "A"},
    {"POST", "/v1/tokens/{id}/revoke", "A"},
    {"POST", "/v1/tokens/revoke", "A"},
    {"GET", "/v1/whoami", "VUA"},
    {"GET", "/v1/openapi.json", "VUA"},
    {"GET", "/metrics", "VUA"},
    {"GET", "/healthz", "-VUAN"},
    {"GET", "/readyz", "-VUAN"},
};

TEST_F(AccessTest, EachRouteIsOpenToItsRolesAlone) {
  const std::map<char, std::string> tokens = {{'-', ""},
                                              {'V', token_of("ben", Role::kViewer)},
                                              {'U', token_of("ben", Role::kUser)},
                                              {'A', token_of("eva", Role::kAdmin)},
                                              {'N', token_of("node", Role::kNode)}};
  std::vector<std::string> known;
  for (const Expected& expected : kExpected) {
    known.push_back(std::string(expected.method) + " " + expected.path);
    for (const auto& [role, token] : tokens) {
      std::string path = expected.path;
      const size_t place = path.find("{id}");
      const bool of_token = path.find("tokens") != std::string::npos;
      const int64_t id = of_token ? 999 : submit_as("ben");
      if (place != std::string::npos) path.replace(place, 4, std::to_string(id));
      const int status = ask(token, expected.method, path).status;
      const bool open = std::string_view(expected.roles).find(role) != std::string_view::npos;
      const bool refused = status == (role == '-' ? 401 : 403);
      EXPECT_EQ(refused, !open) << role << " " << known.back() << ": " << status;
      EXPECT_TRUE(!open || (status != 401 && status != 403)) << known.back() << ": " << status;
    }
  }
  std::vector<std::string> routes;
  for (const Api::RouteView& route : Api::all_routes())
    routes.push_back(route.method + " " + route.path);
  EXPECT_THAT(known, ::testing::UnorderedElementsAreArray(routes)) << "a route without a row here";
}

TEST_F(AccessTest, WhoseJobItIsCannotBeReadThenNobodyChangesIt) {
  const std::string eva = token_of("eva", Role::kUser);
  const std::string job = "/v1/jobs/" + std::to_string(submit_as("ben"));
  ASSERT_TRUE(service_.database().execute("ALTER TABLE jobs RENAME TO hidden"));
  EXPECT_EQ(ask(eva, "POST", job + "/cancel").status, 507);
  EXPECT_FALSE(service_.coordinator().broken()) << "it was asked all the same";
}

TEST_F(AccessTest, UsersChangeTheirOwnJobsAlone) {
  const std::string ben = token_of("ben", Role::kUser), eva = token_of("eva", Role::kUser),
                    root = token_of("root", Role::kAdmin);
  const std::string job = "/v1/jobs/" + std::to_string(submit_as("ben"));
  for (const char* what : {"/hold", "/release", "/requeue", "/resume", "/cancel"}) {
    const HttpResponse refused = ask(eva, "POST", job + what);
    EXPECT_EQ(refused.status, 403) << what;
    EXPECT_THAT(refused.body, HasSubstr("is ben's; the token is eva's"));
  }
  EXPECT_EQ(ask(eva, "GET", job).status, 200);
  EXPECT_EQ(ask(ben, "POST", job + "/release").status, 200);
  EXPECT_EQ(ask(root, "POST", job + "/cancel").status, 200);
  EXPECT_EQ(ask(eva, "POST", "/v1/jobs/99/cancel").status, 404);
  EXPECT_EQ(
      ask("", "POST", "/v1/jobs/" + std::to_string(submit_as("ben")) + "/cancel", "", true).status,
      200);
}

TEST_F(AccessTest, JobsAreAskedForByTheirOwner) {
  const std::string ben = token_of("ben", Role::kUser);
  submit_as("ben");
  submit_as("eva");
  const json found = json::parse(ask(ben, "GET", "/v1/jobs?owner=eva").body)["jobs"];
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0]["id"], 2);
  EXPECT_EQ(json::parse(ask(ben, "GET", "/v1/whoami").body)["user"], "ben");
}

TEST_F(AccessTest, EventsNameWhoAsked) {
  const std::string ben = token_of("ben", Role::kUser), eva = token_of("eva", Role::kAdmin);
  const std::string job = "/v1/jobs/" + std::to_string(submit_as("ben"));
  ask(ben, "PATCH", job, R"({"priority": 40})");
  ask(eva, "POST", job + "/release");
  ask("", "POST", job + "/hold", "", true);
  service_.end(1, AttemptOutcome::kStopped);
  ask(ben, "POST", job + "/release");
  ask(eva, "POST", job + "/requeue");
  service_.end(1, AttemptOutcome::kStopped);
  ask(eva, "POST", job + "/cancel");
  EXPECT_THAT(
      service_.events(1),
      ::testing::IsSupersetOf({"submitted", "updated by ben: priority 50 → 40", "released by eva",
                               "stopping attempt 1: it is held by ana", "held", "released by ben",
                               "stopping attempt 2: it is requeued by eva",
                               "stopping attempt 3: it is cancelled by eva"}));
  const std::string held = "/v1/jobs/" + std::to_string(submit_as("ben"));
  ask(eva, "POST", held + "/cancel");
  EXPECT_EQ(service_.events(2).back(), "cancelled by eva");
  ask(eva, "POST", "/v1/nodes/here/drain?reason=a%20fan");
  ask(eva, "POST", "/v1/nodes/here/undrain");
  EXPECT_THAT(
      service_.node_events("here"),
      ::testing::ElementsAre("draining, asked by eva: a fan", "drained no more, asked by eva"));
}

TEST_F(AccessTest, UsersGoNoHigherThanTheirPriority) {
  api_.set_user_priority(60);
  const std::string ben = token_of("ben", Role::kUser), root = token_of("root", Role::kAdmin);
  const std::string program = "version: 1\nname: p\nrun: [\"true\"]\n";
  const auto submit = [&](const std::string& token, const std::string& what, bool local = false) {
    return ask(token, "POST", "/v1/jobs?hold=true" + what, program, local);
  };
  const HttpResponse refused = submit(ben, "&priority=61");
  EXPECT_EQ(refused.status, 403);
  EXPECT_EQ(json::parse(refused.body)["error"]["message"],
            "priority 61 is above 60, the highest for the role user: an administrator may give it");
  ASSERT_EQ(submit(ben, "&priority=60").status, 201);
  EXPECT_EQ(submit(root, "&priority=100").status, 201);
  EXPECT_EQ(submit("", "&priority=100", true).status, 201);
  const auto update = [&](const std::string& token, const std::string& changes) {
    return ask(token, "PATCH", "/v1/jobs/1", changes).status;
  };
  EXPECT_EQ(update(ben, R"({"priority": "61"})"), 403);
  EXPECT_EQ(update(ben, R"({"priority": 59})"), 200);
  EXPECT_EQ(update(ben, R"({"priority": 101})"), 422);
  EXPECT_EQ(update(root, R"({"priority": 90})"), 200);
  EXPECT_EQ(update(ben, R"({"queue": "night"})"), 200);
  EXPECT_EQ(update(ben, R"({"priority": 80})"), 403);
  EXPECT_EQ(ask(ben, "PATCH", "/v1/jobs/9", R"({"priority": 80})").status, 404);
}

TEST_F(AccessTest, WhatAProgramsEnvironmentIsSetToIsItsOwnersAndAdministrators) {
  const std::string ben = token_of("ben", Role::kUser), eva = token_of("eva", Role::kUser),
                    viewer = token_of("eva", Role::kViewer), root = token_of("root", Role::kAdmin);
  JobSpec program = testing::job_on(1);
  program.program.command = {"true"};
  program.program.env = {{"WANDB_API_KEY", "hush"}};
  const auto job = service_.submit(program, "", true, "ben");
  const auto shown_to = [&](const std::string& token, bool local = false) {
    const HttpResponse shown = ask(token, "GET", "/v1/jobs/" + std::to_string(*job), "", local);
    return json::parse(shown.body)["job"]["program"]["env"].dump();
  };
  for (const std::string& token : {ben, root})
    EXPECT_EQ(shown_to(token), R"({"WANDB_API_KEY":"hush"})");
  for (const std::string& token : {eva, viewer})
    EXPECT_EQ(shown_to(token), R"({"WANDB_API_KEY":"***"})");
  EXPECT_EQ(shown_to("", true), R"({"WANDB_API_KEY":"hush"})");
  const std::string of_model = "/v1/jobs/" + std::to_string(submit_as("ben"));
  EXPECT_EQ(json::parse(ask(eva, "GET", of_model).body)["job"],
            json::parse(ask(ben, "GET", of_model).body)["job"]);
}

TEST_F(AccessTest, AWrongTokenIsToldSoSlowlyAndNothingElse) {
  const HttpResponse wrong = ask("mtl_1_00", "GET", "/v1/nothing");
  EXPECT_EQ(wrong.status, 401);
  EXPECT_GE(wrong.pause, Nanos(kSecond));
  EXPECT_EQ(json::parse(wrong.body)["error"]["code"], "not_permitted");
  EXPECT_EQ(ask("", "GET", "/v1/jobs").pause, Nanos(0));
}

TEST(Secrets, AreRandomAndHashedAsTheStandardSays) {
  EXPECT_EQ(sha256_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  const auto one = new_secret(), two = new_secret();
  ASSERT_TRUE(one && two);
  EXPECT_EQ(one->size(), 64u);
  EXPECT_NE(*one, *two);
  EXPECT_TRUE(equal_secrets("ab", "ab"));
  EXPECT_FALSE(equal_secrets("ab", "ac"));
  EXPECT_FALSE(equal_secrets("ab", "abc"));
}

}  // namespace
}  // namespace motley
