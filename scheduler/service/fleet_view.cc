#include "scheduler/service/fleet_view.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/or_null.h"
#include "scheduler/run/progress_file.h"
#include "scheduler/run/run_directory.h"

namespace motley {
namespace {

using nlohmann::json;

bool may_have_attempt(JobState state) {
  return state == JobState::kLaunching || state == JobState::kRunning ||
         state == JobState::kStopping;
}

json straggler_json(const RunProgress& progress) {
  const auto straggler = progress.straggler();
  if (!straggler) return nullptr;
  const RankProgress& rank = progress.ranks[straggler->rank];
  return {{"rank", rank.rank},
          {"device", rank.device},
          {"others_wait_share", straggler->others_wait_share},
          {"text", straggler_text(*straggler, rank.type, rank.host)}};
}

json share_json(const std::optional<RankProgress>& rank) {
  const auto time = rank ? rank->time() : std::nullopt;
  return time ? json(waiting_share(*time)) : json(nullptr);
}

json device_json(const DeviceView& view, const FleetView& fleet) {
  json job = nullptr, name = nullptr, step = nullptr, number = nullptr, busy = nullptr;
  if (const auto found = fleet.jobs.find(view.job); found != fleet.jobs.end()) {
    job = view.job;
    name = found->second.name;
    if (found->second.progress) step = or_null(found->second.progress->step_seconds);
  }
  const json waits = share_json(view.rank);
  if (waits.is_number()) busy = 1 - waits.get<double>();
  const RankProgress rank = view.rank.value_or(RankProgress());
  if (view.rank) number = rank.rank;
  const DeviceGauge gauge = view.gauge.value_or(DeviceGauge());
  return {{"device", view.device.id},
          {"host", view.device.host},
          {"type", view.device.type},
          {"uuid", view.device.uuid},
          {"state", view.state},
          {"job", job},
          {"job_name", name},
          {"rank", number},
          {"busy_share", busy},
          {"waiting_share", waits},
          {"step_seconds", step},
          {"memory_bytes", or_null(rank.memory)},
          {"memory_limit_bytes", or_null(rank.memory_limit)},
          {"gpu_utilisation", or_null(gauge.utilisation)},
          {"temperature", or_null(gauge.temperature)},
          {"gpu_memory_used_bytes", or_null(gauge.memory_used)},
          {"gpu_memory_bytes", or_null(gauge.memory)}};
}

const BusyJob& busy_job(int64_t id, const Database& kept, const ServiceDirectory& directory,
                        FleetView* view) {
  const auto [found, is_new] = view->jobs.try_emplace(id);
  if (!is_new) return found->second;
  const auto job = find_job(kept, id);
  if (job) found->second = {job->name, progress_of(directory, *job)};
  return found->second;
}

std::optional<RankProgress> rank_on(const std::string& device, const BusyJob& job) {
  if (!job.progress) return std::nullopt;
  for (const RankProgress& rank : job.progress->ranks)
    if (rank.device == device) return rank;
  return std::nullopt;
}

std::optional<DeviceGauge> gauge_on(const DeviceSpec& device, const Coordinator& coordinator,
                                    const std::vector<DeviceGauge>& own) {
  const auto node = coordinator.nodes().find(device.host);
  if (device.uuid.empty() || node == coordinator.nodes().end()) return std::nullopt;
  const bool silent = node->second.state == NodeState::kLost;
  for (const DeviceGauge& gauge : node->second.is_own() ? own : node->second.gauges)
    if (!silent && gauge.uuid == device.uuid) return gauge;
  return std::nullopt;
}

std::string state_of(size_t device, const Coordinator& coordinator) {
  const DevicePools& pools = coordinator.devices();
  if (pools.owner_of(device) != 0) return "given";
  if (pools.is_aside(device)) return "leftover";
  const auto node = coordinator.nodes().find(pools.fleet().devices[device].host);
  const bool is_open = pools.access_of(device) == DeviceAccess::kOpen;
  return is_open || node == coordinator.nodes().end() ? "free" : node->second.state_name();
}

}  // namespace

std::optional<RunProgress> progress_of(const ServiceDirectory& directory, const StoredJob& job) {
  if (!may_have_attempt(job.status.state)) return std::nullopt;
  const std::string run = newest_run(directory.job(job.id) + "/motley", job.name);
  if (run.empty()) return std::nullopt;
  auto progress = read_progress(real_file_system(), run + "/progress.json");
  return progress ? std::optional(std::move(*progress)) : std::nullopt;
}

json progress_json(const std::optional<RunProgress>& progress) {
  if (!progress) return nullptr;
  json document = to_json(*progress);
  for (const char* name : {"version", "epoch", "ranks"}) document.erase(name);
  document["straggler"] = straggler_json(*progress);
  return document;
}

json whole_progress_json(const RunProgress& progress) {
  json document = progress_json(progress);
  document["ranks"] = to_json(progress)["ranks"];
  for (size_t i = 0; i < progress.ranks.size(); ++i)
    document["ranks"][i]["waiting_share"] = share_json(progress.ranks[i]);
  return document;
}

FleetView view_of_fleet(const Coordinator& coordinator, const Database& kept,
                        const ServiceDirectory& directory, const std::vector<DeviceGauge>& own) {
  FleetView view;
  const DevicePools& pools = coordinator.devices();
  for (size_t i = 0; i < pools.fleet().devices.size(); ++i) {
    DeviceView& device = view.devices.emplace_back();
    device.device = pools.fleet().devices[i];
    device.job = pools.owner_of(i);
    device.state = state_of(i, coordinator);
    device.gauge = gauge_on(device.device, coordinator, own);
    if (device.job == 0) continue;
    device.rank = rank_on(device.device.id, busy_job(device.job, kept, directory, &view));
  }
  return view;
}

json to_json(const FleetView& view) {
  json devices = json::array(), stragglers = json::array();
  for (const DeviceView& device : view.devices) devices.push_back(device_json(device, view));
  for (const auto& [id, job] : view.jobs) {
    if (!job.progress) continue;
    json straggler = straggler_json(*job.progress);
    if (straggler.is_null()) continue;
    straggler["job"] = id;
    stragglers.push_back(std::move(straggler));
  }
  return {{"devices", std::move(devices)}, {"stragglers", std::move(stragglers)}};
}

}  // namespace motley
