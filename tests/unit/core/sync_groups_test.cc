#include "core/sync_groups.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace motley {
namespace {

using Groups = std::vector<std::vector<std::string>>;

const ModelSpec kOneBlock{"gpt", 1, 2, 8, 16, 32};  // layers 0 to 2

ReplicaPlan whole_on(int rank, int grains) { return {{{0, 2, {Rank(rank)}, {1.0}}}, 2, grains}; }

/// 15 samples in grains of two, the last one short; replicas in another order than their ranks.
Plan plan_on(const std::vector<std::string>& hosts) {
  Plan plan;
  plan.global_batch = 15;
  plan.grain = 2;
  for (size_t i = 0; i < hosts.size(); ++i)
    plan.ranks.push_back({hosts[i] + "/" + std::to_string(i), hosts[i], "card"});
  plan.replicas = {whole_on(2, 1), whole_on(0, 2), whole_on(3, 4), whole_on(1, 1)};
  plan.sync.across = 4;
  plan.owners = even_ownership(plan, kOneBlock);
  return plan;
}

std::string fault_of(const Plan& plan) {
  const auto valid = validate(plan, kOneBlock);
  return valid ? "" : valid.error().message;
}

TEST(SyncGroups, AreHostsUnlessFastLinksOrReplicasJoinThem) {
  Plan plan = plan_on({"a", "a", "b", "c"});
  EXPECT_EQ(sync_groups(plan), (Groups{{"a"}, {"b"}, {"c"}}));
  plan.links = {{{"a", "b"}, 1e-4, kSlowLink},
                {{"a", "c"}, 1e-4, 2 * kSlowLink},
                {{"b", "elsewhere"}, 1e-4, 1e10},
                {{"c", "elsewhere"}, 1e-4, 1e10}};
  EXPECT_EQ(sync_groups(plan), (Groups{{"a", "c"}, {"b"}}));
  plan.replicas[3] = {{{0, 1, {Rank(1)}, {1.0}}, {2, 2, {Rank(2)}, {1.0}}}, 2, 1};
  EXPECT_EQ(sync_groups(plan), (Groups{{"a", "b", "c"}}));
  plan.sync.groups = {{"b", "c"}, {"a"}};
  EXPECT_EQ(sync_groups(plan), plan.sync.groups);
}

TEST(SyncGroups, TrainApartOnlyIfTheyDoNotMeetInEachStep) {
  Plan plan = plan_on({"a", "a", "b", "c"});
  EXPECT_TRUE(trains_apart(plan));
  EXPECT_EQ(group_of_ranks(plan), (std::vector<int>{0, 0, 1, 2}));
  plan.sync.across = 1;
  EXPECT_FALSE(trains_apart(plan));
  EXPECT_EQ(group_of_ranks(plan), (std::vector<int>{0, 0, 0, 0}));
  const GroupPart part = group_part(plan, kOneBlock, Rank(2));
  EXPECT_EQ(part.plan.world_size(), 4);
  EXPECT_EQ(part.self, Rank(2));
  EXPECT_EQ(part.share, 1);
  EXPECT_FALSE(trains_apart(plan_on({"a", "a", "a", "a"})));
}

TEST(SyncGroups, EachDoItsPartAsAPlanOfItsOwn) {
  Plan plan = plan_on({"a", "b", "b", "b"});
  plan.links = {{{"a", "b"}, 1e-4, 1e6}};
  const GroupPart part = group_part(plan, kOneBlock, Rank(3));
  EXPECT_EQ(part.ranks, (std::vector<int>{1, 2, 3}));
  EXPECT_EQ(part.self, Rank(2));
  EXPECT_EQ(part.plan.ranks[2].device, "b/3");
  ASSERT_EQ(part.plan.replicas.size(), 3U);
  EXPECT_EQ(part.plan.replicas[0].stages[0].ranks[0], Rank(1));
  EXPECT_EQ(part.plan.global_batch, 11);  // with the short grain
  EXPECT_DOUBLE_EQ(part.share, 11.0 / 15);
  EXPECT_TRUE(part.plan.links.empty());
  EXPECT_FALSE(trains_apart(part.plan));
  EXPECT_TRUE(validate(part.plan, kOneBlock));
  EXPECT_EQ(group_part(plan, kOneBlock, Rank(0)).plan.global_batch, 4);
}

TEST(SyncGroups, ThatDoNotFitThePlanAreRefused) {
  const auto with = [](const Groups& groups) {
    Plan plan = plan_on({"a", "a", "b", "c"});
    plan.sync.groups = groups;
    return plan;
  };
  EXPECT_EQ(fault_of(with({{"a"}, {"b", "c"}})), "");
  EXPECT_EQ(fault_of(with({{"a"}, {}, {"b", "c"}})), "/sync/groups/1: the group has no hosts");
  EXPECT_EQ(fault_of(with({{"a"}, {"b", "d"}})), "/sync/groups/1: the plan has no rank on host d");
  EXPECT_EQ(fault_of(with({{"a"}, {"b", "c", "a"}})), "/sync/groups/1: host a is named twice");
  EXPECT_EQ(fault_of(with({{"a"}, {"b"}})), "/sync/groups: host c is in none");
  Plan spread = with({{"a", "c"}, {"b"}});
  spread.replicas[0] = {{{0, 1, {Rank(2)}, {1.0}}, {2, 2, {Rank(1)}, {1.0}}}, 2, 2};
  spread.replicas.pop_back();
  EXPECT_EQ(fault_of(spread),
            "/replicas/0: hosts b and a are in groups that average every 4 steps: a replica lies "
            "within one");
}

TEST(SyncGroups, ContradictWhatNeedsAllRanksInEachStep) {
  Plan plan = plan_on({"a", "a", "b", "c"});
  plan.compression.codec.kind = CodecKind::kInt8;
  EXPECT_EQ(fault_of(plan), "/compression/codec: groups that average send each other no gradients");
  plan.compression = {};
  plan.shard_optimizer = true;
  EXPECT_EQ(fault_of(plan), "/shard_optimizer: groups that average hold all optimizer state each");
  plan.shard_optimizer = false;
  plan.numerics = Numerics::kExact;
  EXPECT_EQ(fault_of(plan), "/sync/across: numerics: exact excludes averages every so many steps");
  plan.sync.across = 1;
  EXPECT_EQ(fault_of(plan), "");
}

TEST(SyncGroups, AreInThePlanWhereThereAreAny) {
  Plan plan = plan_on({"a", "a", "b", "c"});
  plan.sync.groups = {{"a"}, {"b", "c"}};
  const auto document = to_json(plan);
  EXPECT_EQ(plan_from_json(document)->sync, plan.sync);
  const std::string id = plan_id(plan);
  plan.sync.across = 5;
  EXPECT_NE(plan_id(plan), id);
  plan.sync = {};
  EXPECT_FALSE(to_json(plan).contains("sync"));
  const auto fault = [&](const nlohmann::json& sync) {
    auto spoilt = document;
    spoilt["sync"] = sync;
    const auto read = plan_from_json(spoilt);
    return read ? "" : read.error().message;
  };
  EXPECT_EQ(fault({{"across", 0}}), "/sync/across: expected 1 to 1000000, found 0");
  EXPECT_EQ(fault({{"across", 2}, {"groups", {"a"}}}),
            "/sync/groups: expected a list of lists of hosts");
  EXPECT_EQ(fault({{"across", 2}, {"gruops", {{"a"}}}}),
            "/sync: unknown key 'gruops' (did you mean 'groups'?)");
}

}  // namespace
}  // namespace motley
