#include "planner/costs/catalog_profile.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "core/check.h"
#include "core/spec/device_identity.h"
#include "core/spec/names.h"
#include "core/spec/precisions.h"
#include "core/spec/profile_key.h"

namespace motley {
namespace {

constexpr double kTera = 1e12;
constexpr double kLeastPassSeconds = 1e-12;  // a layer takes some time

double compute_and_move(double flops, double rate, double bytes, double bandwidth) {
  return std::max(flops / rate, bytes / bandwidth);
}

/// Without what beginning its first section costs.
double seconds_of_pass(const DeviceRates& rates, const PassWork& pass, int micro_batch) {
  const double work = compute_and_move(pass.product_flops, rates.product_flops_per_second,
                                       pass.product_bytes, rates.bytes_per_second) +
                      compute_and_move(pass.other_flops, rates.other_flops_per_second,
                                       pass.other_bytes, rates.bytes_per_second) +
                      pass.operations * rates.operation_seconds;
  // After each sum over the ranks that share the layer another section begins.
  return work * (micro_batch + rates.half_batch) / micro_batch + pass.sums * rates.section_seconds;
}

LayerCurve curve_at(const DeviceRates& rates, const LayerWork& layer) {
  LayerCurve curve;
  curve.layer = layer.layer;
  curve.share = layer.share;
  curve.recompute = layer.recompute;
  if (layer.share < 1) {
    curve.sums = layer.points.front().forward.sums + layer.points.front().backward.sums;
    curve.sum_bytes_per_sample = layer.sum_bytes_per_sample;
  }
  for (const WorkPoint& work : layer.points) {
    CurvePoint point;
    point.micro_batch = work.micro_batch;
    point.forward_seconds = seconds_of_pass(rates, work.forward, work.micro_batch);
    point.seconds =
        std::max(kLeastPassSeconds,
                 point.forward_seconds + seconds_of_pass(rates, work.backward, work.micro_batch));
    curve.points.push_back(point);
  }
  curve.fit = fit_curve(curve.points);
  return curve;
}

/// Links between and within the hosts of a fleet: as it gives them, else as the catalog assumes.
class LinkAssumer {
 public:
  LinkAssumer(const FleetSpec& fleet, const CatalogAssumptions& assume,
              const std::vector<DeviceToSimulate>& devices)
      : hosts_(fleet.hosts()), assume_(assume) {
    // On the virtual clock what paced devices tell each other takes no time.
    free_ = fleet.clock == PaceClock::kVirtual;
    for (const DeviceToSimulate& device : devices) {
      on_host_[device.spec->host].push_back(&device);
      free_ = free_ && device.spec->paced.has_value();
    }
    for (const LinkSpec& link : fleet.links)
      written_[std::minmax(link.between[0], link.between[1])] = &link;
  }

  void add_all(CatalogProfile* into) const {
    for (size_t a = 0; a < hosts_.size(); ++a)
      for (size_t b = a; b < hosts_.size(); ++b)
        if (a != b || on_host_.at(hosts_[a]).size() > 1) add(hosts_[a], hosts_[b], into);
  }

 private:
  void add(const std::string& a, const std::string& b, CatalogProfile* into) const {
    if (const auto found = written_.find(std::minmax(a, b)); found != written_.end()) {
      const LinkSpec& link = *found->second;
      into->profile.links.push_back({{a, b}, seconds_of(link.latency), link.bytes_per_second});
    } else if (free_) {
      into->profile.links.push_back({{a, b}, 0, LinkProfile::kFree});
    } else {
      const CatalogLink& link = a == b ? within(a) : assume_.between_hosts;
      into->profile.links.push_back({{a, b}, seconds_of(link.latency), link.bytes_per_second});
      into->assumed.push_back(into->profile.links.back());
    }
  }

  const CatalogLink& within(const std::string& host) const {
    const std::vector<const DeviceToSimulate*>& here = on_host_.at(host);
    const CatalogDevice* const first = here.front()->figures;
    const bool alike = std::all_of(here.begin(), here.end(), [&](const DeviceToSimulate* device) {
      return device->figures != nullptr && device->figures == first;
    });
    return alike ? first->link : assume_.through_host;
  }

  std::vector<std::string> hosts_;
  const CatalogAssumptions& assume_;
  std::map<std::string, std::vector<const DeviceToSimulate*>> on_host_;
  std::map<std::pair<std::string, std::string>, const LinkSpec*> written_;  ///< names in order
  bool free_ = false;
};

/// Optimizer state in host memory: gradients come there, weights go back.
double host_update_seconds(const JobSpec& job, const CatalogAssumptions& assume,
                           const WorkTable& work) {
  const auto elements = static_cast<double>(parameter_count(job.model));
  return work.update_bytes / assume.host_bytes_per_second +
         2 * elements * sizeof(float) / assume.through_host.bytes_per_second;
}

DeviceProfile fastest_profile(const JobSpec& job, const FleetSpec& fleet,
                              const CatalogAssumptions& assume, const DeviceToSimulate& device) {
  MOTLEY_CHECK(!device.in.empty(), "a device is simulated in some precision");
  std::optional<DeviceProfile> fastest;
  for (const DeviceToSimulate::InPrecision& in : device.in) {
    DeviceRates rates = device.figures != nullptr
                            ? catalog_rates(*device.figures, assume, in.precision)
                            : paced_rates(*device.spec->paced, fleet.pace_flops);
    if (device.figures != nullptr)
      rates.host_update_seconds = host_update_seconds(job, assume, *in.work);
    DeviceProfile profile = profile_at(rates, *in.work);
    profile.precision = in.precision;
    if (!fastest || profile.best_speed() > fastest->best_speed()) fastest = std::move(profile);
  }
  fastest->device = device.spec->id;
  fastest->type = device.spec->type;
  fastest->identity = device_identity(fleet, *device.spec, Machine{});
  fastest->memory_limit = device.memory_limit;
  return std::move(*fastest);
}

}  // namespace

DeviceRates catalog_rates(const CatalogDevice& device, const CatalogAssumptions& assume,
                          Precision precision) {
  DeviceRates rates;
  const double reached = kTera * assume.product_efficiency;
  rates.product_flops_per_second = device.tflops.in(precision)*reached;
  rates.other_flops_per_second = device.tflops.fp32 * reached;
  rates.bytes_per_second = device.bytes_per_second * assume.bandwidth_efficiency;
  rates.operation_seconds = seconds_of(assume.operation_overhead);
  return rates;
}

DeviceRates paced_rates(const PaceSpec& pace, double pace_flops) {
  DeviceRates rates;
  rates.product_flops_per_second = rates.other_flops_per_second = pace_flops * pace.speed;
  rates.section_seconds = seconds_of(pace.overhead);
  rates.half_batch = pace.half_batch;
  return rates;
}

DeviceProfile profile_at(const DeviceRates& rates, const WorkTable& work) {
  DeviceProfile profile;
  profile.evidence = Evidence::kSimulated;
  for (const LayerWork& layer : work.layers) profile.curves.push_back(curve_at(rates, layer));
  profile.step_overhead_seconds = rates.section_seconds;
  profile.update_seconds = compute_and_move(work.update_flops, rates.other_flops_per_second,
                                            work.update_bytes, rates.bytes_per_second);
  profile.host_update_seconds =
      rates.host_update_seconds > 0 ? rates.host_update_seconds : profile.update_seconds;
  profile.memory = work.memory;
  return profile;
}

Result<std::vector<Precision>> precisions_to_simulate(const JobSpec& job, const DeviceSpec& device,
                                                      const CatalogDevice* figures) {
  const Precision asked = precision_computed(job, device);
  if (figures == nullptr) return std::vector<Precision>{asked};
  const CatalogTflops& tflops = figures->tflops;
  if (precision_open(job, device)) {
    std::vector<Precision> both = {Precision::kFp32};
    if (tflops.bf16 > 0 || tflops.fp16 > 0)
      both.insert(both.begin(), tflops.bf16 > 0 ? Precision::kBf16 : Precision::kFp16);
    return both;
  }
  if (tflops.in(asked) > 0) return std::vector<Precision>{asked};
  return fail(ErrorCode::kInvalidSpec,
              "device " + device.id + ": the job asks for " + spec_name(asked) +
                  ", of which the catalog has no rate for a " + figures->type,
              device.place);
}

CatalogProfile catalog_profile(const JobSpec& job, const FleetSpec& fleet,
                               const CatalogAssumptions& assume,
                               const std::vector<DeviceToSimulate>& devices) {
  CatalogProfile made;
  made.profile.code_version = code_version();
  made.profile.job_key = profile_job_key(job);
  made.profile.job = profile_job(job);
  for (const DeviceToSimulate& device : devices)
    made.profile.devices.push_back(fastest_profile(job, fleet, assume, device));
  LinkAssumer(fleet, assume, devices).add_all(&made);
  return made;
}

}  // namespace motley
