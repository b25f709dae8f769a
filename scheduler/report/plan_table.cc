#include "scheduler/report/plan_table.h"

#include <algorithm>

#include "core/units.h"
#include "planner/cost_model.h"
#include "scheduler/report/table.h"

namespace motley {

std::vector<SoloSpeed> solo_speeds(const Profile& profile, const Plan& plan) {
  const MicroBatchRule rule = solo_rule(plan);
  std::vector<SoloSpeed> speeds;
  for (const DeviceProfile& device : profile.devices) {
    SoloSpeed speed{device.device, device.type, 0, 0};
    const std::vector<int> sizes = micro_batch_sizes(device, rule);
    if (!sizes.empty() && device.curve("model") != nullptr) {
      speed.micro_batch = best_micro_batch(device, plan.global_batch, sizes).micro_batch;
      speed.samples_per_second = solo_samples_per_second(device, plan.global_batch, rule);
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

std::string solo_table(const std::vector<SoloSpeed>& speeds, Evidence evidence) {
  TextTable table({{"device", Align::kLeft},
                   {"type", Align::kLeft},
                   {"micro-batch", Align::kRight},
                   {"samples/s", Align::kRight}});
  double sum = 0;
  for (const SoloSpeed& speed : speeds) {
    if (speed.micro_batch == 0) {
      table.add_row({speed.device, speed.type, "-", "cannot hold the model"});
      continue;
    }
    sum += speed.samples_per_second;
    table.add_row({speed.device, speed.type, std::to_string(speed.micro_batch),
                   format_fixed(speed.samples_per_second, 1)});
  }
  table.add_row({"sum", "", "", format_fixed(sum, 1)});
  return std::string("Solo speeds (") + name_of(evidence) + ")\n" + table.to_string();
}

namespace {

std::string device_rows(const Plan& plan) {
  TextTable table({{"device", Align::kLeft},
                   {"type", Align::kLeft},
                   {"micro-batch", Align::kRight},
                   {"grains", Align::kRight},
                   {"share", Align::kRight},
                   {"memory used / limit", Align::kRight},
                   {"compute", Align::kRight},
                   {"wait", Align::kRight}});
  for (size_t i = 0; i < plan.replicas.size(); ++i) {
    const ReplicaPlan& replica = plan.replicas[i];
    const auto rank = static_cast<size_t>(replica.stages[0].ranks[0].value());
    const double samples = samples_of(plan, static_cast<int>(i)).count;
    std::string memory = "-", compute = "-", wait = "-";
    if (rank < plan.prediction.ranks.size()) {
      const RankPrediction& predicted = plan.prediction.ranks[rank];
      memory = format_bytes(predicted.memory) + " / " + format_bytes(predicted.memory_limit);
      compute = format_duration(predicted.compute_seconds);
      wait = format_duration(waiting_seconds(plan.prediction, predicted));
    }
    table.add_row({plan.ranks[rank].device, plan.ranks[rank].type,
                   std::to_string(replica.micro_batch), std::to_string(replica.grains),
                   format_percent(samples / plan.global_batch), memory, compute, wait});
  }
  return table.to_string();
}

std::string prediction_line(const Prediction& prediction) {
  if (prediction.step_seconds <= 0) return "";
  std::string text = "predicted: " + format_duration(prediction.step_seconds) + "/step, " +
                     format_fixed(prediction.samples_per_second, 1) + " samples/s";
  if (prediction.solo_sum_samples_per_second > 0) {
    const double efficiency =
        prediction.samples_per_second / prediction.solo_sum_samples_per_second;
    text += ", " + format_percent(efficiency) + " of the solo sum (whole grains allow " +
            format_percent(prediction.integer_bound_efficiency) + ")";
  }
  if (prediction.cost_per_hour > 0) {
    text += ", " + format_fixed(prediction.cost_per_hour, 2) + " an hour";
  }
  return text + "\n";
}

}  // namespace

std::string plan_table(const Plan& plan, Evidence evidence) {
  std::string text = std::string("Plan (from ") + name_of(evidence) + " profiles): global batch " +
                     std::to_string(plan.global_batch) + " in grains of " +
                     std::to_string(plan.grain) + "\n" + device_rows(plan) +
                     prediction_line(plan.prediction);
  for (const LeftOut& left : plan.left_out) {
    text += "left out: " + left.device + ": " + left.why + "\n";
  }
  return text;
}

}  // namespace motley
