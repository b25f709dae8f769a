#include "core/spec/fleet_spec.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <string_view>
#include <unordered_set>

#include "core/log.h"
#include "core/units.h"

namespace motley {
namespace {

bool same_letter(char a, char b) {
  return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
}

bool fits_type(const DeviceSpec& device, const DeviceFilter& filter) {
  return filter.types.empty() ||
         std::any_of(filter.types.begin(), filter.types.end(),
                     [&](const std::string& type) { return type_matches(device.type, type); });
}

constexpr const char* kLeaveOut = "pin.leave_out";

bool demands_memory(const DeviceFilter& filter) { return filter.memory != BytesRange{}; }

/// A device that does not say its memory cannot promise any.
bool fits_memory(const DeviceSpec& device, const DeviceFilter& filter) {
  if (!demands_memory(filter)) return true;
  return device.memory && *device.memory >= filter.memory.low &&
         *device.memory <= filter.memory.high;
}

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

std::vector<std::string> types_of(const std::vector<DeviceSpec>& devices) {
  std::vector<std::string> types;
  for (const DeviceSpec& device : devices)
    if (std::find(types.begin(), types.end(), device.type) == types.end())
      types.push_back(device.type);
  return types;
}

std::string range_text(const BytesRange& range) {
  if (range.low == range.high) return format_bytes(range.low);
  return (range.low.value() > 0 ? format_bytes(range.low) : "") + ".." +
         (range.high.value() < INT64_MAX ? format_bytes(range.high) : "");
}

Result<Unit> check_demands(const FleetSpec& fleet, const std::vector<DeviceSpec>& fit,
                           const JobSpec& job, const DeviceFilter& filter) {
  const std::string source = fleet.source.empty() ? "the fleet" : fleet.source;
  const auto unmet = [&](const char* key, const std::string& what) {
    return fail(ErrorCode::kNoDevice, what, place_of(job, filter.key + "." + key));
  };
  if (fleet.devices.empty())
    return fail(ErrorCode::kNoDevice, "the fleet has no device", {.file = fleet.source});
  if (std::none_of(fleet.devices.begin(), fleet.devices.end(),
                   [&](const DeviceSpec& device) { return fits_type(device, filter); }))
    return unmet("types", "no device of type " + joined(filter.types) + " (" + source + " has " +
                              joined(types_of(fleet.devices)) + ")");
  const bool others_fit =
      std::any_of(fleet.devices.begin(), fleet.devices.end(), [&](const DeviceSpec& device) {
        return fits_type(device, filter) && fits_memory(device, filter);
      });
  if (fit.empty() && others_fit)
    return fail(ErrorCode::kNoDevice, "nothing in " + source + " is left that the job admits",
                place_of(job, kLeaveOut));
  if (fit.empty())
    return unmet("memory", "no device of the wanted type in " + source + " says it has " +
                               range_text(filter.memory) + " of memory");
  if (filter.count && static_cast<int>(fit.size()) < filter.count->low)
    return unmet("count", "the job wants " + std::to_string(filter.count->low) + " devices and " +
                              std::to_string(fit.size()) + " in " + source + " fit it" +
                              (filter.limits.empty() ? "" : " within its limits"));
  if (!filter.mix && types_of(fit).size() > 1)
    return unmet("mix", "the job forbids a mix and devices of several types in " + source +
                            " fit it: " + joined(types_of(fit)) + " (name one in " + filter.key +
                            ".types)");
  return Unit{};
}

/// Takes out what is too many, of what fits otherwise.
void keep_limits(const JobSpec& job, const DeviceFilter& filter, std::vector<DeviceSpec>* fit) {
  if (filter.limits.empty()) return;
  std::map<std::string, int> left = filter.limits;
  std::unordered_set<std::string> kept;
  const auto keep = [&](const DeviceSpec& device) {
    const auto is_full = [&](const auto& limit) {
      return limit.second == 0 && type_matches(device.type, limit.first);
    };
    if (kept.contains(device.id) || std::any_of(left.begin(), left.end(), is_full)) return;
    kept.insert(device.id);
    for (auto& [type, most] : left) most -= type_matches(device.type, type) ? 1 : 0;
  };
  for (const PinnedReplica& replica : job.pin.replicas)
    for (const PinnedStage& stage : replica.stages)
      for (const DeviceSpec& device : *fit)
        if (std::find(stage.devices.begin(), stage.devices.end(), device.id) != stage.devices.end())
          keep(device);
  std::for_each(fit->begin(), fit->end(), keep);
  std::erase_if(*fit, [&](const DeviceSpec& device) { return !kept.contains(device.id); });
}

FleetSpec fitting(const FleetSpec& fleet, const JobSpec& job, const DeviceFilter& filter) {
  FleetSpec fit = fleet;
  std::erase_if(fit.devices, [&](const DeviceSpec& device) {
    return !unmet_demand(device, job, filter).empty();
  });
  keep_limits(job, filter, &fit.devices);
  return fit;
}

/// "3 replicas of 2 stages of 2 devices each", what is left open not named; any of it is wanted.
std::string shape_text(const ParallelSpec& parallel) {
  std::string text;
  const auto add = [&](const std::optional<int>& count, const std::string& what) {
    if (!count) return;
    text += (text.empty() ? "" : " of ") + std::to_string(*count) + " " + what +
            (*count == 1 ? "" : "s");
  };
  add(parallel.data, "replica");
  add(parallel.pipeline, "stage");
  if (text.empty()) text = "stages";
  add(parallel.tensor, "device");
  return text + (parallel.tensor ? " each" : "");
}

/// What is wanted most of, for messages.
std::string wanted_most(const ParallelSpec& parallel) {
  const int data = parallel.data.value_or(1), pipeline = parallel.pipeline.value_or(1);
  const int tensor = parallel.tensor.value_or(1);
  if (data > 1 && data >= std::max(pipeline, tensor)) return "data";
  return pipeline >= tensor ? "pipeline" : "tensor";
}

/// Stages that so many devices of one host each can share.
int64_t stages_shared_by(int devices, const FleetSpec& fleet) {
  std::map<std::string_view, int64_t> of_hosts;
  for (const DeviceSpec& device : fleet.devices) ++of_hosts[device.host];
  int64_t stages = 0;
  for (const auto& [host, count] : of_hosts) stages += count / devices;
  return stages;
}

std::string limits_text(const DeviceFilter& filter, const DeviceSpec& device) {
  std::string text;
  for (const auto& [type, most] : filter.limits)
    if (type_matches(device.type, type))
      text += (text.empty() ? "" : ", ") + type + ": " + std::to_string(most);
  return text;
}

}  // namespace

bool computes_beside_sums(const DeviceSpec& device) {
  return device.kind == DeviceKind::kCpu && !device.paced;
}

bool takes_same_memory(const DeviceSpec& device, const DeviceSpec& other) {
  if (device.host != other.host) return false;
  if (device.kind != DeviceKind::kCuda || device.id == other.id) return true;
  return device.share && other.share && device.uuid == other.uuid;
}

Result<Unit> check_told_apart(const FleetSpec& fleet) {
  std::map<std::string, const DeviceSpec*> unnamed;  // by host: a GPU, a whole one if there is one
  for (const DeviceSpec& device : fleet.devices) {
    if (device.kind != DeviceKind::kCuda || !device.uuid.empty()) continue;
    const auto [first, is_new] = unnamed.try_emplace(device.host, &device);
    if (!is_new && (!device.share || !first->second->share))
      return fail(ErrorCode::kInvalidSpec,
                  "without a uuid " + device.id + " is the first GPU of its host, as " +
                      first->second->id + " is: give each its uuid, as `motley devices` shows it",
                  device.place);
    if (!device.share) first->second = &device;
  }
  return Unit{};
}

bool type_matches(std::string_view type, std::string_view wanted) {
  if (wanted.empty() || wanted.size() > type.size()) return false;
  if (!std::equal(wanted.begin(), wanted.end(), type.begin(), same_letter)) return false;
  return wanted.size() == type.size() || type[wanted.size()] == '-';
}

std::vector<std::string> misspelt_types(const FleetSpec& fleet, const JobSpec& job) {
  std::vector<std::string> sentences;
  const auto look_at = [&](const std::string& key, const auto& by_type) {
    std::vector<std::string> others = types_of(fleet.devices);
    for (const auto& [name, value] : by_type)
      std::erase_if(others, [&](const std::string& type) { return type_matches(type, name); });
    const std::vector<std::string_view> choices(others.begin(), others.end());
    for (const auto& [name, value] : by_type) {
      const auto is_it = [&](const DeviceSpec& one) { return type_matches(one.type, name); };
      const std::string near = did_you_mean(name, choices.data(), choices.size());
      if (!near.empty() && std::none_of(fleet.devices.begin(), fleet.devices.end(), is_it))
        sentences.push_back(Error{ErrorCode::kInvalidSpec,
                                  "'" + key + "': no device is of the type '" + one_line(name) +
                                      "' (did you mean '" + near + "'?)",
                                  place_of(job, key)}
                                .to_string());
    }
  };
  look_at("train.precision", job.train.precision_by_type);
  look_at(job.devices.key + ".limits", job.devices.limits);
  return sentences;
}

std::vector<std::string> FleetSpec::hosts() const {
  std::vector<std::string> names;
  std::unordered_set<std::string_view> known;
  for (const DeviceSpec& device : devices)
    if (known.insert(device.host).second) names.push_back(device.host);
  return names;
}

const DeviceSpec* FleetSpec::find(const std::string& id) const {
  const auto found = std::find_if(devices.begin(), devices.end(),
                                  [&](const DeviceSpec& device) { return device.id == id; });
  return found == devices.end() ? nullptr : &*found;
}

Result<FleetSpec> admitted(const FleetSpec& fleet, const JobSpec& job, const DeviceFilter& filter) {
  FleetSpec fit = fitting(fleet, job, filter);
  MOTLEY_TRY_VOID(check_demands(fleet, fit.devices, job, filter));
  return fit;
}

Result<FleetSpec> admitted(const FleetSpec& fleet, const JobSpec& job) {
  return admitted(fleet, job, job.devices);
}

FleetSpec fitting(const FleetSpec& fleet, const JobSpec& job) {
  return fitting(fleet, job, job.devices);
}

Result<Unit> choose_alternative(const FleetSpec& fleet, JobSpec& job) {
  std::string reasons;
  for (const DeviceFilter& filter : job.any_of) {
    const Result<FleetSpec> fit = admitted(fleet, job, filter);
    if (fit) {
      job.devices = DeviceFilter(filter);
      job.any_of.clear();
      return Unit{};
    }
    reasons += (reasons.empty() ? "" : "; ") + filter.key + ": " + fit.error().message;
  }
  if (job.any_of.empty()) return Unit{};
  return fail(ErrorCode::kNoDevice, "no alternative can be had: " + reasons,
              place_of(job, "any_of"));
}

Result<Unit> check_parallel(const FleetSpec& fleet, const JobSpec& job) {
  const ParallelSpec& parallel = job.parallel;
  const int tensor = parallel.tensor.value_or(1);
  const int64_t stages = int64_t{parallel.data.value_or(1)} * parallel.pipeline.value_or(1);
  MOTLEY_TRY(const FleetSpec fit, admitted(fleet, job));
  const auto there = static_cast<int64_t>(fit.devices.size());
  const int64_t most = job.devices.count ? job.devices.count->high : there;
  const std::string source = fleet.source.empty() ? "the fleet" : fleet.source;
  const auto refuse = [&](const std::string& key, const std::string& what) {
    return fail(ErrorCode::kNoPlan, "'" + key + "': " + what + " (lower it, or leave it auto)",
                place_of(job, "parallel." + key));
  };
  if (const int64_t wanted = stages * tensor; wanted > std::min(there, most)) {
    const std::string has = there > most
                                ? job.devices.key + ".count allows " + std::to_string(most)
                                : source + " has " + std::to_string(there) + " for the job";
    return refuse(wanted_most(parallel), "at least " + std::to_string(wanted) +
                                             " devices are needed for " + shape_text(parallel) +
                                             "; " + has);
  }
  if (tensor == 1 || !job.pin.replicas.empty()) return Unit{};  // a pinned stage may be of any
  if (const int64_t shared = stages_shared_by(tensor, fit); shared < stages)
    return refuse("tensor", std::to_string(tensor) + " devices of one host share each stage; " +
                                source + " has them for " + std::to_string(shared) + " of " +
                                std::to_string(stages) + (stages == 1 ? " stage" : " stages"));
  return Unit{};
}

std::string unmet_demand(const DeviceSpec& device, const JobSpec& job) {
  return unmet_demand(device, job, job.devices);
}

std::string unmet_demand(const DeviceSpec& device, const JobSpec& job, const DeviceFilter& filter) {
  const std::vector<std::string>& out = job.pin.leave_out;
  if (std::find(out.begin(), out.end(), device.id) != out.end()) return kLeaveOut;
  if (!fits_type(device, filter)) return filter.key + ".types (" + joined(filter.types) + ")";
  if (!fits_memory(device, filter))
    return filter.key + ".memory (" + range_text(filter.memory) + ")";
  return "";
}

std::string why_not_admitted(const DeviceSpec& device, const JobSpec& job) {
  const std::string demand = unmet_demand(device, job);
  if (demand == kLeaveOut) return demand;
  const DeviceFilter& filter = job.devices;
  return "not admitted by " +
         (demand.empty() ? filter.key + ".limits (" + limits_text(filter, device) + ")" : demand);
}

}  // namespace motley
