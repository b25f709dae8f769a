#include "scheduler/run/profile_text.h"

#include <algorithm>
#include <cstdio>
#include <ctime>

#include "core/spec/names.h"
#include "core/units.h"

namespace motley {
namespace {

/// Repetitions of one size that differ by more than this, as a share of their median.
constexpr double kDoubtfulSpread = 0.5;

template <class... Values>
std::string line(const char* format, Values... values) {
  std::string text(static_cast<size_t>(std::snprintf(nullptr, 0, format, values...)) + 1, '\0');
  std::snprintf(text.data(), text.size(), format, values...);
  text.back() = '\n';
  return text;
}

std::string curve_text(const LayerCurve& curve) {
  std::string text = line("  %11s %12s %12s %8s %12s", "micro-batch", "seconds", "samples/s",
                          "spread", "repetitions");
  for (const CurvePoint& point : curve.points)
    text += line("  %11d %12s %12.4g %7.1f%% %12d", point.micro_batch,
                 format_seconds(point.seconds).c_str(), point.micro_batch / point.seconds,
                 100 * point.spread, point.repetitions);
  return text + line("  fit: %s + %s a sample, largest residual %.1f %%",
                     format_seconds(curve.fit.fixed).c_str(),
                     format_seconds(curve.fit.per_sample).c_str(), 100 * curve.fit.residual);
}

/// A layer by itself in one line: there are a dozen kinds.
std::string layer_text(const LayerCurve& curve) {
  const CurvePoint& last = curve.points.back();
  std::string name = curve.layer;
  if (curve.share < 1) name += ", share " + std::to_string(curve.share).substr(0, 5);
  if (curve.recompute != Recompute::kNone) name += ", recompute " + spec_name(curve.recompute);
  return line("  %-28s %s + %s a sample, forward %.0f %%, to micro-batch %d", name.c_str(),
              format_seconds(curve.fit.fixed).c_str(), format_seconds(curve.fit.per_sample).c_str(),
              100 * last.forward_seconds / last.seconds, last.micro_batch);
}

/// Of its points: one disturbed point is of no consequence.
double usual_spread(const DeviceProfile& device) {
  std::vector<double> spreads;
  for (const LayerCurve& curve : device.curves)
    for (const CurvePoint& point : curve.points) spreads.push_back(point.spread);
  if (spreads.empty()) return 0;
  const auto middle = spreads.begin() + static_cast<ptrdiff_t>(spreads.size() / 2);
  std::nth_element(spreads.begin(), middle, spreads.end());
  return *middle;
}

/// "2026-11-21 17:15", local time.
std::string date_text(int64_t seconds_since_1970) {
  const std::time_t when = seconds_since_1970;
  std::tm parts{};
  char text[32] = "";
  if (localtime_r(&when, &parts)) std::strftime(text, sizeof text, "%Y-%m-%d %H:%M", &parts);
  return text;
}

/// "3 hours": the largest whole unit.
std::string age_text(int64_t seconds) {
  constexpr struct {
    int64_t seconds;
    const char* name;
  } kUnits[] = {{86400, "day"}, {3600, "hour"}, {60, "minute"}};
  for (const auto& unit : kUnits) {
    const int64_t count = seconds / unit.seconds;
    if (count > 0)
      return std::to_string(count) + " " + unit.name + (count == 1 ? "" : "s") + " ago";
  }
  return "less than a minute ago";
}

std::string host_link_text(const HostLink& link) {
  return line("  copies: %.3g GB/s to the device, %.3g back, pageable %.3g and %.3g, latency %s",
              link.to_device / 1e9, link.to_host / 1e9, link.pageable_to_device / 1e9,
              link.pageable_to_host / 1e9, format_seconds(link.latency_seconds).c_str());
}

std::string device_text(const DeviceProfile& device) {
  std::string text =
      line("%s  %s  (%s)", device.device.c_str(), device.type.c_str(), name_of(device.evidence));
  for (const LayerCurve& curve : device.curves)
    text += curve.layer == "model" ? curve_text(curve) : layer_text(curve);
  text += line("  update %s, step overhead %s, memory limit %s",
               format_seconds(device.update_seconds).c_str(),
               format_seconds(device.step_overhead_seconds).c_str(),
               format_bytes(device.memory_limit).c_str());
  if (device.host_link) text += host_link_text(*device.host_link);
  if (!device.memory.empty())
    text +=
        line("  memory: %s at micro-batch %d, %s at %d",
             format_bytes(device.memory.front().total()).c_str(), device.memory.front().micro_batch,
             format_bytes(device.memory.back().total()).c_str(), device.memory.back().micro_batch);
  return text;
}

}  // namespace

std::string profile_text(const Profile& profile) {
  std::string text;
  for (const DeviceProfile& device : profile.devices) text += device_text(device) + "\n";
  for (const LinkProfile& link : profile.links)
    text += link.bytes_per_second < LinkProfile::kFree
                ? line("link %s - %s: latency %s, %s/s", link.between[0].c_str(),
                       link.between[1].c_str(), format_seconds(link.latency_seconds).c_str(),
                       format_bytes(Bytes(static_cast<int64_t>(link.bytes_per_second))).c_str())
                : line("link %s - %s: takes no time that could be measured",
                       link.between[0].c_str(), link.between[1].c_str());
  for (const ReductionPoint& point : profile.reductions) {
    text += line("reduction of %s over %d ranks: %s", format_bytes(point.bytes).c_str(),
                 point.ranks, format_seconds(point.seconds).c_str());
    if (point.busy_share > 0)
      text += line("  computing beside it takes longer by %.0f %% of that", 100 * point.busy_share);
  }
  return text;
}

std::string from_the_cache(const ProfileCache::Entry& entry, int64_t now) {
  return "profile from the cache, measured " + date_text(entry.measured_at) + " (" +
         age_text(now - entry.measured_at) + "); `motley profile JOB --refresh` measures again";
}

std::vector<std::string> doubts(const Profile& profile) {
  std::vector<std::string> lines;
  for (const DeviceProfile& device : profile.devices) {
    const double spread = usual_spread(device);
    if (spread < kDoubtfulSpread) continue;
    std::string text = line(
        "warning: %s: repeated measurements differ by %.0f %%; end what else "
        "uses it, then `motley profile JOB --refresh`",
        device.device.c_str(), 100 * spread);
    text.pop_back();
    lines.push_back(std::move(text));
  }
  return lines;
}

std::string measuring_text(size_t devices) {
  return "measuring " + std::to_string(devices) + (devices == 1 ? " device" : " devices");
}

std::string unused_links(const FleetSpec& fleet) {
  return fleet.source +
         ": links decides nothing yet: plans use latency and bandwidth as measured here, and paced "
         "devices communicate at that speed";
}

std::string profile_line(const ProfileCache::Entry& entry) {
  std::string devices;
  for (const DeviceProfile& device : entry.profile.devices)
    devices += (devices.empty() ? "" : ", ") + device.device + " (" + device.type + ")";
  return line("%-24s %s  %s  %s", entry.job.c_str(), date_text(entry.measured_at).c_str(),
              entry.profile.code_version.c_str(), devices.c_str());
}

}  // namespace motley
