#include "core/spec/pin_fault.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/holdings.h"
#include "core/units.h"

namespace motley {
namespace {

using Fault = std::optional<SpecFault>;

std::string number(int64_t value) { return std::to_string(value); }

/// Of one pinned stage by itself; `at` is its key.
Fault stage_fault(const PinnedStage& stage, const JobSpec& job, const std::string& at) {
  const int layers = stage.last_layer - stage.first_layer + 1;
  if (stage.devices.empty()) return SpecFault{at + ".devices", "'devices' names none"};
  if (!stage.shares.empty() && stage.shares.size() != stage.devices.size())
    return SpecFault{at + ".shares", "'shares' needs one number for each of the " +
                                         number(static_cast<int64_t>(stage.devices.size())) +
                                         " devices"};
  double sum = 0;
  for (const double share : stage.shares) {
    if (!(share > 0)) return SpecFault{at + ".shares", "'shares': each must be above 0"};
    sum += share;
  }
  if (!stage.shares.empty() && std::abs(sum - 1) > 1e-9)
    return SpecFault{at + ".shares", "'shares' must sum to 1"};
  const auto words = static_cast<int>(stage.recompute.size());
  if (words > 1 && words != layers)
    return SpecFault{at + ".recompute", "'recompute' needs one word, or one for each of the " +
                                            number(layers) + " layers"};
  const bool recomputes = std::any_of(stage.recompute.begin(), stage.recompute.end(),
                                      [](Recompute part) { return part != Recompute::kNone; });
  if (recomputes && !job.parallel.recompute)
    return SpecFault{at + ".recompute", "'recompute' contradicts parallel.recompute: off"};
  if (stage.devices.size() > 1 && job.train.numerics == Numerics::kExact)
    return SpecFault{at + ".devices",
                     "exact numerics exclude a stage of several devices, where the bits depend on "
                     "the shares (one device, or numerics: fast)"};
  const StagePlan planned = pinned_stage_plan(stage, job.model, 0);
  for (size_t member = 0; member < stage.devices.size(); ++member)
    if (const char* lack = lack_of(job.model, planned, static_cast<int>(member)))
      return SpecFault{at + ".devices", stage.devices[member] + " gets " + lack};
  return std::nullopt;
}

/// Whether a replica's stages have all layers, each once, in order.
Fault layers_fault(const PinnedReplica& replica, const ModelSpec& model, const std::string& at) {
  LayerIndex next = 0;
  for (size_t i = 0; i < replica.stages.size(); ++i) {
    const PinnedStage& stage = replica.stages[i];
    const std::string key = at + ".stages." + number(static_cast<int64_t>(i)) + ".layers";
    if (stage.first_layer != next)
      return SpecFault{key, "'layers' begin at " + number(stage.first_layer) + " where layer " +
                                number(next) + " is due"};
    if (stage.last_layer < stage.first_layer)
      return SpecFault{key, "'layers' end before they begin"};
    next = stage.last_layer + 1;
  }
  if (next == layer_count(model)) return std::nullopt;
  return SpecFault{at + ".stages", "the stages have layers 0 to " + number(next - 1) +
                                       ", the model has 0 to " + number(layer_count(model) - 1) +
                                       " (embedding, blocks, head)"};
}

Fault samples_fault(const PinnedReplica& replica, const TrainSpec& train, const std::string& at) {
  if (replica.grains && !train.grain)
    return SpecFault{at + ".grains", "'grains' counts grains: give train.grain, too"};
  if (replica.grains && *replica.grains < 1)
    return SpecFault{at + ".grains", "'grains' must be at least 1"};
  if (!replica.micro_batch) return std::nullopt;
  const int size = *replica.micro_batch;
  if (size < 1) return SpecFault{at + ".micro_batch", "'micro_batch' must be at least 1"};
  if (train.grain && size % *train.grain != 0)
    return SpecFault{at + ".micro_batch", "'micro_batch' must be whole grains of " +
                                              number(*train.grain) + ", found " + number(size)};
  const int grain = train.grain.value_or(1);
  if ((size - 1) / grain > (train.global_batch - 1) / grain)  // the last grain may be short
    return SpecFault{at + ".micro_batch", "'micro_batch': " + number(size) +
                                              " samples are more than a step has "
                                              "(train.global_batch: " +
                                              number(train.global_batch) + ")"};
  if (train.numerics == Numerics::kExact && train.grain && size != *train.grain)
    return SpecFault{at + ".micro_batch", "exact numerics compute one grain at a time, " +
                                              number(*train.grain) + " samples"};
  return std::nullopt;
}

Fault replica_fault(const PinnedReplica& replica, const JobSpec& job, const std::string& at) {
  if (replica.stages.empty()) return SpecFault{at, "the replica has no stages"};
  if (auto fault = layers_fault(replica, job.model, at)) return fault;
  if (auto fault = samples_fault(replica, job.train, at)) return fault;
  for (size_t i = 0; i < replica.stages.size(); ++i)
    if (auto fault =
            stage_fault(replica.stages[i], job, at + ".stages." + number(static_cast<int64_t>(i))))
      return fault;
  const std::optional<int>& sharing = job.parallel.tensor;
  for (size_t i = 0; i < replica.stages.size(); ++i) {
    const auto devices = static_cast<int>(replica.stages[i].devices.size());
    if (sharing && *sharing != devices)
      return SpecFault{at + ".stages." + number(static_cast<int64_t>(i)) + ".devices",
                       "the stage has " + number(devices) + " devices; parallel.tensor wants " +
                           number(*sharing)};
  }
  const std::optional<int>& wanted = job.parallel.pipeline;
  const auto stages = static_cast<int>(replica.stages.size());
  if (wanted && *wanted != stages)
    return SpecFault{at + ".stages", "the replica has " + number(stages) +
                                         " stages; parallel.pipeline wants " + number(*wanted)};
  return std::nullopt;
}

/// The grains of all replicas together.
Fault grains_fault(const JobSpec& job) {
  if (!job.train.grain || job.pin.replicas.empty()) return std::nullopt;
  const int grain = *job.train.grain;
  const int all = (job.train.global_batch + grain - 1) / grain;
  int64_t least = 0;
  for (const PinnedReplica& replica : job.pin.replicas) least += replica.grains.value_or(1);
  if (least <= all) return std::nullopt;
  return SpecFault{"pin.replicas", "the replicas compute at least " + number(least) +
                                       " grains; a step has " + number(all)};
}

/// Every device once, and no more than the job allows.
Fault devices_fault(const JobSpec& job) {
  std::set<std::string> seen;
  for (const auto& [key, device] : pinned_devices(job.pin))
    if (!seen.insert(device).second) return SpecFault{key, device + " is pinned twice"};
  const auto devices = static_cast<int>(seen.size());
  if (job.devices.count && devices > job.devices.count->high)
    return SpecFault{"pin.replicas", "the replicas have " + number(devices) +
                                         " devices; resources.devices.count allows " +
                                         number(job.devices.count->high)};
  for (size_t i = 0; i < job.pin.leave_out.size(); ++i)
    if (!seen.insert(job.pin.leave_out[i]).second)
      return SpecFault{"pin.leave_out." + number(static_cast<int64_t>(i)),
                       job.pin.leave_out[i] + " is pinned twice"};
  return std::nullopt;
}

Result<Unit> check_there(const JobSpec& job, const FleetSpec& fleet, const std::string& key,
                         const std::string& id) {
  if (fleet.find(id) != nullptr) return Unit{};
  std::vector<std::string_view> known;
  for (const DeviceSpec& device : fleet.devices) known.push_back(device.id);
  const std::string near = did_you_mean(id, known.data(), known.size());
  return fail(ErrorCode::kNoDevice,
              "no device '" + id + "' in " + (fleet.source.empty() ? "the fleet" : fleet.source) +
                  (near.empty() ? "" : " (did you mean '" + near + "'?)"),
              place_of(job, key));
}

}  // namespace

StagePlan pinned_stage_plan(const PinnedStage& pinned, const ModelSpec& model, int first_rank) {
  StagePlan stage;
  stage.first_layer = pinned.first_layer;
  stage.last_layer = pinned.last_layer;
  stage.precision = pinned.precision;
  stage.shares = pinned.shares;
  if (stage.shares.empty())
    stage.shares.assign(pinned.devices.size(), 1.0 / static_cast<double>(pinned.devices.size()));
  for (size_t i = 0; i < pinned.devices.size(); ++i)
    stage.ranks.emplace_back(first_rank + static_cast<int>(i));
  stage.recompute = pinned.recompute;
  if (pinned.recompute.size() != 1) return stage;
  stage.recompute.clear();
  for (LayerIndex layer = pinned.first_layer; layer <= pinned.last_layer; ++layer) {
    const bool is_block = layer > 0 && layer <= model.layers;
    stage.recompute.push_back(is_block ? pinned.recompute.front() : Recompute::kNone);
  }
  return stage;
}

std::vector<std::pair<std::string, std::string>> pinned_devices(const PinSpec& pin) {
  std::vector<std::pair<std::string, std::string>> devices;
  for (size_t r = 0; r < pin.replicas.size(); ++r)
    for (size_t s = 0; s < pin.replicas[r].stages.size(); ++s) {
      const std::vector<std::string>& ids = pin.replicas[r].stages[s].devices;
      for (size_t d = 0; d < ids.size(); ++d)
        devices.emplace_back("pin.replicas." + std::to_string(r) + ".stages." + std::to_string(s) +
                                 ".devices." + std::to_string(d),
                             ids[d]);
    }
  return devices;
}

std::optional<SpecFault> pin_fault(const JobSpec& job) {
  const std::vector<PinnedReplica>& replicas = job.pin.replicas;
  for (size_t i = 0; i < replicas.size(); ++i)
    if (auto fault =
            replica_fault(replicas[i], job, "pin.replicas." + number(static_cast<int64_t>(i))))
      return fault;
  if (auto fault = grains_fault(job)) return fault;
  const auto count = static_cast<int>(replicas.size());
  if (job.parallel.data && count > *job.parallel.data)
    return SpecFault{"pin.replicas", "there are " + number(count) + "; parallel.data wants " +
                                         number(*job.parallel.data)};
  return devices_fault(job);
}

Result<Unit> check_pinned_devices(const JobSpec& job, const FleetSpec& fleet) {
  for (const auto& [key, id] : pinned_devices(job.pin)) {
    MOTLEY_TRY_VOID(check_there(job, fleet, key, id));
    const std::string demand = unmet_demand(*fleet.find(id), job);
    if (!demand.empty())
      return fail(ErrorCode::kNoDevice, id + " is pinned, but excluded by " + demand,
                  place_of(job, key));
  }
  for (size_t i = 0; i < job.pin.leave_out.size(); ++i)
    MOTLEY_TRY_VOID(
        check_there(job, fleet, "pin.leave_out." + std::to_string(i), job.pin.leave_out[i]));
  return Unit{};
}

}  // namespace motley
