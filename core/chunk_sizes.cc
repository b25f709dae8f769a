#include "core/chunk_sizes.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <unordered_map>

namespace motley {
namespace {

/// How many times longer than others a chunk is that a codec shortens by as much or more.
constexpr int64_t kLongestEncoded = 4;

/// A chunk is led for longer than its round trip: it is handed in, waits for its turn on the link,
/// is added up and handed out. And links are measured to be slower than they are more often than
/// faster.
constexpr double kRoundTripsLed = 2;

double round_trip_bytes(double bytes_per_second, double latency_seconds) {
  return 2 * latency_seconds * bytes_per_second;
}

/// What crosses a link, such that an island's leaders fill it together: the least multiple of the
/// usual, so that measuring a link again seldom changes it.
Bytes largest_across(const ClassSpread& spread, const ReductionOptions& options) {
  const auto usual = static_cast<double>(options.largest_chunk.value());
  const double wanted =
      kRoundTripsLed * spread.round_trip_bytes / (kChunksLed * spread.fewest_leaders);
  const double most = std::floor(static_cast<double>(options.longest_chunk.value()) / usual);
  const double times = std::clamp(std::ceil(wanted / usual), 1.0, std::max(1.0, most));
  return options.largest_chunk * static_cast<int64_t>(times);
}

/// Compressed chunks are as long on links as others, as long as they are no longer in memory than
/// the longest.
Bytes largest_encoded(Bytes across, int element_bytes, const ReductionOptions& options,
                      const CodecSpec& codec) {
  constexpr int64_t kMany = int64_t{1} << 16;
  const int64_t times =
      std::clamp<int64_t>(kMany * element_bytes / encoded_bytes(codec, kMany), 1, kLongestEncoded);
  const Bytes most = std::max(options.largest_chunk * times, options.longest_chunk);
  return std::min(across * times, most);
}

}  // namespace

ClassSpread spread_of(const std::vector<IslandPart>& parts, const Islands& islands) {
  if (parts.size() < 2) return {.most_leaders = static_cast<int>(parts.front().leaders.size())};
  const auto [fewest, most] = std::minmax_element(
      parts.begin(), parts.end(),
      [](const IslandPart& a, const IslandPart& b) { return a.leaders.size() < b.leaders.size(); });
  // All that is summed crosses every island's link.
  double slowest = LinkProfile::kFree;
  for (const IslandPart& one : parts)
    slowest = std::min(slowest, islands.bytes_per_second[static_cast<size_t>(one.island)]);
  return {static_cast<int>(parts.size()), static_cast<int>(most->leaders.size()),
          static_cast<int>(fewest->leaders.size()),
          round_trip_bytes(slowest, islands.latency_seconds)};
}

int64_t chunk_elements(int64_t elements, int element_bytes, const ClassSpread& spread,
                       const ReductionOptions& options, const CodecSpec& codec) {
  const bool at_home = spread.islands == 1;
  const Bytes smallest = at_home ? options.smallest_at_home : options.smallest_chunk;
  Bytes largest = at_home ? options.largest_at_home : largest_across(spread, options);
  int64_t unit = 64;  // chunks begin where cache lines do
  if (codec.kind != CodecKind::kOff) {
    largest = largest_encoded(largest, element_bytes, options, codec);
    unit = CodecSpec::kBlock * element_bytes;
  }
  // Small sums are cut so that every leader has some of the work, and chunks to do it by.
  const int64_t for_each = at_home ? kChunksLedAtHome : kChunksLed;
  const int64_t even = elements * element_bytes / (for_each * spread.most_leaders);
  const int64_t bytes = std::clamp(even, smallest.value(), largest.value());
  const int64_t aligned = bytes / unit * unit;
  return std::max<int64_t>(1, aligned / element_bytes);
}

/// The link of the greatest latency joins two hosts of the plan, and the sum is no faster than the
/// slower of them is to its nearest.
double most_round_trip_bytes(const std::vector<LinkProfile>& links) {
  std::unordered_map<std::string, double> fastest;
  for (const LinkProfile& link : links) {
    if (link.between[0] == link.between[1]) continue;
    for (const std::string& host : link.between)
      fastest[host] = std::max(fastest[host], link.bytes_per_second);
  }
  double most = 0;
  for (const LinkProfile& link : links) {
    if (link.between[0] == link.between[1]) continue;
    const double speed = std::min(fastest[link.between[0]], fastest[link.between[1]]);
    most = std::max(most, round_trip_bytes(speed, link.latency_seconds));
  }
  return most;
}

}  // namespace motley
