#include "scheduler/report/plan_table.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/holdings.h"
#include "core/spec/names.h"
#include "core/sync_groups.h"
#include "core/units.h"
#include "planner/costs/cost_model.h"
#include "planner/costs/layer_times.h"
#include "scheduler/report/table.h"

namespace motley {

namespace {

bool uses(const Plan& plan, const std::string& device) {
  return std::any_of(plan.ranks.begin(), plan.ranks.end(),
                     [&](const RankPlacement& rank) { return rank.device == device; });
}

}  // namespace

std::vector<SoloSpeed> solo_speeds(const Profile& profile, const Plan& plan,
                                   const ModelSpec& model) {
  const MicroBatchRule rule = solo_rule(plan);
  std::vector<SoloSpeed> speeds;
  for (const DeviceProfile& device : profile.devices) {
    SoloSpeed speed{.device = device.device, .type = device.type};
    speed.layers_only = !holds_model(device, rule);
    speed.used = uses(plan, device.device);
    const auto whole = as_whole(device, model, rule);
    if (whole && (!speed.layers_only || speed.used)) {
      const std::vector<int> sizes = micro_batch_sizes(*whole, rule);
      speed.micro_batch = best_micro_batch(*whole, plan.global_batch, sizes).micro_batch;
      speed.samples_per_second = solo_samples_per_second(*whole, plan.global_batch, rule);
    }
    speeds.push_back(std::move(speed));
  }
  return speeds;
}

Evidence weakest_evidence(const Profile& profile, const Plan& plan) {
  Evidence weakest = Evidence::kMeasured;
  for (const RankPlacement& rank : plan.ranks) {
    const DeviceProfile* device = profile.find(rank.device);
    if (device != nullptr) weakest = std::min(weakest, device->evidence);  // declared weakest first
  }
  return weakest;
}

double waiting_seconds(const Prediction& prediction, const RankPrediction& rank) {
  return rank.wait_seconds + prediction.communication_seconds;
}

namespace {

/// "slow-card (layer by layer, left out)".
std::string solo_type(const SoloSpeed& speed) {
  std::string notes = speed.layers_only && speed.micro_batch > 0 ? "layer by layer" : "";
  if (!speed.used) notes += (notes.empty() ? "" : ", ") + std::string("left out");
  return speed.type + (notes.empty() ? "" : " (" + notes + ")");
}

/// Of the devices used, which a plan's efficiency refers to; unknown when one of them has no speed.
std::vector<std::string> solo_sum(const std::vector<SoloSpeed>& speeds) {
  double sum = 0;
  size_t used = 0;
  bool known = true;
  for (const SoloSpeed& speed : speeds) {
    if (!speed.used) continue;
    ++used;
    sum += speed.samples_per_second;
    known = known && speed.micro_batch > 0;
  }
  const bool all = used == speeds.size();
  return {all ? "sum" : "sum of the " + std::to_string(used) + " used", "", "",
          known ? format_fixed(sum, 1) : "-"};
}

}  // namespace

std::string solo_table(const std::vector<SoloSpeed>& speeds, Evidence evidence) {
  TextTable table({{"device", Align::kLeft},
                   {"type", Align::kLeft},
                   {"micro-batch", Align::kRight},
                   {"samples/s", Align::kRight}});
  for (const SoloSpeed& speed : speeds) {
    const bool holds = speed.micro_batch > 0;
    table.add_row({speed.device, solo_type(speed), holds ? std::to_string(speed.micro_batch) : "-",
                   holds ? format_fixed(speed.samples_per_second, 1) : "cannot hold the model"});
  }
  table.add_row(solo_sum(speeds));
  return std::string("Solo speeds (") + name_of(evidence) + ")\n" + table.to_string();
}

namespace {

/// "0-6": embedding and the first six blocks.
std::string layers_of(const StagePlan& stage) {
  const std::string first = std::to_string(stage.first_layer);
  return stage.layers() == 1 ? first : first + "-" + std::to_string(stage.last_layer);
}

/// Where a rank of a cut plan stands: replica and stage, its layers, its part of them.
void add_place(const Plan& plan, const Role& role, std::vector<std::string>* cells) {
  const StagePlan& stage = stage_of(plan, role);
  cells->push_back(std::to_string(role.replica) + "." + std::to_string(role.stage));
  cells->push_back(layers_of(stage));
  cells->push_back(format_percent(stage.shares[static_cast<size_t>(role.member)]));
}

std::vector<std::string> rank_row(const Plan& plan, const Role& role, bool cut) {
  const ReplicaPlan& replica = plan.replicas[static_cast<size_t>(role.replica)];
  const Rank number = stage_of(plan, role).ranks[static_cast<size_t>(role.member)];
  const auto rank = static_cast<size_t>(number.value());
  const Precision precision = stage_of(plan, role).precision;
  const std::string computes =
      precision != full_precision(precision) ? " (" + spec_name(precision) + ")" : "";
  std::vector<std::string> cells{plan.ranks[rank].device, plan.ranks[rank].type + computes};
  if (cut) add_place(plan, role, &cells);
  const double samples = samples_of(plan, role.replica).count;
  cells.push_back(std::to_string(replica.micro_batch));
  cells.push_back(std::to_string(replica.grains));
  cells.push_back(format_percent(samples / plan.global_batch));
  if (rank >= plan.prediction.ranks.size()) {
    cells.insert(cells.end(), {"-", "-", "-"});
    return cells;
  }
  const RankPrediction& predicted = plan.prediction.ranks[rank];
  cells.push_back(format_bytes(predicted.memory) + " / " + format_bytes(predicted.memory_limit));
  cells.push_back(format_duration(predicted.compute_seconds));
  cells.push_back(format_duration(waiting_seconds(plan.prediction, predicted)));
  return cells;
}

/// One for each rank, by replica, stage and member.
std::string rank_rows(const Plan& plan) {
  const bool cut = is_cut(plan);
  std::vector<TextTable::Column> columns{{"device", Align::kLeft}, {"type", Align::kLeft}};
  if (cut) {
    for (const char* title : {"stage", "layers", "part"}) columns.push_back({title, Align::kRight});
  }
  for (const char* title :
       {"micro-batch", "grains", "share", "memory used / limit", "compute", "wait"})
    columns.push_back({title, Align::kRight});
  TextTable table(columns);
  for (int replica = 0; replica < static_cast<int>(plan.replicas.size()); ++replica) {
    const auto& stages = plan.replicas[static_cast<size_t>(replica)].stages;
    for (int stage = 0; stage < static_cast<int>(stages.size()); ++stage) {
      const auto members = static_cast<int>(stages[static_cast<size_t>(stage)].ranks.size());
      for (int member = 0; member < members; ++member)
        table.add_row(rank_row(plan, {replica, stage, member}, cut));
    }
  }
  return table.to_string();
}

/// " +- 1.2 %"; empty where nothing is known to vary, as on a virtual clock.
std::string give_or_take(double uncertainty) {
  constexpr double kNothing = 0.0005;
  return uncertainty < kNothing ? "" : " +- " + format_percent(uncertainty);
}

std::string prediction_line(const Prediction& prediction) {
  if (prediction.step_seconds <= 0) return "";
  std::string text = "predicted: " + format_duration(prediction.step_seconds) + "/step" +
                     give_or_take(prediction.uncertainty) + ", " +
                     format_fixed(prediction.samples_per_second, 1) + " samples/s";
  if (prediction.solo_sum_samples_per_second > 0) {
    const double efficiency =
        prediction.samples_per_second / prediction.solo_sum_samples_per_second;
    text += ", " + format_percent(efficiency) + " of the solo sum";
    if (prediction.integer_bound_efficiency > 0)
      text += " (whole grains allow " + format_percent(prediction.integer_bound_efficiency) + ")";
  }
  if (prediction.cost_per_hour > 0) {
    text += ", " + format_fixed(prediction.cost_per_hour, 2) + " an hour";
  }
  return text + "\n";
}

/// How good it is, as far as was proved; empty of a plan that was not searched for.
std::string proof_line(const SearchRecord& search) {
  constexpr double kNothing = 0.0005;
  const bool costs = search.cost > 0;
  if ((costs ? search.lower_bound_cost : search.lower_bound_step_seconds) <= 0) return "";
  const std::string best = costs ? "cheapest" : "quickest";
  if (search.gap() < kNothing) return "proved: the " + best + " of its search space\n";
  return "proved: at most " + format_percent(search.gap()) + (costs ? " dearer" : " slower") +
         " than the " + best + " of its search space\n";
}

/// "gradients between hosts: int8, where links are below 125 MB/s"; empty: as they are.
std::string compression_line(const Plan& plan) {
  const LinkCompression& compression = plan.compression;
  const bool between_hosts =
      std::any_of(plan.ranks.begin(), plan.ranks.end(),
                  [&](const RankPlacement& rank) { return rank.host != plan.ranks.front().host; });
  if (!compression.on() || !between_hosts) return "";
  CodecSpec codec = compression.codec;
  if (const int warmup = warmup_steps(codec); warmup > 0) codec.warmup = warmup;
  std::string text = "gradients between hosts: " + to_text(codec);
  if (std::isfinite(compression.below_bytes_per_second))
    text += ", where links are below " + format_fixed(compression.below_bytes_per_second / 1e6, 0) +
            " MB/s";
  return text + "\n";
}

/// "optimizer state: sharded, 22% to 41% each; in host memory: a1/1"; empty: all of it on all
/// devices.
std::string state_line(const Plan& plan) {
  std::string text;
  if (plan.shard_optimizer) {
    double all = 0;
    std::vector<double> owned(plan.ranks.size(), 0.0);
    for (const Ownership& owner : plan.owners) {
      const auto elements = static_cast<double>(owner.slice.elements());
      all += elements;
      owned[static_cast<size_t>(owner.owner.value())] += elements;
    }
    const auto [least, most] = std::minmax_element(owned.begin(), owned.end());
    text =
        "sharded, " + format_percent(*least / all) + " to " + format_percent(*most / all) + " each";
  }
  const char* before = plan.shard_optimizer ? "; in host memory: " : "in host memory: ";
  for (const RankPlacement& rank : plan.ranks)
    if (rank.host_optimizer) text += std::exchange(before, ", ") + rank.device;
  return text.empty() ? text : "optimizer state: " + text + "\n";
}

/// "average every 8 steps: host a | hosts b, c"; empty: gradients are summed in each.
std::string sync_line(const Plan& plan) {
  if (!trains_apart(plan)) return "";
  std::string text = "average every " + std::to_string(plan.sync.across) + " steps:";
  const char* before = " ";
  for (const std::vector<std::string>& group : sync_groups(plan)) {
    text += std::exchange(before, " | ") + std::string(group.size() > 1 ? "hosts " : "host ");
    for (size_t i = 0; i < group.size(); ++i) text += (i > 0 ? ", " : "") + group[i];
  }
  constexpr int kStates = 3;  // an average is of weights and both moments
  if (plan.sync.across <= kStates) text += "; to send less than in every step takes more than 3";
  return text + "\n";
}

}  // namespace

std::string plan_table(const Plan& plan, Evidence evidence) {
  std::string text = std::string("Plan (from ") + name_of(evidence) + " profiles): global batch " +
                     std::to_string(plan.global_batch) + " in grains of " +
                     std::to_string(plan.grain) + "\n" + rank_rows(plan) + state_line(plan) +
                     compression_line(plan) + sync_line(plan) + prediction_line(plan.prediction) +
                     proof_line(plan.search);
  for (const LeftOut& left : plan.left_out) {
    text += "left out: " + left.device + ": " + left.why + "\n";
  }
  return text;
}

}  // namespace motley
