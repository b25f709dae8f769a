#include "scheduler/run/simulated_profile.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "core/json_file.h"
#include "core/spec/catalog_reader.h"
#include "core/spec/precisions.h"
#include "core/work_table.h"
#include "planner/costs/catalog_profile.h"
#include "scheduler/launch/command.h"
#include "scheduler/launch/worker_program.h"
#include "scheduler/run/profile_cache.h"
#include "scheduler/run/profile_file.h"

namespace motley {
namespace {

constexpr double kCountingWorkSeconds = 300;

/// One answer for each device of the request.
Result<std::vector<WorkTable>> count_work_of(const WorkRequest& request) {
  MOTLEY_TRY(const std::string worker, worker_program());
  MOTLEY_TRY(const CommandOutput output,
             run_command({{worker, "estimate", "--work", "-"}, to_json(request).dump()},
                         nanos_of_seconds(kCountingWorkSeconds)));
  if (!output.status.ok())
    return fail(error_code_of_exit(output.status.status),
                "cannot count the work of the job: " + last_words_of_worker(output.err));
  MOTLEY_TRY(const auto document,
             parse_json_file(output.out, worker + " estimate", ErrorCode::kBrokenInstall));
  MOTLEY_TRY(auto tables, work_tables_from_json(document));
  if (tables.size() == request.devices.size()) return tables;
  return fail(ErrorCode::kBrokenInstall, "motley-worker estimate counted other devices");
}

/// Where its rates come from; null: its pace.
Result<const CatalogDevice*> figures_of(const DeviceCatalog& catalog, const DeviceSpec& device) {
  const std::string measured = "; `motley profile` measures it";
  if (device.paced && device.memory) return nullptr;
  if (device.paced)
    return fail(ErrorCode::kInvalidSpec,
                "device " + device.id + ": nothing says how much memory it has" + measured,
                device.place);
  if (device.kind != DeviceKind::kCuda || device.share)
    return fail(ErrorCode::kInvalidSpec,
                "device " + device.id + " (" + device.type + "): no figures tell how fast " +
                    (device.share ? "a part of a GPU" : "a CPU") + " is" + measured,
                device.place);
  return find_figures(catalog, device);
}

/// The fleet's devices with their place in what the worker is asked: alike ones are counted once.
class SimulatedFleet {
 public:
  explicit SimulatedFleet(const JobSpec& job) { request_.job = job; }

  Result<Unit> add(const DeviceSpec& device, const DeviceCatalog& catalog) {
    MOTLEY_TRY(const CatalogDevice* const figures, figures_of(catalog, device));
    MOTLEY_TRY(const std::vector<Precision> precisions,
               precisions_to_simulate(request_.job, device, figures));
    DeviceToSimulate& added = devices_.emplace_back();
    added.spec = &device;
    added.figures = figures;
    added.memory_limit = device.memory ? *device.memory : figures->memory;
    std::vector<size_t>& numbers = numbers_.emplace_back();
    for (const Precision precision : precisions) {
      added.in.push_back({precision, nullptr});
      numbers.push_back(number_of({.kind = kind_driven(request_.job, device),
                                   .precision = precision,
                                   .threads = device.threads,
                                   .memory_limit = added.memory_limit}));
    }
    return Unit{};
  }

  Result<Unit> count() {
    MOTLEY_TRY(tables_, count_work_of(request_));
    for (size_t i = 0; i < devices_.size(); ++i)
      for (size_t j = 0; j < devices_[i].in.size(); ++j)
        devices_[i].in[j].work = &tables_[numbers_[i][j]];
    return Unit{};
  }

  const std::vector<DeviceToSimulate>& devices() const { return devices_; }

 private:
  size_t number_of(const WorkDevice& wanted) {
    const auto found = std::find(request_.devices.begin(), request_.devices.end(), wanted);
    const auto number = static_cast<size_t>(found - request_.devices.begin());
    if (found == request_.devices.end()) request_.devices.push_back(wanted);
    return number;
  }

  WorkRequest request_;
  std::vector<DeviceToSimulate> devices_;
  std::vector<std::vector<size_t>> numbers_;  ///< of tables, by device and precision
  std::vector<WorkTable> tables_;
};

/// "figures of A100-40GB and RTX3090 from configs/devices.yaml".
std::vector<std::string> remarks_on(const std::vector<DeviceToSimulate>& devices,
                                    const std::string& catalog) {
  std::set<std::string> types;
  bool paced = false;
  for (const DeviceToSimulate& device : devices) {
    if (device.figures == nullptr)
      paced = true;
    else
      types.insert(device.figures->type);
  }
  std::vector<std::string> remarks;
  std::string list;
  for (const std::string& type : types) list += (list.empty() ? "" : ", ") + type;
  if (!list.empty())
    remarks.push_back("figures of " + list + " from " + catalog +
                      ", with its assumptions of what training reaches of them");
  if (paced) remarks.emplace_back("paces as the fleet gives them");
  remarks.emplace_back("nothing of it was measured");
  return remarks;
}

/// Nothing where no cache can be read, either.
Result<std::optional<Profile>> cached_profile(const JobSpec& job, const FleetSpec& fleet) {
  MOTLEY_TRY(const std::string worker, worker_program());
  const auto cache = user_profile_cache(worker);
  if (!cache && cache.error().code == ErrorCode::kNotPermitted) return std::nullopt;
  if (!cache) return fail(cache.error());
  auto found = cache->find(job, fleet);
  if (!found) return std::nullopt;
  return std::move(found->profile);
}

}  // namespace

Result<ProfileForSimulation> simulated_profile(const JobSpec& job, const FleetSpec& admitted,
                                               const DeviceCatalog& catalog) {
  SimulatedFleet fleet(job);
  for (const DeviceSpec& device : admitted.devices) MOTLEY_TRY_VOID(fleet.add(device, catalog));
  MOTLEY_TRY_VOID(fleet.count());
  CatalogProfile made = catalog_profile(job, admitted, catalog.assume, fleet.devices());
  return ProfileForSimulation{std::move(made.profile), "catalog",
                              remarks_on(fleet.devices(), catalog.source), std::move(made.assumed)};
}

Result<ProfileForSimulation> profile_for_simulation(const JobSpec& job, const FleetSpec& admitted,
                                                    const SimulationSources& sources) {
  MOTLEY_TRY_VOID(check_precisions(admitted, job));
  if (!sources.profile.empty()) {
    MOTLEY_TRY(Profile profile, read_profile_file(sources.profile, job, admitted));
    return ProfileForSimulation{std::move(profile), "profile", {"profile " + sources.profile}, {}};
  }
  if (!sources.catalog.empty()) {
    MOTLEY_TRY(const DeviceCatalog catalog, read_catalog(sources.catalog));
    return simulated_profile(job, admitted, catalog);
  }
  MOTLEY_TRY(auto cached, cached_profile(job, admitted));
  if (cached)
    return ProfileForSimulation{std::move(*cached), "cache", {"profile from the cache"}, {}};
  MOTLEY_TRY(const DeviceCatalog catalog, built_in_catalog());
  return simulated_profile(job, admitted, catalog);
}

}  // namespace motley
