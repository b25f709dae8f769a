#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "comm/link_probe.h"
#include "core/check.h"
#include "core/spec/json.h"
#include "core/spec/profile_key.h"
#include "worker/profiler/profiler.h"

namespace motley {
namespace {

constexpr int kReductionRepetitions = 5;

/// What a device is, for the profile cache: hardware and library, threads, limit, pace.
std::string device_identity(const DeviceSpec& spec, const Device& device, const FleetSpec& fleet) {
  nlohmann::json what = to_json(spec);
  what["name"] = device.name();
  what["arithmetic"] = device.arithmetic_class();
  what["pace_flops"] = fleet.pace_flops;
  what["clock"] = static_cast<int>(fleet.clock);
  return what.dump();
}

/// Median seconds of summing the job's gradient over all ranks.
template <class Element>
Result<double> time_reduction(Communicator& communicator, Pacer& pacer, int64_t elements) {
  std::vector<Element> gradient(static_cast<size_t>(elements), Element(1));
  std::vector<double> seconds;
  for (int i = 0; i <= kReductionRepetitions; ++i) {
    MOTLEY_TRY_VOID(communicator.barrier());
    const double start = pacer.now();
    MOTLEY_TRY_VOID(communicator.all_reduce_sum(std::span<Element>(gradient)));
    MOTLEY_TRY_VOID(pacer.meet(communicator));
    if (i > 0) seconds.push_back(pacer.now() - start);  // the first one warms up
    std::fill(gradient.begin(), gradient.end(), Element(1));
  }
  std::nth_element(seconds.begin(), seconds.begin() + kReductionRepetitions / 2, seconds.end());
  return seconds[kReductionRepetitions / 2];
}

Result<ReductionPoint> measure_reduction(const JobSpec& job, const Device& device,
                                         Communicator& communicator, Pacer& pacer) {
  const int64_t elements = parameter_count(job.model);
  const bool exact = job.train.numerics == Numerics::kExact;
  ReductionPoint point;
  point.ranks = communicator.size();
  point.bytes = Bytes(elements * (exact ? 8 : device.element_bytes()));
  if (exact) {
    MOTLEY_TRY(point.seconds, time_reduction<int64_t>(communicator, pacer, elements));
  } else if (device.element_bytes() == 8) {
    MOTLEY_TRY(point.seconds, time_reduction<double>(communicator, pacer, elements));
  } else {
    MOTLEY_TRY(point.seconds, time_reduction<float>(communicator, pacer, elements));
  }
  return point;
}

/// The same over the first 2, 3, … ranks: a plan may leave devices out.
Result<std::vector<ReductionPoint>> measure_reductions(const JobSpec& job, const FleetSpec& fleet,
                                                       const Device& device, Communicator& world,
                                                       Pacer& pacer) {
  std::vector<ReductionPoint> points;
  for (int ranks = 2; ranks <= world.size(); ranks = ranks < 4 ? ranks + 1 : ranks * 2) {
    ReductionPoint point;
    if (world.rank() < ranks) {
      std::vector<int> first(static_cast<size_t>(ranks));
      std::iota(first.begin(), first.end(), 0);
      const auto group = world.group(first);
      MOTLEY_TRY(point, measure_reduction(job, device, *group, pacer));
    }
    points.push_back(point);
    MOTLEY_TRY_VOID(world.barrier());
  }
  if (points.back().ranks != world.size()) {
    MOTLEY_TRY(const ReductionPoint all, measure_reduction(job, device, world, pacer));
    points.push_back(all);
  }
  for (ReductionPoint& point : points) {
    FleetSpec leading = fleet;
    leading.devices.resize(static_cast<size_t>(point.ranks));
    point.hosts = leading.hosts();
  }
  return points;
}

/// Links take real time: under the virtual clock there is nothing to measure.
Result<std::vector<LinkProfile>> measure_links(const FleetSpec& fleet, Communicator& communicator,
                                               const Pacer& pacer) {
  if (pacer.virtual_clock()) return std::vector<LinkProfile>{};
  std::vector<std::string> hosts;
  for (const DeviceSpec& device : fleet.devices) hosts.push_back(device.host);
  return probe_links(communicator, hosts, [&] { return pacer.now(); });
}

/// The profiles of all ranks, by rank; the first error of any rank on every rank.
Result<std::vector<DeviceProfile>> exchange(const Result<DeviceProfile>& mine,
                                            Communicator& communicator) {
  nlohmann::json message;
  if (mine) {
    Profile one;
    one.devices.push_back(*mine);
    message["profile"] = to_json(one);
  } else {
    message["error"] = mine.error().message;
    message["code"] = name_of(mine.error().code);
  }
  MOTLEY_TRY(const std::vector<std::string> all, communicator.all_gather(message.dump()));
  std::vector<DeviceProfile> devices;
  for (const std::string& text : all) {
    const auto other = nlohmann::json::parse(text);
    if (other.contains("error"))
      return fail(error_code_of_name(other["code"].get<std::string>()),
                  other["error"].get<std::string>());
    MOTLEY_TRY(Profile profile, profile_from_json(other["profile"]));
    devices.push_back(std::move(profile.devices.front()));
  }
  return devices;
}

}  // namespace

Result<Profile> measure_fleet(const JobSpec& job, const FleetSpec& fleet, Device& device,
                              Pacer& pacer, Communicator& communicator,
                              const ProfilerProgress& progress) {
  const DeviceSpec& spec = fleet.devices[static_cast<size_t>(communicator.rank())];
  MOTLEY_CHECK(spec.memory.has_value(), "the caller resolves memory limits first");
  auto mine = measure_device(job, device, *spec.memory, pacer, ProfilerOptions{}, progress);
  if (mine) {
    mine->device = spec.id;
    mine->type = spec.type;
    mine->identity = device_identity(spec, device, fleet);
    mine->evidence = spec.paced ? Evidence::kPaced : Evidence::kMeasured;
  }
  Profile profile;
  profile.code_version = code_version();
  profile.job_key = profile_job_key(job);
  MOTLEY_TRY(profile.devices, exchange(mine, communicator));
  MOTLEY_TRY_VOID(pacer.meet(communicator));
  if (communicator.size() == 1) return profile;

  progress("links");
  MOTLEY_TRY(profile.links, measure_links(fleet, communicator, pacer));
  progress("reduction");
  MOTLEY_TRY(profile.reductions, measure_reductions(job, fleet, device, communicator, pacer));

  // Every rank timed its own share of the waiting: rank 0's account stands for all.
  std::string text = to_json(profile).dump();
  MOTLEY_TRY_VOID(communicator.broadcast(text, 0));
  return profile_from_json(nlohmann::json::parse(text));
}

}  // namespace motley
