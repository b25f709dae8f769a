#include "tests/support/planning_case.h"

#include <algorithm>

#include "core/model.h"

namespace motley::testing {
namespace {

int draw(std::mt19937& random, int low, int high) {
  return std::uniform_int_distribution<int>(low, high)(random);
}

double draw_real(std::mt19937& random, double low, double high) {
  return std::uniform_real_distribution<double>(low, high)(random);
}

/// Points with gaps between them, each a little off a straight line: enough to fall at times.
LayerCurve random_curve(std::mt19937& random) {
  LayerCurve curve;
  const double fixed = draw_real(random, 0, 0.01);
  const double per_sample = draw_real(random, 0.001, 0.01);
  const double noise = draw(random, 0, 1) == 0 ? 0 : draw_real(random, 0, 0.6);
  for (int size = draw(random, 1, 2); size <= 9; size += draw(random, 1, 3)) {
    const double seconds = (fixed + per_sample * size) * draw_real(random, 1 - noise, 1 + noise);
    curve.points.push_back({size, seconds, 0.01, 3});
  }
  curve.fit = fit_curve(curve.points);
  return curve;
}

void add_random_links(std::mt19937& random, int hosts, PlanningCase* problem) {
  for (int a = 0; a < hosts; ++a) {
    for (int b = a; b < hosts; ++b) {
      if (draw(random, 0, 9) == 0) continue;  // an unknown link
      problem->add_link("host" + std::to_string(a), "host" + std::to_string(b),
                        draw_real(random, 0, 0.002), draw_real(random, 1e6, 1e8));
    }
  }
}

}  // namespace

PlanningCase::PlanningCase(int global_batch) {
  job.name = "case";
  job.source = "case.yaml";
  job.model = {"gpt", 1, 2, 8, 16, 32};
  job.train.global_batch = global_batch;
  profile.code_version = "test";
  profile.job_key = "key";
}

PlanningCase& PlanningCase::add(const LinearDevice& device) {
  const auto on_host =
      std::count_if(fleet.devices.begin(), fleet.devices.end(),
                    [&](const DeviceSpec& other) { return other.host == device.host; });
  DeviceSpec spec;
  spec.id = device.host + "/" + std::to_string(on_host);
  spec.host = device.host;
  spec.kind = DeviceKind::kCpu;
  spec.type = device.type;
  spec.paced.emplace();  // sums come after computing
  fleet.devices.push_back(spec);

  DeviceProfile measured;
  measured.device = spec.id;
  measured.type = spec.type;
  measured.identity = spec.id;
  measured.evidence = Evidence::kSimulated;
  LayerCurve curve;
  for (const int size : {1, 2, 4, 8, 16}) {
    curve.points.push_back({size, device.fixed + device.per_sample * size, 0.01, 5});
  }
  curve.fit = fit_curve(curve.points);
  measured.curves.push_back(curve);
  measured.step_overhead_seconds = device.step_overhead;
  measured.update_seconds = device.update;
  constexpr int64_t kMiB = 1 << 20;
  for (int size = 1; size <= device.largest_micro_batch + 2; ++size) {
    measured.memory.push_back({size, Bytes(20 * kMiB), Bytes(size * kMiB)});
  }
  // Between this size and the next, with the usual headroom taken off.
  measured.memory_limit = Bytes((20 + device.largest_micro_batch) * kMiB * 20 / 19 + kMiB / 2);
  profile.devices.push_back(measured);
  return *this;
}

PlanningCase& PlanningCase::add_reduction(int ranks, double seconds,
                                          std::vector<std::string> hosts) {
  profile.reductions.push_back({ranks, std::move(hosts), Bytes(1 << 20), seconds});
  return *this;
}

PlanningCase& PlanningCase::add_link(const std::string& a, const std::string& b, double latency,
                                     double bytes_per_second) {
  profile.links.push_back({{a, b}, latency, bytes_per_second});
  return *this;
}

PlanningCase& PlanningCase::at_own_speed() {
  for (DeviceSpec& device : fleet.devices) device.paced.reset();
  return *this;
}

PlanningCase PlanningCase::permuted(const std::vector<size_t>& order) const {
  PlanningCase other = *this;
  for (size_t i = 0; i < order.size(); ++i) {
    other.fleet.devices[i] = fleet.devices[order[i]];
    other.profile.devices[i] = profile.devices[order[i]];
  }
  return other;
}

PlanningCase PlanningCase::scaled(double factor) const {
  PlanningCase other = *this;
  for (DeviceProfile& device : other.profile.devices) {
    device.step_overhead_seconds *= factor;
    device.update_seconds *= factor;
    for (LayerCurve& curve : device.curves) {
      for (CurvePoint& point : curve.points) {
        point.seconds *= factor;
        point.forward_seconds *= factor;
      }
      curve.fit.fixed *= factor;
      curve.fit.per_sample *= factor;
    }
  }
  for (ReductionPoint& point : other.profile.reductions) point.seconds *= factor;
  for (LinkProfile& link : other.profile.links) {
    link.latency_seconds *= factor;
    link.bytes_per_second /= factor;
  }
  return other;
}

PlanningCase random_case(std::mt19937& random, int most_devices) {
  const int devices = draw(random, 1, most_devices);
  const int hosts = draw(random, 1, 3);
  PlanningCase problem(draw(random, 2, devices > 3 ? 14 : 24));
  for (int i = 0; i < devices; ++i) {
    LinearDevice device;
    device.host = "host" + std::to_string(i * hosts / devices);
    device.step_overhead = draw_real(random, 0, 0.01);
    device.update = draw(random, 0, 1) * draw_real(random, 0, 0.02);
    device.largest_micro_batch = draw(random, 1, 12);
    problem.add(device);
    problem.profile.devices.back().curves = {random_curve(random)};
  }
  if (draw(random, 0, 1) == 0) {
    add_random_links(random, hosts, &problem);
  }
  for (int ranks = 2; ranks <= devices; ++ranks) {
    std::vector<std::string> on;
    const int leading = draw(random, 0, hosts);
    for (int host = 0; host < leading; ++host) on.push_back("host" + std::to_string(host));
    if (draw(random, 0, 2) == 0) problem.add_reduction(ranks, draw_real(random, 0, 0.03), on);
  }
  if (draw(random, 0, 2) == 0) {
    problem.job.train.grain = draw(random, 1, std::min(4, problem.job.train.global_batch));
    if (draw(random, 0, 1) == 0) problem.job.train.numerics = Numerics::kExact;
  }
  if (draw(random, 0, 4) == 0) problem.job.devices.count = CountRange{1, draw(random, 1, devices)};
  return problem;
}

Bytes tied_bytes(const ModelSpec& model, Bytes embedding, int heads) {
  double tied = 0, own = 0;
  for (const LogicalTensor& tensor : logical_tensors(model)) {
    if (tensor.layers.front() != 0) continue;
    (tensor.layers.size() > 1 ? tied : own) += static_cast<double>(tensor.elements());
  }
  tied *= static_cast<double>(heads) / model.heads;
  return Bytes(static_cast<int64_t>(static_cast<double>(embedding.value()) * tied / (tied + own)));
}

}  // namespace motley::testing
