#include "core/profile.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/json_fields.h"
#include "core/spec/names.h"

namespace motley {
namespace {

using nlohmann::json;

json curve_to_json(const LayerCurve& curve) {
  json points = json::array();
  for (const CurvePoint& point : curve.points) {
    points.push_back({{"micro_batch", point.micro_batch},
                      {"seconds", point.seconds},
                      {"spread", point.spread},
                      {"repetitions", point.repetitions}});
    if (point.forward_seconds > 0) points.back()["forward_seconds"] = point.forward_seconds;
  }
  json document = {{"layer", curve.layer},
                   {"points", points},
                   {"fit",
                    {{"fixed", curve.fit.fixed},
                     {"per_sample", curve.fit.per_sample},
                     {"residual", curve.fit.residual}}}};
  if (curve.recompute != Recompute::kNone) document["recompute"] = spec_name(curve.recompute);
  if (curve.share < 1) {
    document["share"] = curve.share;
    document["sums"] = curve.sums;
    document["sum_bytes_per_sample"] = curve.sum_bytes_per_sample;
  }
  return document;
}

json device_to_json(const DeviceProfile& device) {
  json curves = json::array();
  for (const LayerCurve& curve : device.curves) curves.push_back(curve_to_json(curve));
  json memory = json::array();
  for (const MemoryPoint& point : device.memory) {
    memory.push_back({{"micro_batch", point.micro_batch},
                      {"fixed", point.fixed.value()},
                      {"activations", point.activations.value()}});
  }
  json document = {{"device", device.device},
                   {"type", device.type},
                   {"identity", device.identity},
                   {"evidence", name_of(device.evidence)},
                   {"memory_limit", device.memory_limit.value()},
                   {"curves", curves},
                   {"step_overhead_seconds", device.step_overhead_seconds},
                   {"update_seconds", device.update_seconds},
                   {"memory", memory}};
  if (device.precision != Precision::kAuto) document["precision"] = spec_name(device.precision);
  if (device.host_update_seconds > 0) document["host_update_seconds"] = device.host_update_seconds;
  if (device.host_memory > Bytes(0)) document["host_memory"] = device.host_memory.value();
  if (device.host_link) document["host_link"] = to_json(*device.host_link);
  return document;
}

constexpr double kLeastSeconds = 1e-15;  // of a small layer on an emulated device of 1e16 FLOP/s
constexpr int64_t kMostBytes = INT64_MAX / 4;  // sums of two stay within 64 bits
constexpr int kMostMicroBatch = 1 << 30;

/// Micro-batches of a list rise; `previous` is 0 before the first.
void read_rising(JsonFields& fields, int& micro_batch, int previous) {
  fields.read_between("micro_batch", micro_batch, 1, kMostMicroBatch);
  if (micro_batch <= previous) fields.fault("micro_batch", "must rise from one to the next");
}

void read_point(JsonFields& fields, std::vector<CurvePoint>& points) {
  CurvePoint point;
  read_rising(fields, point.micro_batch, points.empty() ? 0 : points.back().micro_batch);
  fields.read_between("seconds", point.seconds, kLeastSeconds, kMostSeconds);
  if (fields.has("spread")) fields.read_between("spread", point.spread, 0, kMostSeconds);
  fields.read_if("repetitions", point.repetitions);
  if (fields.has("forward_seconds")) {
    fields.read_between("forward_seconds", point.forward_seconds, 0, point.seconds);
  }
  points.push_back(point);
}

void read_curve(JsonFields& fields, std::vector<LayerCurve>& curves) {
  LayerCurve curve;
  fields.read("layer", curve.layer);
  if (fields.has("share")) fields.read_between("share", curve.share, 1e-9, 1);
  if (fields.has("recompute")) {
    fields.read_word("recompute", curve.recompute, from_spec_name<Recompute>);
  }
  if (fields.has("sums")) fields.read_between("sums", curve.sums, 0, kMostMicroBatch);
  if (fields.has("sum_bytes_per_sample")) {
    fields.read_between("sum_bytes_per_sample", curve.sum_bytes_per_sample, 0, 1e18);
  }
  for (const LayerCurve& other : curves) {
    if (other.layer == curve.layer && other.share == curve.share &&
        other.recompute == curve.recompute) {
      fields.fault("layer", "appears twice");
    }
  }
  fields.each("points", [&](JsonFields& f) { read_point(f, curve.points); });
  if (curve.points.empty()) fields.fault("points", "has no point");
  if (!fields.has("fit")) {
    curve.fit = fit_curve(curve.points);
  } else {
    fields.object("fit", [&](JsonFields& f) {
      f.read_between("fixed", curve.fit.fixed, 0, kMostSeconds)
          .read_between("per_sample", curve.fit.per_sample, 0, kMostSeconds)
          .read_between("residual", curve.fit.residual, 0, kMostSeconds);
    });
  }
  curves.push_back(std::move(curve));
}

void read_memory(JsonFields& fields, std::vector<MemoryPoint>& points) {
  MemoryPoint point;
  read_rising(fields, point.micro_batch, points.empty() ? 0 : points.back().micro_batch);
  fields.read_between("fixed", point.fixed, 0, kMostBytes)
      .read_between("activations", point.activations, 0, kMostBytes);
  points.push_back(point);
}

void read_device(JsonFields& fields, std::vector<DeviceProfile>& devices) {
  DeviceProfile device;
  fields.read("device", device.device)
      .read("type", device.type)
      .read("identity", device.identity)
      .read_word("evidence", device.evidence, evidence_from_name)
      .read_between("memory_limit", device.memory_limit, 0, kMostBytes)
      .each("curves", [&](JsonFields& f) { read_curve(f, device.curves); })
      .read_between("step_overhead_seconds", device.step_overhead_seconds, 0, kMostSeconds)
      .read_between("update_seconds", device.update_seconds, 0, kMostSeconds);
  if (fields.has("precision"))
    fields.read_word("precision", device.precision, from_spec_name<Precision>);
  if (fields.has("host_update_seconds")) {
    fields.read_between("host_update_seconds", device.host_update_seconds, 0, kMostSeconds);
  }
  if (fields.has("host_memory"))
    fields.read_between("host_memory", device.host_memory, 0, kMostBytes);
  if (fields.has("host_link")) {
    HostLink& link = device.host_link.emplace();
    fields.object("host_link", [&](JsonFields& f) { read_host_link(f, &link); });
  }
  fields.each("memory", [&](JsonFields& f) { read_memory(f, device.memory); });
  if (device.memory.empty()) fields.fault("memory", "has no entry");
  for (const DeviceProfile& other : devices) {
    if (other.device == device.device) fields.fault("device", "appears twice");
  }
  devices.push_back(std::move(device));
}

void read_reduction(JsonFields& fields, std::vector<ReductionPoint>& reductions) {
  ReductionPoint point;
  fields.read_between("ranks", point.ranks, 1, kMostMicroBatch)
      .read_if("hosts", point.hosts)
      .read_between("bytes", point.bytes, 0, kMostBytes)
      .read_between("seconds", point.seconds, 0, kMostSeconds);
  if (fields.has("spread")) fields.read_between("spread", point.spread, 0, kMostSeconds);
  if (fields.has("busy_share")) fields.read_between("busy_share", point.busy_share, 0, 1);
  reductions.push_back(point);
}

/// Samples a second at the point where they are most.
double best_of(const LayerCurve& curve) {
  double best = 0;
  for (const CurvePoint& point : curve.points)
    best = std::max(best, point.micro_batch / point.seconds);
  return best;
}

}  // namespace

const char* name_of(Evidence evidence) {
  switch (evidence) {
    case Evidence::kSimulated:
      return "simulated";
    case Evidence::kPaced:
      return "paced";
    case Evidence::kThrottled:
      return "throttled";
    case Evidence::kMeasured:
      return "measured";
  }
  return "measured";
}

std::optional<Evidence> evidence_from_name(std::string_view name) {
  for (const Evidence evidence :
       {Evidence::kSimulated, Evidence::kPaced, Evidence::kThrottled, Evidence::kMeasured}) {
    if (name == name_of(evidence)) return evidence;
  }
  return std::nullopt;
}

double LayerCurve::seconds_at(int micro_batch) const {
  const CurvePoint& first = points.front();
  const CurvePoint& last = points.back();
  if (micro_batch >= last.micro_batch) {
    return last.seconds + fit.per_sample * (micro_batch - last.micro_batch);
  }
  if (micro_batch < first.micro_batch) {
    const double at_first = fit.fixed + fit.per_sample * first.micro_batch;
    const double here = fit.fixed + fit.per_sample * micro_batch;
    return at_first > 0 ? first.seconds * here / at_first : first.seconds;
  }
  const auto above =
      std::upper_bound(points.begin(), points.end(), micro_batch,
                       [](int size, const CurvePoint& point) { return size < point.micro_batch; });
  const CurvePoint& from = *(above - 1);
  const CurvePoint& to = *above;
  const double part = static_cast<double>(micro_batch - from.micro_batch) /
                      static_cast<double>(to.micro_batch - from.micro_batch);
  return from.seconds + part * (to.seconds - from.seconds);
}

double LayerCurve::forward_seconds_at(int micro_batch) const {
  const auto part = [](const CurvePoint& point) { return point.forward_seconds / point.seconds; };
  const auto above =
      std::upper_bound(points.begin(), points.end(), micro_batch,
                       [](int size, const CurvePoint& point) { return size < point.micro_batch; });
  const CurvePoint& from = above == points.begin() ? *above : *(above - 1);
  const CurvePoint& to = above == points.end() ? from : *above;
  const int between = to.micro_batch - from.micro_batch;
  const double way =
      between > 0 ? static_cast<double>(micro_batch - from.micro_batch) / between : 0;
  return seconds_at(micro_batch) * (part(from) + way * (part(to) - part(from)));
}

double LayerCurve::uncertainty_at(int micro_batch) const {
  const auto above =
      std::lower_bound(points.begin(), points.end(), micro_batch,
                       [](const CurvePoint& point, int size) { return point.micro_batch < size; });
  if (above != points.end() && above->micro_batch == micro_batch) return above->spread;
  double uncertainty = fit.residual;
  if (above != points.end()) uncertainty = std::max(uncertainty, above->spread);
  if (above != points.begin()) uncertainty = std::max(uncertainty, (above - 1)->spread);
  return uncertainty;
}

double DeviceProfile::best_speed() const {
  if (const LayerCurve* model = curve("model")) return best_of(*model);
  double seconds = 0;
  for (const LayerCurve& layer : curves)
    if (layer.share == 1 && layer.recompute == Recompute::kNone) seconds += 1 / best_of(layer);
  return seconds > 0 ? 1 / seconds : 0;
}

const LayerCurve* DeviceProfile::curve(const std::string& layer, double share,
                                       Recompute recompute) const {
  for (const LayerCurve& candidate : curves) {
    if (candidate.layer == layer && candidate.share == share && candidate.recompute == recompute)
      return &candidate;
  }
  return nullptr;
}

const DeviceProfile* Profile::find(const std::string& device) const {
  for (const DeviceProfile& candidate : devices) {
    if (candidate.device == device) return &candidate;
  }
  return nullptr;
}

CurveFit fit_curve(const std::vector<CurvePoint>& points) {
  // In relative terms: y = 1 is to be met by u·fixed + v·per_sample with u = 1/seconds and
  // v = micro_batch/seconds.
  double uu = 0, uv = 0, vv = 0, u_sum = 0, v_sum = 0;
  for (const CurvePoint& point : points) {
    const double u = 1 / point.seconds;
    const double v = point.micro_batch / point.seconds;
    uu += u * u;
    uv += u * v;
    vv += v * v;
    u_sum += u;
    v_sum += v;
  }
  CurveFit fit;
  const double determinant = uu * vv - uv * uv;
  if (points.size() > 1 && determinant > 1e-12 * uu * vv) {
    fit.fixed = (u_sum * vv - v_sum * uv) / determinant;
    fit.per_sample = (v_sum * uu - u_sum * uv) / determinant;
  }
  // Neither part of a duration can be negative: the best fit is then on the boundary.
  if (fit.fixed <= 0) fit = {0, vv > 0 ? v_sum / vv : 0, 0};
  if (fit.per_sample < 0) fit = {uu > 0 ? u_sum / uu : 0, 0, 0};
  for (const CurvePoint& point : points) {
    const double fitted = fit.fixed + fit.per_sample * point.micro_batch;
    fit.residual = std::max(fit.residual, std::abs(fitted / point.seconds - 1));
  }
  return fit;
}

json to_json(const Profile& profile) {
  json devices = json::array();
  for (const DeviceProfile& device : profile.devices) devices.push_back(device_to_json(device));
  json links = json::array();
  for (const LinkProfile& link : profile.links) links.push_back(to_json(link));
  json reductions = json::array();
  for (const ReductionPoint& point : profile.reductions) {
    reductions.push_back({{"ranks", point.ranks},
                          {"hosts", point.hosts},
                          {"bytes", point.bytes.value()},
                          {"seconds", point.seconds},
                          {"spread", point.spread}});
    if (point.busy_share > 0) reductions.back()["busy_share"] = point.busy_share;
  }
  return {{"version", 1},
          {"code_version", profile.code_version},
          {"job_key", profile.job_key},
          {"job", profile.job},
          {"devices", devices},
          {"links", links},
          {"reductions", reductions}};
}

Result<Profile> profile_from_json(const json& document) {
  Profile profile;
  JsonFields fields(document);
  fields.read_version(1)
      .read("code_version", profile.code_version)
      .read("job_key", profile.job_key)
      .read("job", profile.job)
      .each("devices", [&](JsonFields& f) { read_device(f, profile.devices); })
      .each("links", [&](JsonFields& f) { read_link(f, profile.links.emplace_back()); })
      .each("reductions", [&](JsonFields& f) { read_reduction(f, profile.reductions); });
  MOTLEY_TRY_VOID(fields.done());
  return profile;
}

}  // namespace motley
