#include "scheduler/run/profile_text.h"

#include <cstdio>

#include "core/spec/names.h"
#include "core/units.h"

namespace motley {
namespace {

template <class... Values>
std::string line(const char* format, Values... values) {
  char text[256];
  std::snprintf(text, sizeof text, format, values...);
  return std::string(text) + "\n";
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

std::string device_text(const DeviceProfile& device) {
  std::string text =
      line("%s  %s  (%s)", device.device.c_str(), device.type.c_str(), name_of(device.evidence));
  for (const LayerCurve& curve : device.curves)
    text += curve.layer == "model" ? curve_text(curve) : layer_text(curve);
  text += line("  update %s, step overhead %s, memory limit %s",
               format_seconds(device.update_seconds).c_str(),
               format_seconds(device.step_overhead_seconds).c_str(),
               format_bytes(device.memory_limit).c_str());
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
    text += link.bytes_per_second > 0
                ? line("link %s - %s: latency %s, %s/s", link.between[0].c_str(),
                       link.between[1].c_str(), format_seconds(link.latency_seconds).c_str(),
                       format_bytes(Bytes(static_cast<int64_t>(link.bytes_per_second))).c_str())
                : line("link %s - %s: takes no time on this clock", link.between[0].c_str(),
                       link.between[1].c_str());
  for (const ReductionPoint& point : profile.reductions)
    text += line("reduction of %s over %d ranks: %s", format_bytes(point.bytes).c_str(),
                 point.ranks, format_seconds(point.seconds).c_str());
  return text;
}

std::string profile_line(const ProfileCache::Entry& entry) {
  std::string devices;
  for (const DeviceProfile& device : entry.profile.devices)
    devices += (devices.empty() ? "" : ", ") + device.device + " (" + device.type + ")";
  return line("%-24s %s  %s", entry.job.c_str(), entry.profile.code_version.c_str(),
              devices.c_str());
}

}  // namespace motley
