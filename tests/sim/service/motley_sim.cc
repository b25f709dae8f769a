// motley-sim: the job service under faults, from seeds (service_world.h). A seed that fails says
// what must never be and what happened before; the same seed fails again.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <random>

#include "scheduler/policies/policy.h"
#include "tests/sim/service/service_world.h"

namespace {

/// False where something was violated.
bool simulate(const motley::testing::WorldOptions& options, motley::testing::WorldReport* sum) {
  motley::testing::ServiceWorld world(options);
  try {
    const motley::testing::WorldReport report = world.run();
    sum->submitted += report.submitted;
    sum->asked += report.asked;
    sum->updated += report.updated;
    sum->attempts += report.attempts;
    sum->most_attempts = std::max(sum->most_attempts, report.most_attempts);
    sum->coordinator_crashes += report.coordinator_crashes;
    sum->nodes_lost += report.nodes_lost;
    sum->seconds += report.seconds;
    return true;
  } catch (const motley::testing::Violation& violation) {
    std::fprintf(stderr, "%sVIOLATION: %s\nagain: motley-sim --seed %u --policy %s\n",
                 world.trace().c_str(), violation.text.c_str(), options.seed,
                 options.policy.c_str());
    return false;
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("The job service under faults, in virtual time, from seeds");
  motley::testing::WorldOptions options;
  uint32_t seeds = 1;
  bool fresh = false;
  const auto* policy =
      app.add_option("--policy", options.policy, "one of motley serve's (default: each in turn)");
  app.add_option("--seed", options.seed, "the first seed");
  app.add_option("--seeds", seeds, "how many, one after the other");
  app.add_flag("--new", fresh, "seeds that differ from run to run");
  app.add_option("--seconds", options.troubled_seconds, "virtual seconds in which things go wrong");
  CLI11_PARSE(app, argc, argv);
  if (fresh) options.seed = std::random_device()();
  const auto policies = motley::policy_names();
  motley::testing::WorldReport sum;
  int failed = 0;
  for (uint32_t i = 0; i < seeds; ++i, ++options.seed) {
    if (policy->count() == 0)
      options.policy = std::string(policies[options.seed % policies.size()]);
    failed += simulate(options, &sum) ? 0 : 1;
  }
  std::printf(
      "%u seeds, %d failed: %d submissions, %d requests and %d updates acknowledged, %d attempts "
      "(of one job "
      "at most %d), the "
      "coordinator killed %d times, "
      "nodes lost %d times, %.1f h of the service's time\n",
      seeds, failed, sum.submitted, sum.asked, sum.updated, sum.attempts, sum.most_attempts,
      sum.coordinator_crashes, sum.nodes_lost, sum.seconds / 3600);
  return failed == 0 ? 0 : 1;
}
