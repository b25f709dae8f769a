// Plan <-> JSON (core/FORMATS.md, "plan"), and the id made of it.

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/hash.h"
#include "core/json_fields.h"
#include "core/plan.h"
#include "core/spec/names.h"

namespace motley {
namespace {

using nlohmann::json;

constexpr double kMost = 1e300;
constexpr int kLastLayer = ModelSpec::kMostLayers + 1;  // embedding and head besides the blocks
constexpr int kMostRanks = 1 << 20;
constexpr int kMostSamples = TrainSpec::kMostSamples;

json replica_to_json(const ReplicaPlan& replica) {
  json stages = json::array();
  for (const StagePlan& stage : replica.stages) {
    json ranks = json::array();
    for (const Rank rank : stage.ranks) ranks.push_back(rank.value());
    json recompute = json::array();
    for (const Recompute part : stage.recompute) recompute.push_back(spec_name(part));
    stages.push_back({{"first_layer", stage.first_layer},
                      {"last_layer", stage.last_layer},
                      {"ranks", ranks},
                      {"shares", stage.shares},
                      {"recompute", recompute},
                      {"precision", spec_name(stage.precision)}});
  }
  return {{"stages", stages}, {"micro_batch", replica.micro_batch}, {"grains", replica.grains}};
}

json prediction_to_json(const Prediction& prediction) {
  json ranks = json::array();
  for (const RankPrediction& rank : prediction.ranks) {
    ranks.push_back({{"rank", rank.rank.value()},
                     {"compute_seconds", rank.compute_seconds},
                     {"wait_seconds", rank.wait_seconds},
                     {"update_seconds", rank.update_seconds},
                     {"memory", rank.memory.value()},
                     {"memory_limit", rank.memory_limit.value()},
                     {"host_memory", rank.host_memory.value()},
                     {"solo_samples_per_second", rank.solo_samples_per_second}});
  }
  json document{{"step_seconds", prediction.step_seconds},
                {"compute_seconds", prediction.compute_seconds},
                {"bubble_seconds", prediction.bubble_seconds},
                {"communication_seconds", prediction.communication_seconds},
                {"update_seconds", prediction.update_seconds},
                {"uncertainty", prediction.uncertainty},
                {"samples_per_second", prediction.samples_per_second},
                {"solo_sum_samples_per_second", prediction.solo_sum_samples_per_second},
                {"integer_bound_efficiency", prediction.integer_bound_efficiency},
                {"cost_per_hour", prediction.cost_per_hour},
                {"ranks", ranks}};
  if (prediction.hidden_seconds > 0) document["hidden_seconds"] = prediction.hidden_seconds;
  return document;
}

json search_to_json(const SearchRecord& search) {
  json rejected = json::array();
  for (const RejectedPlan& plan : search.rejected) {
    rejected.push_back(
        {{"what", plan.what}, {"why", plan.why}, {"step_seconds", plan.step_seconds}});
  }
  const auto known = [](double bound, double value) { return bound > 0 ? json(value) : json(); };
  const bool costs = search.cost > 0;
  const double least = search.lower_bound_step_seconds;
  json document = {{"space", search.space},
                   {"step_seconds", search.step_seconds},
                   {"lower_bound_step_seconds", known(least, least)},
                   {"gap", known(costs ? search.lower_bound_cost : least, search.gap())},
                   {"nodes", search.nodes},
                   {"rejected", rejected}};
  if (costs) {
    document["cost"] = search.cost;
    document["lower_bound_cost"] = known(search.lower_bound_cost, search.lower_bound_cost);
  }
  return document;
}

json owner_to_json(const Ownership& owner) {
  return {{"tensor", owner.tensor},
          {"start", owner.slice.start},
          {"extent", owner.slice.extent},
          {"rank", owner.owner.value()}};
}

void read_seconds(JsonFields& fields, const char* key, double& out) {
  fields.read_between(key, out, 0, kMostSeconds);
}

void read_precision(JsonFields& fields, StagePlan& stage) {
  stage.precision = Precision::kAuto;
  if (!fields.has("precision")) return;
  fields.read_word("precision", stage.precision, from_spec_name<Precision>);
  if (stage.precision == Precision::kAuto) fields.fault("precision", "a plan has decided it");
}

void read_stage(JsonFields& fields, StagePlan& stage) {
  read_precision(fields, stage);
  std::vector<int64_t> ranks;
  fields.read_between("first_layer", stage.first_layer, 0, kLastLayer)
      .read_between("last_layer", stage.last_layer, 0, kLastLayer)
      .read("ranks", ranks)
      .read_if("shares", stage.shares);
  std::vector<std::string> recompute;
  fields.read_if("recompute", recompute);
  for (const std::string& word : recompute) {
    const auto part = from_spec_name<Recompute>(word);
    if (!part) return fields.fault("recompute", "unknown word '" + word + "'");
    stage.recompute.push_back(*part);
  }
  for (const int64_t rank : ranks) {
    if (rank < 0 || rank > kMostRanks) return fields.fault("ranks", "no such rank");
    stage.ranks.emplace_back(static_cast<int>(rank));
  }
}

void read_replica(JsonFields& fields, ReplicaPlan& replica) {
  fields.each("stages", [&](JsonFields& f) { read_stage(f, replica.stages.emplace_back()); })
      .read_between("micro_batch", replica.micro_batch, 1, kMostSamples)
      .read_between("grains", replica.grains, 1, kMostSamples);
}

void read_owner(JsonFields& fields, Ownership& owner) {
  fields.read("tensor", owner.tensor)
      .read("start", owner.slice.start)
      .read("extent", owner.slice.extent)
      .read("rank", owner.owner);
}

void read_rank_prediction(JsonFields& fields, RankPrediction& rank) {
  fields.read("rank", rank.rank);
  read_seconds(fields, "compute_seconds", rank.compute_seconds);
  read_seconds(fields, "wait_seconds", rank.wait_seconds);
  read_seconds(fields, "update_seconds", rank.update_seconds);
  fields.read_between("memory", rank.memory, 0, INT64_MAX)
      .read_between("memory_limit", rank.memory_limit, 0, INT64_MAX)
      .read_between("solo_samples_per_second", rank.solo_samples_per_second, 0, kMost);
  if (fields.has("host_memory")) fields.read_between("host_memory", rank.host_memory, 0, INT64_MAX);
}

void read_prediction(JsonFields& fields, Prediction& prediction) {
  read_seconds(fields, "step_seconds", prediction.step_seconds);
  read_seconds(fields, "compute_seconds", prediction.compute_seconds);
  read_seconds(fields, "bubble_seconds", prediction.bubble_seconds);
  read_seconds(fields, "communication_seconds", prediction.communication_seconds);
  if (fields.has("hidden_seconds"))
    read_seconds(fields, "hidden_seconds", prediction.hidden_seconds);
  read_seconds(fields, "update_seconds", prediction.update_seconds);
  fields.read_between("uncertainty", prediction.uncertainty, 0, kMost)
      .read_between("samples_per_second", prediction.samples_per_second, 0, kMost)
      .read_between("solo_sum_samples_per_second", prediction.solo_sum_samples_per_second, 0, kMost)
      .read_between("integer_bound_efficiency", prediction.integer_bound_efficiency, 0, kMost)
      .read_between("cost_per_hour", prediction.cost_per_hour, 0, kMost)
      .each("ranks",
            [&](JsonFields& f) { read_rank_prediction(f, prediction.ranks.emplace_back()); });
}

void read_search(JsonFields& fields, SearchRecord& search) {
  // `motley plan --json` prints it; a plan itself never holds a wall time.
  for (const char* of_this_search : {"wall_seconds", "counterfactuals"})
    if (fields.has(of_this_search)) fields.member(of_this_search);
  fields.read("space", search.space);
  read_seconds(fields, "step_seconds", search.step_seconds);
  if (!fields.is_null("lower_bound_step_seconds"))
    read_seconds(fields, "lower_bound_step_seconds", search.lower_bound_step_seconds);
  double gap = 0;  // follows from what else is read
  if (!fields.is_null("gap")) fields.read_between("gap", gap, 0, kMost);
  for (const auto& [key, cost] :
       {std::pair("cost", &search.cost), std::pair("lower_bound_cost", &search.lower_bound_cost)})
    if (fields.has(key) && !fields.is_null(key)) fields.read_between(key, *cost, 0, kMost);
  fields.read_between("nodes", search.nodes, 0, INT64_MAX).each("rejected", [&](JsonFields& f) {
    RejectedPlan& plan = search.rejected.emplace_back();
    f.read("what", plan.what).read("why", plan.why);
    read_seconds(f, "step_seconds", plan.step_seconds);
  });
}

json sync_to_json(const SyncPlan& sync) {
  return {{"across", sync.across}, {"groups", sync.groups}};
}

void read_sync(JsonFields& fields, SyncPlan& sync) {
  fields.read_between("across", sync.across, 1, SyncSpec::kMostAcross);
  if (!fields.has("groups")) return;
  const json* groups = fields.member("groups");
  if (groups == nullptr || !groups->is_array())
    return fields.fault("groups", "expected a list of lists of hosts");
  for (const json& group : *groups) {
    const bool names =
        group.is_array() &&
        std::all_of(group.begin(), group.end(), [](const json& host) { return host.is_string(); });
    if (!names) return fields.fault("groups", "expected a list of lists of hosts");
    sync.groups.push_back(group.get<std::vector<std::string>>());
  }
}

/// What workers act on, and what the planner predicted of it: all that makes a plan this plan, but
/// for the links, of which there may be millions.
json body_without_links(const Plan& plan) {
  json ranks = json::array();
  for (const RankPlacement& rank : plan.ranks) {
    ranks.push_back({{"device", rank.device},
                     {"host", rank.host},
                     {"type", rank.type},
                     {"host_optimizer", rank.host_optimizer}});
    if (rank.managed_memory) ranks.back()["managed_memory"] = true;
  }
  json replicas = json::array();
  for (const ReplicaPlan& replica : plan.replicas) replicas.push_back(replica_to_json(replica));
  json owners = json::array();
  for (const Ownership& owner : plan.owners) owners.push_back(owner_to_json(owner));
  json left_out = json::array();
  for (const LeftOut& left : plan.left_out) {
    left_out.push_back({{"device", left.device}, {"why", left.why}});
  }
  json body = {{"version", 1},
               {"job_key", plan.job_key},
               {"numerics", spec_name(plan.numerics)},
               {"global_batch", plan.global_batch},
               {"grain", plan.grain},
               {"ranks", ranks},
               {"replicas", replicas},
               {"owners", owners},
               {"shard_optimizer", plan.shard_optimizer},
               {"reduction", plan.reduction},
               {"links", json::array()},
               {"compression", to_json(plan.compression)},
               {"prediction", prediction_to_json(plan.prediction)},
               {"left_out", left_out}};
  if (plan.sync.across > 1) body["sync"] = sync_to_json(plan.sync);
  return body;
}

}  // namespace

json to_json(const Plan& plan) {
  json document = body_without_links(plan);
  for (const LinkProfile& link : plan.links) document["links"].push_back(to_json(link));
  document["id"] = plan.id;
  document["search"] = search_to_json(plan.search);
  return document;
}

/// Of the text of the body, put together member by member.
std::string plan_id(const Plan& plan) {
  Xxh3Stream stream(Xxh3Stream::Width::k128);
  const auto add = [&](const std::string& text) { stream.add(text.data(), text.size()); };
  const json body = body_without_links(plan);
  std::string before = "{";
  for (const auto& [key, value] : body.items()) {
    add(before + json(key).dump() + ":");
    before = ",";
    if (key != "links") {
      add(value.dump());
      continue;
    }
    add("[");
    for (const LinkProfile& link : plan.links)
      add((&link == plan.links.data() ? "" : ",") + to_json(link).dump());
    add("]");
  }
  add("}");
  return stream.hex();
}

Result<Plan> plan_from_json(const json& document) {
  Plan plan;
  JsonFields fields(document);
  fields.read_version(1).read_if("job_key", plan.job_key);
  fields.read_word("numerics", plan.numerics, from_spec_name<Numerics>);
  fields.read_between("global_batch", plan.global_batch, 1, kMostSamples)
      .read_between("grain", plan.grain, 1, kMostSamples)
      .each("ranks",
            [&](JsonFields& f) {
              RankPlacement& rank = plan.ranks.emplace_back();
              f.read("device", rank.device)
                  .read_if("host", rank.host)
                  .read_if("type", rank.type)
                  .read_if("host_optimizer", rank.host_optimizer)
                  .read_if("managed_memory", rank.managed_memory);
            })
      .each("replicas", [&](JsonFields& f) { read_replica(f, plan.replicas.emplace_back()); })
      .read_if("shard_optimizer", plan.shard_optimizer)
      .read_if("reduction", plan.reduction);
  if (fields.has("owners")) {
    fields.each("owners", [&](JsonFields& f) { read_owner(f, plan.owners.emplace_back()); });
    if (plan.owners.empty()) fields.fault("owners", "there are none; without the key, even ones");
  }
  if (plan.reduction != "ordered") fields.fault("reduction", "expected \"ordered\"");
  if (fields.has("links"))
    fields.each("links", [&](JsonFields& f) { read_link(f, plan.links.emplace_back()); });
  if (fields.has("compression"))
    fields.object("compression", [&](JsonFields& f) { read_compression(f, plan.compression); });
  if (fields.has("sync")) fields.object("sync", [&](JsonFields& f) { read_sync(f, plan.sync); });
  if (fields.has("prediction")) {
    fields.object("prediction", [&](JsonFields& f) { read_prediction(f, plan.prediction); });
  }
  if (fields.has("search")) {
    fields.object("search", [&](JsonFields& f) { read_search(f, plan.search); });
  }
  if (fields.has("left_out")) {
    fields.each("left_out", [&](JsonFields& f) {
      LeftOut& left = plan.left_out.emplace_back();
      f.read("device", left.device).read("why", left.why);
    });
  }
  fields.read_if("id", plan.id);
  // Packed with a plan so that one file is enough to train by hand; their readers check them.
  for (const char* extra : {"fleet", "job"}) {
    if (fields.has(extra)) fields.member(extra);
  }
  MOTLEY_TRY_VOID(fields.done());
  plan.id = plan_id(plan);  // an edited plan is another plan
  return plan;
}

}  // namespace motley
