#include "worker/profiler/host_link.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <span>

#include "core/check.h"
#include "core/median.h"
#include "kernels/host_memory.h"

namespace motley {
namespace {

constexpr size_t kSmallBytes = 8;
constexpr int kSmallCopies = 200;
constexpr int kMostCopies = 10;
constexpr int kLeastCopies = 2;
constexpr double kSecondsPerKind = 0.25;
constexpr double kLeastSeconds = 1e-9;  // what a clock can tell

using Copy = std::function<Result<Unit>()>;

Result<double> seconds_of_copy(const Copy& copy, const std::function<double()>& now) {
  const double start = now();
  MOTLEY_TRY_VOID(copy());
  return std::max(kLeastSeconds, now() - start);
}

/// The fastest: what else goes on can only add time.
Result<double> fastest(const Copy& copy, const std::function<double()>& now) {
  MOTLEY_TRY_VOID(copy());  // memory is first touched, the link woken
  double best = std::numeric_limits<double>::max();
  double spent = 0;
  for (int i = 0; i < kMostCopies && (i < kLeastCopies || spent < kSecondsPerKind); ++i) {
    MOTLEY_TRY(const double seconds, seconds_of_copy(copy, now));
    best = std::min(best, seconds);
    spent += seconds;
  }
  return best;
}

struct BothWays {
  double to_device = 0, to_host = 0;  ///< seconds
};

Result<BothWays> copy_both_ways(Device& device, void* on_device, const DeviceBuffer& host,
                                const std::function<double()>& now) {
  const std::span<std::byte> bytes(static_cast<std::byte*>(host.data()),
                                   static_cast<size_t>(host.size().value()));
  std::memset(bytes.data(), 1, bytes.size());
  BothWays seconds;
  MOTLEY_TRY(seconds.to_device, fastest([&] { return device.copy_in(on_device, bytes); }, now));
  MOTLEY_TRY(seconds.to_host, fastest([&] { return device.copy_out(bytes, on_device); }, now));
  return seconds;
}

Result<double> latency(Device& device, void* on_device, const DeviceBuffer& pinned,
                       const std::function<double()>& now) {
  const std::span<const std::byte> few(static_cast<const std::byte*>(pinned.data()), kSmallBytes);
  std::vector<double> seconds;
  for (int i = 0; i < kSmallCopies; ++i) {
    MOTLEY_TRY(const double one,
               seconds_of_copy([&] { return device.copy_in(on_device, few); }, now));
    seconds.push_back(one);
  }
  return *median(std::move(seconds));
}

}  // namespace

Result<HostLink> measure_host_link(Device& device, Bytes size, const std::function<double()>& now) {
  MOTLEY_CHECK(size >= Bytes(kSmallBytes), "less than the small copy");
  MOTLEY_TRY(const DeviceBuffer on_device, device.allocate(size));
  MOTLEY_TRY(const DeviceBuffer pinned, device.allocate_pinned(size));
  MOTLEY_TRY(const DeviceBuffer pageable, allocate_host_memory(size));
  MOTLEY_TRY(const BothWays direct, copy_both_ways(device, on_device.data(), pinned, now));
  MOTLEY_TRY(const BothWays bounced, copy_both_ways(device, on_device.data(), pageable, now));
  HostLink link;
  const auto bytes = static_cast<double>(size.value());
  link.to_device = bytes / direct.to_device;
  link.to_host = bytes / direct.to_host;
  link.pageable_to_device = bytes / bounced.to_device;
  link.pageable_to_host = bytes / bounced.to_host;
  MOTLEY_TRY(link.latency_seconds, latency(device, on_device.data(), pinned, now));
  return link;
}

}  // namespace motley
