#include "planner/grid/grid_reasons.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "planner/grid/grid_plan_json.h"
#include "planner/grid/grid_search.h"

namespace motley {
namespace {

constexpr int kBatch = 8;
constexpr size_t kLayers = 4;

ForeignTimes times_of(int micro_batch, int tensor, double seconds) {
  const std::vector<double> each(kLayers, seconds);
  return {micro_batch, tensor, each, each, each};
}

/// Four layers of 100 bytes and 10 for each sample in flight; "quick" and "slow", linked.
ForeignProfile four_layers(Bytes memory = Bytes(1000)) {
  ForeignProfile profile;
  profile.optimizer_bytes_per_parameter = 1;
  ForeignLayer layer;
  layer.parameters[1] = 100;
  layer.activation_bytes_per_sample[1] = 10;
  layer.output_bytes_per_sample = 1;
  profile.layers.assign(kLayers, layer);
  profile.devices["quick"] = {memory, 0, {times_of(1, 1, 0.1)}};
  profile.devices["slow"] = {memory, 0, {times_of(1, 1, 0.3)}};
  for (const char* from : {"quick", "slow"})
    for (const char* to : {"quick", "slow"})
      profile.links.push_back({from, to, 1, 1, ForeignLine{0, 1e9}});
  return profile;
}

/// Devices of each type on a host, with the memory that the profile says.
ForeignCosts costs_of(const ForeignProfile& profile, int quick, int slow) {
  return ForeignCosts(profile,
                      {{"quick", profile.devices.at("quick").memory, {quick}},
                       {"slow", profile.devices.at("slow").memory, {slow}}},
                      kBatch, 0.05);
}

std::string said_of(const ForeignProfile& profile, int quick = 1, int slow = 1) {
  const ForeignCosts costs = costs_of(profile, quick, slow);
  EXPECT_FALSE(search_grid(costs, costs.groups()));
  return why_no_grid(costs);
}

std::string why_of(const ForeignProfile& profile, GridOrigin origin, const std::string& type) {
  const ForeignCosts costs = costs_of(profile, 2, 1);
  const Result<GridResult> found = search_grid(costs, costs.groups());
  if (!found) return found.error().message;
  for (const GridLeftOut& left : left_out_of(found->plan, costs, origin))
    if (left.type == type) return std::to_string(left.devices) + ": " + left.why;
  return "";
}

TEST(GridReasons, ALayerThatNoDeviceHoldsIsNamedWithWhatItNeeds) {
  ForeignProfile profile = four_layers();
  profile.layers[2].parameters[1] = 5000;
  EXPECT_EQ(said_of(profile),
            "no device holds layer 2: it needs at least 4.89 KiB, at micro-batch 1 and tensor "
            "degree 1, and of quick 950 B may be used");
}

TEST(GridReasons, AModelThatAllDevicesTogetherDoNotHoldIsToldWithBothSizes) {
  ForeignProfile profile = four_layers(Bytes(200));
  EXPECT_EQ(said_of(profile),
            "the devices do not hold the model: however it is cut it needs at least 440 B, at "
            "micro-batch 1, and of all devices together 380 B may be used");
}

TEST(GridReasons, ALinkThatEveryPipelineNeedsIsNamed) {
  ForeignProfile profile = four_layers(Bytes(300));
  EXPECT_TRUE(search_grid(costs_of(profile, 1, 1), costs_of(profile, 1, 1).groups()));
  std::erase_if(profile.links, [](const ForeignLink& link) { return link.from != link.to; });
  const std::string said = said_of(profile);
  EXPECT_NE(said.find("links that the profile lacks, such as the one between a stage on 1 of "),
            std::string::npos)
      << said;
}

TEST(GridReasons, TypesThatShareNoMicroBatchAreNamed) {
  ForeignProfile profile = four_layers(Bytes(240));
  profile.devices["slow"].profiles[0].micro_batch = 2;
  const std::string said = said_of(profile, 2, 1);
  EXPECT_NE(said.find("no micro-batch was measured of all of quick, slow"), std::string::npos)
      << said;
}

TEST(GridReasons, MicroBatchesInFlightMayBeTooMany) {
  ForeignProfile profile = four_layers(Bytes(240));
  EXPECT_EQ(said_of(profile),
            "no cut into stages fits the memory of these devices with the micro-batches that are "
            "in flight at once");
}

TEST(GridReasons, WithoutTimesThereIsNoPlan) {
  ForeignProfile profile = four_layers();
  for (const char* type : {"quick", "slow"}) profile.devices[type].profiles.clear();
  EXPECT_EQ(said_of(profile), "the profile has no times of any type in the fleet (quick, slow)");
}

TEST(GridReasons, DevicesThatAreLeftOutHaveTheirReason) {
  const auto slow = [](const ForeignProfile& profile, GridOrigin origin) {
    return why_of(profile, origin, "slow");
  };
  ForeignProfile profile = four_layers();
  EXPECT_EQ(slow(profile, GridOrigin::kProvedBest), "1: no plan with more of them is quicker");
  EXPECT_EQ(slow(profile, GridOrigin::kFound), "1: no quicker plan with more of them was found");
  EXPECT_EQ(slow(profile, GridOrigin::kGiven), "1: not in the plan that was given");
  profile.devices["slow"].memory = Bytes(50);
  EXPECT_EQ(slow(profile, GridOrigin::kFound), "1: does not hold a layer at micro-batch 1");
  profile = four_layers();
  std::erase_if(profile.links, [](const ForeignLink& link) { return link.from != link.to; });
  EXPECT_EQ(slow(profile, GridOrigin::kFound), "1: the profile has no link to it");
  profile = four_layers();
  profile.devices["slow"].profiles[0].micro_batch = 2;
  EXPECT_EQ(slow(profile, GridOrigin::kFound), "1: not measured at micro-batch 1");
  profile.devices["slow"].profiles.clear();
  EXPECT_EQ(slow(profile, GridOrigin::kFound), "1: the profile has no times of it");
  profile = four_layers();
  std::erase_if(profile.links, [](const ForeignLink& link) { return link.from == "quick"; });
  EXPECT_EQ(why_of(profile, GridOrigin::kProvedBest, "quick").substr(0, 2), "1:");
}

TEST(GridReasons, GivenPlansAreToldWhatIsWrongWithThem) {
  ForeignProfile profile = four_layers();
  std::erase_if(profile.links, [](const ForeignLink& link) { return link.from != link.to; });
  profile.links[0].speed = ForeignLink::Polynomial{1, 1};  // 1 GB/s at 1 MB, 0 at 0.5 MB
  const ForeignCosts costs = costs_of(profile, 2, 1);
  const nlohmann::json one = {{"first_layer", 0}, {"last_layer", 3}, {"type", "quick"}};
  const auto said = [&](const nlohmann::json& changes) {
    nlohmann::json plan = {{"version", 1},
                           {"micro_batch", 1},
                           {"replicas", 1},
                           {"stages", nlohmann::json::array({one})}};
    plan.update(changes);
    const Result<GridPlan> read = read_grid_plan(plan, costs);
    return read ? "" : read.error().message;
  };
  const auto stages = [&](const char* key, const nlohmann::json& value) {
    nlohmann::json stage = one;
    stage[key] = value;
    return nlohmann::json{{"stages", nlohmann::json::array({stage})}};
  };
  EXPECT_EQ(said({{"notes", "by hand"}, {"search", 1}, {"left_out_why", 1}}), "");
  EXPECT_EQ(said({{"replica", 2}}), "/: unknown key 'replica' (did you mean 'replicas'?)");
  EXPECT_EQ(said(stages("tensr", 1)), "/stages/0: unknown key 'tensr' (did you mean 'tensor'?)");
  EXPECT_EQ(said(stages("type", "quack")),
            "/stages/0/type: the fleet has no device of it (did you mean 'quick'?)");
  EXPECT_EQ(said(stages("memory", 7)), "/stages/0/type: the fleet has none of this memory");
  EXPECT_EQ(said({{"replicas", 2}}),
            "/stages: the profile lacks a link that they need: the one between 1 of quick and "
            "another for sums of gradients in messages of 800 B, at which its bandwidth is not "
            "above 0");
  nlohmann::json both = nlohmann::json::array({one, one});
  both[0]["last_layer"] = 1;
  both[1]["first_layer"] = 2;
  both[1]["type"] = "slow";
  EXPECT_EQ(said({{"stages", both}}),
            "/stages: the profile lacks a link that they need: the one between a stage on 1 of "
            "quick and one on 1 of slow");
}

TEST(GridReasons, AStageTooLargeIsToldWithBothSizes) {
  ForeignProfile profile = four_layers(Bytes(300));
  const ForeignCosts costs = costs_of(profile, 1, 1);
  const GridPlan plan{1, 1, {{0, 3, {0, 1}}, {3, 4, {1, 1}}}};
  EXPECT_EQ(lacking_memory(plan, 1, costs), "");
  EXPECT_EQ(lacking_memory(plan, 0, costs),
            "does not fit the memory of its devices: it needs 360 B of each, and 285 B may be "
            "used");
}

}  // namespace
}  // namespace motley
