#pragma once
// Texts people write for sizes, times and ranges, and back.

#include <string>
#include <string_view>

#include "core/ids.h"
#include "core/result.h"

namespace motley {

/// "20GB" (decimal), "16GiB", "512KiB", "100B"; a unit is required. Fractions allowed ("1.5GB"). No
/// negative, no overflow.
Result<Bytes> parse_bytes(std::string_view text);

/// "10m", "200us", "1.5s", "6h", "2d", also "1h30m", the larger unit first, as format_seconds()
/// writes; a unit is required.
Result<Nanos> parse_duration(std::string_view text);

/// "1.2GB/s", "125MB/s", "10Gbit/s" in bytes per second.
Result<double> parse_bandwidth(std::string_view text);

/// "10B", "1.5M", "300k": a count with the suffixes k, M, B, T (powers of a thousand).
Result<int64_t> parse_count(std::string_view text);

struct BytesRange {
  Bytes low{0};
  Bytes high{INT64_MAX};
  bool operator==(const BytesRange&) const = default;
};
struct CountRange {
  int low = 0;
  int high = INT32_MAX;
  bool operator==(const CountRange&) const = default;
};
/// "20GB..", "..24GB", "16GB..24GB", "16GB" (both ends).
Result<BytesRange> parse_bytes_range(std::string_view text);
/// "2..8", "2..", "4".
Result<CountRange> parse_count_range(std::string_view text);

std::string format_bytes(Bytes bytes);       ///< "1.5 GiB", three significant digits
std::string format_seconds(double seconds);  ///< "412 ms", "3.1 s", "2m05s", "1h10m"

/// The nearest of `choices` when close enough to be a slip, else empty. Case is ignored.
std::string did_you_mean(std::string_view word, const std::string_view* choices, size_t count);

}  // namespace motley
