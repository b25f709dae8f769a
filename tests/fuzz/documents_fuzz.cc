// Documents that processes hand to each other as JSON; the first byte says which.

#include <nlohmann/json.hpp>

#include "core/check.h"
#include "core/json_fields.h"
#include "core/plan.h"
#include "core/profile.h"
#include "core/spec/json.h"
#include "core/spec/reader.h"
#include "scheduler/service/node_json.h"
#include "tests/fuzz/fuzz_target.h"

namespace motley::testing {
namespace {

using nlohmann::json;

const JobSpec& some_job() {
  static const JobSpec job = [] {
    auto parsed = parse_job(repository_text("configs/jobs/quickstart.yaml"), "job.yaml", "/nowhere",
                            {}, JobParts::kWithoutData);
    MOTLEY_CHECK(parsed.has_value(), "the job of the quickstart");
    return *parsed;
  }();
  return job;
}

/// What is read is written as something that is read as the same.
template <class Read>
void expect_round_trip(const json& document, Read read) {
  const auto value = read(document);
  if (!value) return;
  const json written = to_json(*value);
  const auto again = read(json::parse(written.dump()));
  MOTLEY_CHECK(again.has_value(), "what was written cannot be read");
  MOTLEY_CHECK(to_json(*again) == written, "it is read as something else");
}

void fuzz_plan(const json& document) {
  const auto plan = plan_from_json(document);
  if (!plan) return;
  (void)validate(*plan, some_job().model);
  (void)validate_for(*plan, some_job());
}

}  // namespace

void fuzz_one(std::string_view input) {
  const char choice = take_choice(&input);
  const auto document = parse_json(input);
  if (!document) return;
  switch (choice) {
    case 'j':
      return expect_round_trip(*document, [](const json& each) { return job_from_json(each); });
    case 'f':
      return expect_round_trip(*document, [](const json& each) { return fleet_from_json(each); });
    case 'n':
      (void)node_join_from_json("n1", *document);
      return;
    case 'r':
      (void)agent_report_from_json("n1", *document);
      return;
    case 'a':
      (void)agent_answer_from_json(*document);
      return;
    case 'c':
      (void)node_command_from_json(*document);
      return;
    default:
      return fuzz_plan(*document);
  }
}

std::vector<std::string> fuzz_seeds() {
  std::vector<std::string> seeds = {"j" + to_json(some_job()).dump()};
  for (const std::string& plan : repository_texts("tests/golden/planner", ".plan.json"))
    seeds.push_back("p" + plan);
  for (const std::string& text : repository_texts("configs/fleets", ".yaml"))
    if (const auto fleet = parse_fleet(text, "fleet.yaml")) {
      seeds.push_back("f" + to_json(*fleet).dump());
      seeds.push_back("n" + to_json(NodeJoin{"n1", "s", *fleet, {{"rack", "7"}}}).dump());
    }
  AgentReport report;
  report.life = {"n1", "s", {{7, Epoch(2)}}};
  report.pieces = {{"c", 0, "out", "text", 0}, {"c", 1, "end", "", 255}};
  seeds.push_back("r" + to_json(report).dump());
  seeds.push_back("a" + to_json(AgentAnswer{{{7, Epoch(2)}}, {{{"c", 2}}, {"d"}}}).dump());
  json command = to_json(NodeCommand{"c", {7, Epoch(2)}, "n1", "true", "", ""});
  command["key"] = "k";
  seeds.push_back("c" + command.dump());
  return seeds;
}

}  // namespace motley::testing
