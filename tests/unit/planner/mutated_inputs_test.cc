// Profiles, fleets, jobs and plans that were cut off or changed at random: readers and planner say
// what is wrong, or plan. The same mutations every time.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "core/json_file.h"
#include "core/spec/reader.h"
#include "planner/costs/cost_model.h"
#include "planner/search_forms.h"
#include "tests/support/layered_case.h"
#include "tests/support/paths.h"
#include "tests/support/random_cases.h"

namespace motley {
namespace {

using testing::add_layered;
using testing::PlanningCase;

constexpr int kMutations = testing::random_cases(300);
/// What the planner may be asked for here: it is to end within seconds even in Debug builds.
constexpr int kMostSamples = 512;
constexpr int kMostBlocks = 24;

class Mutator {
 public:
  explicit Mutator(unsigned seed) : random_(seed) {}

  size_t below(size_t count) { return random_() % count; }

  /// One or two changes of the text.
  std::string text(std::string text) {
    for (size_t times = 1 + below(2); times > 0 && !text.empty(); --times) {
      const size_t place = below(text.size());
      const size_t length = std::min(text.size() - place, 1 + below(20));
      switch (below(6)) {
        case 0:
          text.resize(place);
          break;
        case 1:
          text.erase(place, length);
          break;
        case 2:
          text.insert(place, text.substr(below(text.size()), length));
          break;
        case 3:
          text[place] = static_cast<char>(below(256));
          break;
        default:
          change_number(place, &text);
      }
    }
    return text;
  }

  /// One or two values, somewhere, become others, or go.
  nlohmann::json json(nlohmann::json document) {
    for (size_t times = 1 + below(2); times > 0; --times) change(&document);
    return document;
  }

 private:
  void change_number(size_t from, std::string* text) {
    static const char* const kNumbers[] = {
        "0", "-1", "1e308", "-0.5", "2147483648", "9223372036854775807", "nan", "null", "1e-320"};
    const size_t begin = text->find_first_of("0123456789", from);
    if (begin == std::string::npos) return;
    const size_t end = text->find_first_not_of("0123456789.e-", begin);
    text->replace(begin, (end == std::string::npos ? text->size() : end) - begin,
                  kNumbers[below(std::size(kNumbers))]);
  }

  void change(nlohmann::json* value) {
    while (value->is_structured() && !value->empty() && below(12) > 0) {
      auto member = value->begin();
      std::advance(member, static_cast<std::ptrdiff_t>(below(value->size())));
      if (below(20) == 0) {
        value->erase(member);
        return;
      }
      value = &*member;
    }
    static const nlohmann::json kOthers[] = {nullptr,
                                             true,
                                             0,
                                             -1,
                                             1,
                                             7,
                                             1000,
                                             2147483647,
                                             -2147483648LL,
                                             9223372036854775807LL,
                                             1e308,
                                             -1e-9,
                                             0.5,
                                             "",
                                             "block",
                                             "fp64",
                                             nlohmann::json::array(),
                                             nlohmann::json::object()};
    *value = kOthers[below(std::size(kOthers))];
  }

  std::mt19937 random_;
};

/// Two hosts, four devices, one of which holds the model.
PlanningCase sound_case() {
  PlanningCase problem(16);
  problem.job.model = {"gpt", 4, 4, 128, 64, 256};
  add_layered({.host = "one", .type = "a", .per_sample = 0.004, .memory_mib = 60}, &problem);
  add_layered({.host = "one", .type = "b", .per_sample = 0.009, .memory_mib = 14}, &problem);
  add_layered({.host = "two", .type = "b", .per_sample = 0.009, .memory_mib = 14}, &problem);
  add_layered({.host = "two", .type = "c", .per_sample = 0.02, .memory_mib = 11}, &problem);
  for (DeviceProfile& device : problem.profile.devices)
    if (device.memory.empty()) device.memory.push_back({1, Bytes(1 << 30), Bytes(1 << 20)});
  problem.add_link("one", "two", 1e-4, 1e9).add_reduction(2, 0.004, {"one"});
  return problem;
}

/// A plan is sound, an error says something.
void expect_plan_or_error(const PlanningCase& problem) {
  const JobSpec& job = problem.job;
  if (job.train.global_batch > kMostSamples || job.model.layers > kMostBlocks) return;
  const Result<Plan> plan =
      search_all_forms(problem.request(), testing::layer_bytes_counter(problem));
  EXPECT_TRUE(plan ? validate(*plan, job.model).has_value() : !plan.error().message.empty());
}

void read_profile(const std::string& text, int* read) {
  const auto json = parse_json_file(text, "profile.json", ErrorCode::kInvalidSpec);
  if (!json) return;
  Result<Profile> profile = profile_from_json(*json);
  if (!profile) return;
  ++*read;
  PlanningCase problem = sound_case();
  problem.profile = std::move(*profile);
  expect_plan_or_error(problem);
}

TEST(MutatedInputs, OfProfiles) {
  const nlohmann::json sound = to_json(sound_case().profile);
  const Result<Profile> unchanged = profile_from_json(sound);
  ASSERT_TRUE(unchanged) << unchanged.error().message;
  int read = 0;
  for (unsigned seed = 0; seed < kMutations; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Mutator mutator(seed);
    read_profile(mutator.text(sound.dump()), &read);
    read_profile(mutator.json(sound).dump(), &read);
  }
  EXPECT_GT(read, kMutations / 30) << "some were still profiles";
}

void read_plan(const std::string& text, const PlanningCase& problem, int* read) {
  const auto json = parse_json_file(text, "plan.json", ErrorCode::kInvalidSpec);
  if (!json) return;
  Result<Plan> plan = plan_from_json(*json);
  if (!plan || !validate_for(*plan, problem.job)) return;
  ++*read;
  const Result<Unit> predicted = predict(problem.request(), &*plan);
  EXPECT_TRUE(predicted || !predicted.error().message.empty());
}

TEST(MutatedInputs, OfPlans) {
  const PlanningCase problem = sound_case();
  const nlohmann::json sound =
      to_json(*search_all_forms(problem.request(), testing::layer_bytes_counter(problem)));
  int read = 0;
  for (unsigned seed = 0; seed < 4 * kMutations; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Mutator mutator(seed);
    read_plan(mutator.text(sound.dump()), problem, &read);
    read_plan(mutator.json(sound).dump(), problem, &read);
  }
  EXPECT_GT(read, kMutations / 60) << "a few were still plans";
}

constexpr const char* kFleet = R"(version: 1
pace: {clock: virtual, flops: 2.0e9}
nodes:
  - host: one
    slots: 2
    devices:
      - {kind: cpu, type: a, threads: 1, paced: {speed: 1, memory: 64MB, overhead: 200us}}
      - {kind: cpu, type: b, threads: 1, price: 0.5, paced: {speed: 0.4, memory: 11MB}}
  - host: two
    slots: 2
    devices:
      - {kind: cpu, type: b, threads: 1, paced: {speed: 0.4, memory: 11MB, overhead: 200us}}
      - {kind: cpu, type: c, threads: 1}
)";

TEST(MutatedInputs, OfFleets) {
  const Result<FleetSpec> unchanged = parse_fleet(kFleet, "fleet.yaml");
  ASSERT_TRUE(unchanged) << unchanged.error().message;
  int read = 0;
  for (unsigned seed = 0; seed < 4 * kMutations; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Result<FleetSpec> fleet = parse_fleet(Mutator(seed).text(kFleet), "fleet.yaml");
    if (!fleet) continue;
    ++read;
    PlanningCase problem = sound_case();
    problem.fleet = std::move(*fleet);
    expect_plan_or_error(problem);
  }
  EXPECT_GT(read, kMutations / 30) << "some were still fleets";
}

constexpr const char* kJob = R"(version: 1
name: mutated
model: {type: gpt, layers: 4, heads: 4, width: 128, context: 64, vocab: 256}
data:
  text: [README.md]
  tokenizer: bytes
  held_out: 0.05
resources:
  devices: {count: 1..4}
train:
  global_batch: 16
  grain: 2
  steps: 20
  optimizer: {type: adamw, lr: 1.0e-3, betas: [0.9, 0.95], weight_decay: 0.1, clip: 1.0}
  schedule: {type: cosine, warmup: 5, min_lr: 1.0e-4}
  numerics: fast
  seed: 1337
checkpoint: {every: 20, keep: 2}
)";

TEST(MutatedInputs, OfJobs) {
  const std::string directory = testing::source_dir().string();
  ASSERT_TRUE(parse_job(kJob, "job.yaml", directory));
  int read = 0;
  for (unsigned seed = 0; seed < 4 * kMutations; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Result<JobSpec> job = parse_job(Mutator(seed).text(kJob), "job.yaml", directory);
    if (!job) continue;
    ++read;
    PlanningCase problem = sound_case();
    problem.job = std::move(*job);
    expect_plan_or_error(problem);
  }
  EXPECT_GT(read, kMutations / 30) << "some were still jobs";
}

}  // namespace
}  // namespace motley
