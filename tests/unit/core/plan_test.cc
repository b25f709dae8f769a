#include "core/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "core/hash.h"
#include "core/ownership.h"
#include "core/spec/profile_key.h"
#include "tests/support/json_members.h"

namespace motley {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;

const ModelSpec kModel{"gpt", 1, 2, 8, 16, 32};  // layers 0 to 2

/// Nine samples in grains of two, the last one short: one device holds the model whole, two hold it
/// in stages.
Plan valid_plan() {
  Plan plan;
  plan.job_key = "b1946ac92492d2347c6235b4d2611184";
  plan.global_batch = 9;
  plan.grain = 2;
  plan.ranks = {{"a/0", "a", "A100"}, {"b/0", "b", "old card"}, {"b/1", "b", "old card"}};
  plan.replicas = {{{{0, 2, {Rank(0)}, {1.0}}}, 4, 3},
                   {{{0, 0, {Rank(1)}, {1.0}}, {1, 2, {Rank(2)}, {1.0}}}, 2, 2}};
  plan.owners = even_ownership(plan, kModel);
  plan.prediction = {.step_seconds = 0.5,
                     .compute_seconds = 0.4,
                     .bubble_seconds = 0.01,
                     .communication_seconds = 0.03,
                     .update_seconds = 0.06,
                     .uncertainty = 0.02,
                     .samples_per_second = 18,
                     .solo_sum_samples_per_second = 20,
                     .integer_bound_efficiency = 0.95,
                     .cost_per_hour = 1.5,
                     .ranks = {{Rank(0), 0.1, 0.05, 0.2, Bytes(100), Bytes(200), Bytes(30), 8},
                               {Rank(1), 0.4, 0.06, 0, Bytes(150), Bytes(200), Bytes(0), 6}}};
  plan.search = {.space = "all",
                 .step_seconds = 0.5,
                 .lower_bound_step_seconds = 0.5,
                 .nodes = 39,
                 .rejected = {{"grain 3", "shares cannot be cut as finely", 0.6}}};
  plan.left_out = {{"c/0", "memory"}};
  plan.id = plan_id(plan);
  return plan;
}

std::string try_plan(const json& document) {
  const Result<Plan> plan = plan_from_json(document);
  return plan ? "" : plan.error().to_string();
}

// --- the document ---

TEST(PlanJson, ComesBackWhole) {
  const json document = to_json(valid_plan());
  const Result<Plan> back = plan_from_json(json::parse(document.dump()));
  ASSERT_TRUE(back) << back.error().to_string();
  EXPECT_EQ(to_json(*back), document);
  EXPECT_EQ(back->id, valid_plan().id);
  EXPECT_EQ(back->replicas[1].stages[1].ranks, std::vector<Rank>{Rank(2)});
  EXPECT_EQ(back->owners.back().slice, valid_plan().owners.back().slice);
  EXPECT_EQ(back->search.rejected.size(), 1U);
}

TEST(PlanForJob, IsRefusedWithTheReasonByAnother) {
  JobSpec job;
  job.model = kModel;
  job.train.global_batch = 9;
  Plan plan = valid_plan();
  plan.job_key = profile_job_key(job);
  EXPECT_TRUE(validate_for(plan, job));
  const auto why = [&](const std::function<void(JobSpec&)>& edit) {
    JobSpec other = job;
    edit(other);
    const auto valid = validate_for(plan, other);
    return valid ? "" : valid.error().message;
  };
  EXPECT_EQ(why([](JobSpec& other) { other.model.layers = 2; }),
            "/job_key: the plan is for another model, precision or optimizer");
  EXPECT_EQ(why([](JobSpec& other) { other.train.global_batch = 8; }),
            "/global_batch: the plan is for 9 samples a step, the job has train.global_batch 8");
  EXPECT_EQ(why([](JobSpec& other) { other.train.grain = 3; }),
            "/grain: the plan has grains of 2, the job has train.grain 3");
  EXPECT_EQ(why([](JobSpec& other) { other.source = other.name = "elsewhere"; }), "");
}

TEST(PlanJson, EveryMemberIsNeededAndTyped) {
  testing::expect_members_are_needed(
      to_json(valid_plan()), try_plan,
      {"id", "host_optimizer", "recompute", "shard_optimizer", "job_key", "host", "type", "shares",
       "precision", "owners", "reduction", "host_memory", "links", "compression",
       "below_bytes_per_second"});
  testing::expect_members_are_typed(to_json(valid_plan()), try_plan);
}

TEST(PlanJson, WrittenByHandNeedsNoPrediction) {
  json document = to_json(valid_plan());
  for (const char* member : {"prediction", "search", "left_out", "id"}) document.erase(member);
  const Result<Plan> plan = plan_from_json(document);
  ASSERT_TRUE(plan) << plan.error().to_string();
  EXPECT_TRUE(validate(*plan, kModel));
  EXPECT_EQ(plan->prediction.slowest(), nullptr);
}

TEST(PlanJson, MayCarryJobFleetAndWallTime) {
  json document = to_json(valid_plan());
  document["job"] = document["fleet"] = "whatever: their readers check them";
  document["search"]["wall_seconds"] = 0.1;
  EXPECT_EQ(try_plan(document), "");
  EXPECT_EQ(plan_from_json(document)->id, valid_plan().id);
}

TEST(PlanJson, NamesThePointerOfAFault) {
  using Pointer = json::json_pointer;
  const std::tuple<const char*, json, const char*> cases[] = {
      {"/version", 0, "/version: this program reads version 1, found 0"},
      {"/version", 2, "/version: this program reads version 1, found 2"},
      {"/numerics", "exakt", "/numerics: unknown word 'exakt'"},
      {"/global_batch", 0, "/global_batch: expected 1 to 16777216, found 0"},
      {"/global_batch", 1 << 30 | 1, "/global_batch: expected 1 to 16777216, found 1073741825"},
      {"/grain", -1, "/grain: expected 1 to 16777216, found -1"},
      {"/ranks/1/tpye", "x", "/ranks/1: unknown key 'tpye' (did you mean 'type'?)"},
      {"/ranks", 3, "/ranks: expected an array, found a number"},
      {"/replicas/0/grains", 0, "/replicas/0/grains: expected 1 to 16777216, found 0"},
      {"/replicas/0/micro_batch", 2.5,
       "/replicas/0/micro_batch: expected an integer of 32 bits, found 2.5"},
      {"/replicas/1/stages/0/precision", "auto",
       "/replicas/1/stages/0/precision: a plan has decided it"},
      {"/replicas/1/stages/0/precision", "int3",
       "/replicas/1/stages/0/precision: unknown word 'int3'"},
      {"/replicas/1/stages/0/first_layer", -1,
       "/replicas/1/stages/0/first_layer: expected 0 to 4097, found -1"},
      {"/replicas/1/stages/0/ranks/0", -1, "/replicas/1/stages/0/ranks: no such rank"},
      {"/replicas/1/stages/0/ranks/0", 1 << 21, "/replicas/1/stages/0/ranks: no such rank"},
      {"/replicas/1/stages/0/shares/0", "all",
       "/replicas/1/stages/0/shares/0: expected a number, found a string"},
      {"/owners/0/rank", 1LL << 40,
       "/owners/0/rank: expected an integer of 32 bits, found 1099511627776"},
      {"/owners/0/start/0", 0.5, "/owners/0/start/0: expected an integer of 64 bits, found 0.5"},
      {"/owners", json::array(), "/owners: there are none; without the key, even ones"},
      {"/replicas/1/stages/0/share", 1,
       "/replicas/1/stages/0: unknown key 'share' (did you mean 'shares'?)"},
      {"/reduction", "tree", "/reduction: expected \"ordered\""},
      {"/prediction/step_seconds", -1,
       "/prediction/step_seconds: expected 0.0 to 1000000000000.0, found -1.0"},
      {"/prediction/ranks/0/memory", -1,
       "/prediction/ranks/0/memory: expected 0 to 9223372036854775807, found -1"},
      {"/search/nodes", -1, "/search/nodes: expected 0 to 9223372036854775807, found -1"},
      {"/search/rejected/0/step_seconds", nullptr,
       "/search/rejected/0/step_seconds: expected a number, found null"},
      {"/notes", "", "/: unknown key 'notes'"},
  };
  for (const auto& [pointer, value, error] : cases) {
    json document = to_json(valid_plan());
    document[Pointer(pointer)] = value;
    EXPECT_EQ(try_plan(document), error);
  }
  EXPECT_EQ(try_plan(json::array()), "/: expected an object, found an array");
}

TEST(PlanJson, NamesTheSlipRatherThanTheMemberThatItLeavesMissing) {
  for (const auto& [key, slip] : {std::pair("last_layer", "last_layr"), std::pair("ranks", "rnaks"),
                                  std::pair("shares", "share")}) {
    json document = to_json(valid_plan());
    json& stage = document["replicas"][1]["stages"][0];
    stage[slip] = stage[key];
    stage.erase(key);
    EXPECT_EQ(try_plan(document), std::string("/replicas/1/stages/0: unknown key '") + slip +
                                      "' (did you mean '" + key + "'?)");
  }
  json document = to_json(valid_plan());
  document["replicas"][0].erase("grains");
  document["replicas"][0]["notes"] = "";
  EXPECT_EQ(try_plan(document), "/replicas/0: 'grains' is missing");
}

// --- the id ---

TEST(PlanId, IsTheSameInEveryBuild) {
  EXPECT_EQ(plan_id(valid_plan()), "ae483dd9c68fdd8f98dd764e9d7ed7ef");
}

TEST(PlanId, IsOfTheTextOfTheBody) {
  Plan plan = valid_plan();
  for (int links = 0; links < 3; ++links) {
    json body = to_json(plan);
    body.erase("id");
    body.erase("search");
    EXPECT_EQ(plan_id(plan), xxh3_128_hex(body.dump())) << links << " links";
    plan.links.push_back({{"a", "b" + std::to_string(links)}, 1e-5, 1e9});
  }
}

TEST(PlanId, TellsPlansApartAndNotHowTheyWereFound) {
  const std::string id = plan_id(valid_plan());
  const auto id_after = [](auto change) {
    Plan plan = valid_plan();
    change(plan);
    return plan_id(plan);
  };
  EXPECT_EQ(id_after([](Plan& plan) { plan.id = "other"; }), id);
  EXPECT_EQ(id_after([](Plan& plan) { plan.search = {}; }), id);
  EXPECT_NE(id_after([](Plan& plan) { plan.replicas[0].micro_batch = 2; }), id);
  EXPECT_NE(id_after([](Plan& plan) { plan.owners[0].owner = Rank(1); }), id);
  EXPECT_NE(id_after([](Plan& plan) { plan.prediction.step_seconds += 1e-15; }), id);
  EXPECT_NE(id_after([](Plan& plan) { plan.left_out.clear(); }), id);
}

TEST(PlanId, IsMadeAnewWhenAPlanIsRead) {
  json document = to_json(valid_plan());
  document["replicas"][0]["micro_batch"] = 2;
  const Result<Plan> edited = plan_from_json(document);
  ASSERT_TRUE(edited) << edited.error().to_string();
  EXPECT_EQ(edited->id, plan_id(*edited));
  EXPECT_NE(edited->id, valid_plan().id);
}

// --- what must hold of a plan ---

/// The head, beside a stage with the rest, shared by three ranks of a model with two heads.
Plan plan_with_shared_head(std::vector<double> shares) {
  Plan plan;
  plan.global_batch = 2;
  plan.grain = 1;
  for (const char* device : {"a/0", "a/1", "a/2", "a/3"})
    plan.ranks.push_back({device, "a", "card"});
  const std::vector<Rank> sharing{Rank(1), Rank(2), Rank(3)};
  plan.replicas = {{{{0, 1, {Rank(0)}, {1.0}}, {2, 2, sharing, std::move(shares)}}, 1, 2}};
  return plan;
}

TEST(Plan, AStageWithoutBlocksDividesTheVocabularyAlone) {
  Plan plan = plan_with_shared_head({0.5, 0.3, 0.2});
  plan.owners = even_ownership(plan, kModel);
  const auto valid = validate(plan, kModel);
  EXPECT_TRUE(valid) << valid.error().message;
  EXPECT_EQ(validate_cut(plan_with_shared_head({0.98, 0.01, 0.01}), kModel).error().message,
            "/replicas/0/stages/1/shares: rank 3 gets nothing of the vocabulary");
  plan.replicas[0].stages[0].last_layer = 0;
  plan.replicas[0].stages[1].first_layer = 1;
  EXPECT_EQ(validate_cut(plan, kModel).error().message,
            "/replicas/0/stages/1/shares: rank 3 gets no attention head");
}

struct Invalid {
  const char* name;
  std::function<void(Plan&)> spoil;
  const char* error;
};

class InvalidPlan : public ::testing::TestWithParam<Invalid> {};

TEST_P(InvalidPlan, IsRefused) {
  Plan plan = valid_plan();
  ASSERT_TRUE(validate(plan, kModel)) << validate(plan, kModel).error().message;
  GetParam().spoil(plan);
  const Result<Unit> valid = validate(plan, kModel);
  ASSERT_FALSE(valid);
  EXPECT_EQ(valid.error().code, ErrorCode::kInvalidSpec);
  EXPECT_EQ(valid.error().message, GetParam().error);
}

StagePlan& stage(Plan& plan, size_t replica, size_t number) {
  return plan.replicas[replica].stages[number];
}

/// Exact's own demands hold; `spoil` then breaks one.
std::function<void(Plan&)> exact_but(std::function<void(Plan&)> spoil) {
  return [spoil = std::move(spoil)](Plan& plan) {
    plan.numerics = Numerics::kExact;
    plan.replicas[0].micro_batch = plan.grain;
    ASSERT_TRUE(validate(plan, kModel));
    spoil(plan);
  };
}

const Invalid kInvalid[] = {
    {"no_batch", [](Plan& p) { p.global_batch = 0; }, "/global_batch: must be at least 1"},
    {"no_grain", [](Plan& p) { p.grain = 0; }, "/grain: must be between 1 and global_batch"},
    {"grain_beyond_batch", [](Plan& p) { p.grain = 10; },
     "/grain: must be between 1 and global_batch"},
    {"no_grains", [](Plan& p) { p.replicas[1].grains = 0; },
     "/replicas/1/grains: must be at least 1"},
    {"broken_grain", [](Plan& p) { p.replicas[0].micro_batch = 3; },
     "/replicas/0/micro_batch: 3 is not a multiple of the grain, 2"},
    {"no_micro_batch", [](Plan& p) { p.replicas[0].micro_batch = 0; },
     "/replicas/0/micro_batch: 0 is not a multiple of the grain, 2"},
    {"samples_lost", [](Plan& p) { p.replicas[0].grains = 2; },
     "/replicas: they have 4 grains; the global batch is 5"},
    {"samples_twice", [](Plan& p) { p.replicas[0].grains = 1 << 30; },
     "/replicas: they have 1073741826 grains; the global batch is 5"},
    {"no_ranks", [](Plan& p) { p.ranks.clear(); }, "/ranks: there are none"},
    {"device_twice", [](Plan& p) { p.ranks[2].device = "a/0"; },
     "/ranks/2: device a/0 drives two ranks"},
    {"no_replicas", [](Plan& p) { p.replicas.clear(); }, "/replicas: there are none"},
    {"no_stages", [](Plan& p) { p.replicas[1].stages.clear(); },
     "/replicas/1/stages: the replica has no stages"},
    {"idle_rank_without_stage_ranks", [](Plan& p) { stage(p, 0, 0).ranks.clear(); },
     "/replicas/0/stages/0: the stage has no ranks"},
    {"idle_rank",
     [](Plan& p) {
       p.ranks.push_back({"d/0", "d", "x"});
     },
     "/ranks/3: rank 3 has no work"},
    {"unknown_rank", [](Plan& p) { stage(p, 1, 0).ranks[0] = Rank(3); },
     "/replicas/1/stages/0/ranks: rank 3 does not exist"},
    {"rank_twice", [](Plan& p) { stage(p, 1, 0).ranks[0] = Rank(0); },
     "/replicas/1/stages/0/ranks: rank 0 is used twice"},
    {"stage_without_ranks",
     [](Plan& p) {
       p.ranks.pop_back();
       stage(p, 1, 1).ranks.clear();
     },
     "/replicas/1/stages/1: the stage has no ranks"},
    {"share_missing", [](Plan& p) { stage(p, 1, 1).shares.clear(); },
     "/replicas/1/stages/1/shares: the stage needs one share for each rank"},
    {"share_not_positive",
     [](Plan& p) {
       p.replicas[1].stages = {{0, 2, {Rank(1), Rank(2)}, {1.5, -0.5}}};
     },
     "/replicas/1/stages/0/shares: a share is not positive"},
    {"shares_do_not_sum", [](Plan& p) { stage(p, 0, 0).shares[0] = 0.9; },
     "/replicas/0/stages/0/shares: they do not sum to 1"},
    {"layers_lost", [](Plan& p) { stage(p, 1, 1).first_layer = 2; },
     "/replicas/1/stages/1/first_layer: the stage begins at layer 2 where 1 is due"},
    {"layers_twice", [](Plan& p) { stage(p, 1, 1).first_layer = 0; },
     "/replicas/1/stages/1/first_layer: the stage begins at layer 0 where 1 is due"},
    {"empty_stage", [](Plan& p) { stage(p, 1, 1).last_layer = 0; },
     "/replicas/1/stages/1/last_layer: the stage has no layers"},
    {"too_few_layers", [](Plan& p) { stage(p, 0, 0).last_layer = 1; },
     "/replicas/0/stages: they have 2 of 3 layers (embedding, blocks, head)"},
    {"too_many_layers", [](Plan& p) { stage(p, 0, 0).last_layer = 3; },
     "/replicas/0/stages: they have 4 of 3 layers (embedding, blocks, head)"},
    {"unknown_owner", [](Plan& p) { p.owners[0].owner = Rank(3); },
     "/owners/0/rank: the owner of embed.token.weight, rank 3, does not exist"},
    {"nobody_owns", [](Plan& p) { p.owners.pop_back(); }, "/owners: nobody owns norm.bias"},
    {"unknown_tensor",
     [](Plan& p) {
       p.owners.push_back({"head", {{0}, {1}}, Rank(0)});
     },
     "/owners: the model has no tensor head, which has an owner"},
    {"prediction_of_nobody", [](Plan& p) { p.prediction.ranks[1].rank = Rank(-1); },
     "/prediction/ranks: one is of rank -1, which does not exist"},
    {"beyond_memory", [](Plan& p) { p.prediction.ranks[1].memory = Bytes(201); },
     "/ranks/1: b/0 needs 201 B for its part; its limit is 200 B"},
    {"exact_micro_batch", exact_but([](Plan& p) { p.replicas[1].micro_batch = 4; }),
     "/replicas/1/micro_batch: numerics: exact needs micro-batches of one grain"},
    {"exact_precisions",
     exact_but([](Plan& p) { p.replicas[1].stages[0].precision = Precision::kFp64; }),
     "/replicas/1/stages/0/precision: numerics: exact needs one precision"},
    {"exact_tensor_parallel", exact_but([](Plan& p) {
       p.replicas[1].stages = {{0, 2, {Rank(1), Rank(2)}, {0.5, 0.5}}};
     }),
     "/replicas/1/stages/0/ranks: numerics: exact excludes tensor parallelism, where the bits "
     "depend on the "
     "shares: give the stage one rank, or train with numerics: fast"},
};
INSTANTIATE_TEST_SUITE_P(Each, InvalidPlan, ::testing::ValuesIn(kInvalid),
                         [](const auto& invalid) { return std::string(invalid.param.name); });

TEST(PlanValidation, AnElementThatTwoOwnIsRefused) {
  Plan plan = valid_plan();
  plan.owners.push_back(plan.owners.front());
  EXPECT_FALSE(validate(plan, kModel));
}

// --- who has which samples ---

TEST(PlanSamples, ConsecutiveRunsWithTheShortGrainLast) {
  const Plan plan = valid_plan();
  EXPECT_EQ(plan.grain_count(), 5);
  const auto ranges = [&](int replica) {
    std::vector<std::pair<int, int>> all;
    for (const SampleRange& range : micro_batches_of(plan, replica))
      all.emplace_back(range.first, range.count);
    return all;
  };
  EXPECT_EQ(samples_of(plan, 0).count, 6);
  EXPECT_THAT(ranges(0), ElementsAre(std::pair(0, 4), std::pair(4, 2)));
  EXPECT_EQ(samples_of(plan, 1).first, 6);
  EXPECT_EQ(samples_of(plan, 1).count, 3);
  EXPECT_THAT(ranges(1), ElementsAre(std::pair(6, 2), std::pair(8, 1)));
}

/// Replicas of one rank each.
Plan replicated(int ranks) {
  Plan plan;
  for (int rank = 0; rank < ranks; ++rank) {
    plan.ranks.push_back({"h/" + std::to_string(rank), "h", "t"});
    plan.replicas.push_back({{{0, 2, {Rank(rank)}, {1.0}}}, 2, 1});
  }
  return plan;
}

TEST(PlanOwnership, EvenRunsTileEveryTensor) {
  int64_t most_row = 0;
  for (const LogicalTensor& tensor : logical_tensors(kModel))
    most_row = std::max(most_row, tensor.elements() / tensor.shape[0]);
  for (int ranks = 1; ranks <= 7; ++ranks) {
    std::map<std::string, std::vector<Slice>> slices;
    std::vector<int64_t> elements(static_cast<size_t>(ranks), 0);
    Rank before(0);
    for (const Ownership& owner : even_ownership(replicated(ranks), kModel)) {
      slices[owner.tensor].push_back(owner.slice);
      EXPECT_GE(owner.owner, before) << "a rank's slices follow each other";
      before = owner.owner;
      elements[static_cast<size_t>(owner.owner.value())] += owner.slice.elements();
    }
    for (const LogicalTensor& tensor : logical_tensors(kModel))
      EXPECT_TRUE(check_tiles(tensor.name, tensor.shape, slices[tensor.name])) << tensor.name;
    for (const int64_t own : elements)
      EXPECT_NEAR(static_cast<double>(own), static_cast<double>(parameter_count(kModel)) / ranks,
                  static_cast<double>(most_row));
  }
}

/// So that each has a part of whatever a backward pass has just made.
TEST(PlanOwnership, OwnersOfShardedStateAlternateOverTheModel) {
  const ModelSpec model{"gpt", 4, 8, 512, 64, 5000};
  for (int ranks = 2; ranks <= 5; ++ranks) {
    Plan plan = replicated(ranks);
    for (ReplicaPlan& replica : plan.replicas) replica.stages[0].last_layer = 5;
    plan.shard_optimizer = true;
    std::map<std::string, std::vector<Slice>> slices;
    std::vector<int64_t> elements(static_cast<size_t>(ranks), 0);
    std::vector<int> turns;
    for (const Ownership& owner : even_ownership(plan, model)) {
      slices[owner.tensor].push_back(owner.slice);
      elements[static_cast<size_t>(owner.owner.value())] += owner.slice.elements();
      if (turns.empty() || turns.back() != owner.owner.value())
        turns.push_back(owner.owner.value());
    }
    for (const LogicalTensor& tensor : logical_tensors(model))
      EXPECT_TRUE(check_tiles(tensor.name, tensor.shape, slices[tensor.name])) << tensor.name;
    for (size_t i = 0; i < turns.size(); ++i) EXPECT_EQ(turns[i], static_cast<int>(i) % ranks);
    EXPECT_GE(std::ssize(turns), 8 * ranks);
    const double even = static_cast<double>(parameter_count(model)) / ranks;
    for (const int64_t own : elements) EXPECT_NEAR(static_cast<double>(own), even, even / 8);
  }
}

TEST(PlanOwnership, UnevenOwnersOwnTheirShares) {
  const ModelSpec model{"gpt", 4, 8, 512, 64, 5000};
  const std::vector<OwnerShares> shares = {{0.5, 0, 0.3, 0.2}};
  for (const bool sharded : {false, true}) {
    Plan plan = replicated(4);
    for (ReplicaPlan& replica : plan.replicas) replica.stages[0].last_layer = 5;
    plan.shard_optimizer = sharded;
    ASSERT_EQ(held_alike(plan, model).size(), 1u);
    EXPECT_EQ(held_alike(plan, model)[0].elements, parameter_count(model));
    std::map<std::string, std::vector<Slice>> slices;
    std::vector<double> elements(4, 0.0);
    for (const Ownership& owner : uneven_ownership(plan, model, shares)) {
      slices[owner.tensor].push_back(owner.slice);
      elements[static_cast<size_t>(owner.owner.value())] +=
          static_cast<double>(owner.slice.elements());
    }
    for (const LogicalTensor& tensor : logical_tensors(model))
      EXPECT_TRUE(check_tiles(tensor.name, tensor.shape, slices[tensor.name])) << tensor.name;
    for (size_t rank = 0; rank < 4; ++rank)
      EXPECT_NEAR(elements[rank] / static_cast<double>(parameter_count(model)), shares[0][rank],
                  0.01);
    EXPECT_EQ(elements[1], 0);
  }
}

TEST(PlanPrediction, TheSlowestIsTheFirstWithTheLongestSection) {
  Prediction prediction = valid_plan().prediction;
  EXPECT_EQ(prediction.slowest()->rank, Rank(1));
  std::swap(prediction.ranks[0].compute_seconds, prediction.ranks[0].wait_seconds);
  EXPECT_EQ(prediction.slowest()->rank, Rank(1)) << "who waits is not slow";
  prediction.ranks[0].compute_seconds = prediction.ranks[1].update_seconds;
  prediction.ranks[0].update_seconds = prediction.ranks[1].compute_seconds;
  EXPECT_EQ(prediction.slowest()->rank, Rank(0)) << "equal, and the first";
}

TEST(PlanJson, ABoundThatNobodyLookedForIsNull) {
  const SearchRecord scored{.space = "given: no search", .step_seconds = 0.5, .rejected = {}};
  Plan plan = valid_plan();
  plan.search = scored;
  const nlohmann::json document = to_json(plan);
  EXPECT_TRUE(document["search"]["lower_bound_step_seconds"].is_null());
  EXPECT_TRUE(document["search"]["gap"].is_null());
  const auto back = plan_from_json(document);
  ASSERT_TRUE(back) << back.error().to_string();
  EXPECT_EQ(back->search.lower_bound_step_seconds, 0);
  EXPECT_EQ(to_json(*back), document);
}

TEST(PlanJson, AGapIsOfWhatWasLookedFor) {
  SearchRecord search{
      .space = "", .step_seconds = 0.6, .lower_bound_step_seconds = 0.5, .rejected = {}};
  EXPECT_NEAR(search.gap(), 0.2, 1e-12);
  search.cost = 3;
  EXPECT_EQ(search.gap(), 0) << "no bound of the cost is known";
  search.lower_bound_cost = 2;
  EXPECT_NEAR(search.gap(), 0.5, 1e-12);
  Plan plan = valid_plan();
  plan.search = search;
  const auto back = plan_from_json(to_json(plan));
  ASSERT_TRUE(back) << back.error().to_string();
  EXPECT_EQ(back->search.cost, 3);
  EXPECT_EQ(back->search.lower_bound_cost, 2);
}

}  // namespace
}  // namespace motley
