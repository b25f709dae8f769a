#pragma once
// Links between hosts: how fast they were measured to be, and what is done to gradients that cross
// the slow ones.

#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "core/compression.h"
#include "core/json_fields.h"

namespace motley {

/// seconds ≈ latency + bytes / bytes_per_second between two hosts, or within one (both names
/// equal).
struct LinkProfile {
  /// bytes_per_second where bytes take no time that could be measured, as on a virtual clock.
  static constexpr double kFree = 1e18;

  std::string between[2];
  double latency_seconds = 0;
  double bytes_per_second = 0;
  bool operator==(const LinkProfile&) const = default;
};

nlohmann::json to_json(const LinkProfile& link);
void read_link(JsonFields& fields, LinkProfile& link);

/// Links below this are slow: one gigabit a second, what offices and labs have. `compress: auto`
/// acts on them, as a codec keeps up with several times that on one core (tests/bench/README.md);
/// and faster ones join hosts into groups that average less often than they step.
inline constexpr double kSlowLink = 125e6;

/// How sums of float32 gradients are shortened where they cross links: all sums that some host
/// slower than this takes part in. PowerSGD shortens whole matrices, as far as all who hold one
/// hold it whole, and leaves all else as it is.
struct LinkCompression {
  CodecSpec codec;
  double below_bytes_per_second = std::numeric_limits<double>::infinity();
  bool operator==(const LinkCompression&) const = default;

  bool on() const { return codec.kind != CodecKind::kOff; }
  bool factors() const { return codec.kind == CodecKind::kPowerSgd; }
  /// Of the sums of factors, where factors().
  LinkCompression of_factors() const {
    return {codec_of_values(codec.values), below_bytes_per_second};
  }
};

/// {"codec": …, "below_bytes_per_second": …}, the latter null where all links are meant.
nlohmann::json to_json(const LinkCompression& compression);
void read_compression(JsonFields& fields, LinkCompression& compression);

}  // namespace motley
