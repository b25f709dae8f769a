// The description of the API is of the API: its routes, and what they really answer.

#include "scheduler/service/openapi.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "tests/support/temporary_directory.h"
#include "tests/unit/scheduler/service/fake_service.h"

namespace motley {
namespace {

using nlohmann::json;

std::string lower_case(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

class OpenApiTest : public ::testing::Test {
 protected:
  OpenApiTest()
      : service_(testing::fleet_of({"a"})),
        directory_(std::move(*ServiceDirectory::open(temporary_.path() + "/state"))),
        access_({service_.database(), service_.writer(), [] { return int64_t{1'000}; }, "ana"}),
        retention_({service_.coordinator(), service_.database(), service_.writer(), directory_,
                    service_.remover, [] { return int64_t{1'000}; }},
                   Nanos(0)),
        api_(service_.coordinator(), retention_, service_.database(), directory_, access_) {
    std::ofstream(temporary_.path() + "/text.txt") << std::string(5000, 'x');
    document_ = json::parse(ask("GET", "/v1/openapi.json").body);
  }

  HttpResponse ask(const std::string& method, const std::string& target,
                   const std::string& body = "") {
    HttpRequest request;
    request.method = method;
    request.body = body;
    request.local = true;
    EXPECT_TRUE(read_target(target, &request));
    HttpResponse answer;
    api_.handle(std::move(request), [&](HttpResponse response) { answer = std::move(response); });
    service_.run();
    return answer;
  }

  json schema_at(const std::string& reference) const {
    EXPECT_TRUE(reference.starts_with("#/components/schemas/")) << reference;
    return document_.at(json::json_pointer(reference.substr(1)));
  }

  /// Members of an answer against those of its schema, all the way down.
  void expect_fits(const json& value, json schema, const std::string& where) {
    if (schema.contains("$ref")) schema = schema_at(schema["$ref"]);
    json properties = schema.value("properties", json::object());
    std::set<std::string> required;
    for (json part : schema.value("allOf", json::array({schema}))) {
      if (part.contains("$ref")) part = schema_at(part["$ref"]);
      properties.update(part.value("properties", json::object()));
      for (const json& name : part.value("required", json::array())) required.insert(name);
    }
    if (schema.contains("enum")) {
      const json& words = schema["enum"];
      EXPECT_TRUE(std::find(words.begin(), words.end(), value) != words.end()) << where << value;
    }
    if (value.is_array())
      for (const json& each : value) expect_fits(each, schema["items"], where + "[]");
    if (!value.is_object() || properties.empty()) return;
    for (const std::string& name : required)
      EXPECT_TRUE(value.contains(name)) << where << " has no " << name;
    for (const auto& [name, member] : value.items()) {
      EXPECT_TRUE(properties.contains(name)) << where << " has " << name;
      if (properties.contains(name)) expect_fits(member, properties[name], where + "/" + name);
    }
  }

  testing::TemporaryDirectory temporary_;
  testing::FakeService service_;
  ServiceDirectory directory_;
  Access access_;
  Retention retention_;
  Api api_;
  json document_;
};

TEST_F(OpenApiTest, DescribesEveryRouteAndNoOther) {
  EXPECT_EQ(document_["openapi"], "3.1.0");
  std::vector<std::string> described, routes;
  for (const auto& [path, methods] : document_["paths"].items())
    for (const auto& [method, operation] : methods.items()) {
      described.push_back(method + " " + path);
      EXPECT_NE(operation["summary"], "") << described.back();
    }
  for (const Api::RouteView& route : Api::all_routes())
    routes.push_back(lower_case(route.method) + " " + route.path);
  EXPECT_THAT(described, ::testing::UnorderedElementsAreArray(routes));
}

TEST_F(OpenApiTest, EachParameterIsExplained) {
  for (const Api::RouteView& route : Api::all_routes()) {
    const json& operation = document_["paths"][route.path][lower_case(route.method)];
    std::set<std::string> explained;
    for (const json& parameter : operation["parameters"])
      if (parameter["in"] == "query") {
        EXPECT_NE(parameter.value("description", ""), "") << route.path << parameter;
        explained.insert(parameter["name"]);
      }
    for (std::string_view rest = route.parameters; !rest.empty();)
      EXPECT_EQ(explained.erase(std::string(cut_off(&rest, ' '))), 1u) << route.path;
    EXPECT_TRUE(explained.empty()) << route.path;
    EXPECT_EQ(operation.contains("security"), route.least == Role::kNobody) << route.path;
  }
}

TEST_F(OpenApiTest, AnswersAreAsDescribed) {
  constexpr const char* kSubmitted = R"(version: 1
name: tiny
model: {type: gpt, layers: 1, heads: 1, width: 8, context: 8}
data: {text: [text.txt]}
train: {global_batch: 4, steps: 10}
resources: {devices: {count: 1}}
)";
  const std::string source = percent_encoded(temporary_.path() + "/job.yaml");
  const struct {
    const char *method, *path;
    std::string target, body;
  } kAsked[] = {{"post", "/v1/jobs", "/v1/jobs?source=" + source, kSubmitted},
                {"get", "/v1/jobs", "/v1/jobs", ""},
                {"get", "/v1/jobs/{id}", "/v1/jobs/1", ""},
                {"get", "/v1/jobs/{id}/progress", "/v1/jobs/1/progress", ""},
                {"get", "/v1/devices", "/v1/devices", ""},
                {"get", "/v1/jobs/{id}/why", "/v1/jobs/1/why", ""},
                {"get", "/v1/jobs/{id}/logs", "/v1/jobs/1/logs", ""},
                {"post", "/v1/jobs/{id}/hold", "/v1/jobs/1/hold", ""},
                {"get", "/v1/events", "/v1/events", ""},
                {"get", "/v1/fleet", "/v1/fleet", ""},
                {"get", "/v1/nodes", "/v1/nodes", ""},
                {"post", "/v1/nodes/{name}/drain", "/v1/nodes/here/drain?deadline=5m", ""},
                {"post", "/v1/nodes/{name}/undrain", "/v1/nodes/here/undrain", ""},
                {"get", "/v1/nodes/{name}", "/v1/nodes/here", ""},
                {"post", "/v1/tokens", "/v1/tokens", "{}"},
                {"get", "/v1/tokens", "/v1/tokens", ""},
                {"post", "/v1/tokens/{id}/revoke", "/v1/tokens/1/revoke", ""},
                {"get", "/v1/whoami", "/v1/whoami", ""}};
  for (const auto& asked : kAsked) {
    const HttpResponse answer =
        ask(std::string(asked.method) == "get" ? "GET" : "POST", asked.target, asked.body);
    const json& responses = document_["paths"][asked.path][asked.method]["responses"];
    const std::string status = std::to_string(answer.status);
    ASSERT_TRUE(responses.contains(status)) << asked.target << ": " << status << answer.body;
    expect_fits(json::parse(answer.body),
                responses[status]["content"]["application/json"]["schema"], asked.target);
  }
  ask("POST", "/v1/jobs/1/cancel");
  service_.end(1, AttemptOutcome::kStopped);
  const HttpResponse removed = ask("DELETE", "/v1/jobs/1");
  EXPECT_EQ(removed.status, 200) << removed.body;
  expect_fits(json::parse(removed.body), schema_at("#/components/schemas/Removed"), "removed");
  service_.come("n1", {"a"});
  ASSERT_TRUE(service_.leave("n1"));
  const HttpResponse forgotten = ask("DELETE", "/v1/nodes/n1");
  EXPECT_EQ(forgotten.status, 200) << forgotten.body;
  expect_fits(json::parse(forgotten.body), schema_at("#/components/schemas/Forgotten"),
              "forgotten");
  expect_fits(json::parse(ask("GET", "/v1/jobs/9").body), schema_at("#/components/schemas/Error"),
              "an error");
}

}  // namespace
}  // namespace motley
