#include "core/link_profile.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/spec/codec_json.h"
#include "core/units.h"

namespace motley {

using nlohmann::json;

json to_json(const LinkProfile& link) {
  return {{"between", {link.between[0], link.between[1]}},
          {"latency_seconds", link.latency_seconds},
          {"bytes_per_second", link.bytes_per_second}};
}

void read_link(JsonFields& fields, LinkProfile& link) {
  std::vector<std::string> between;
  fields.read("between", between)
      .read_between("latency_seconds", link.latency_seconds, 0, kMostSeconds)
      .read_between("bytes_per_second", link.bytes_per_second, 1e-3, LinkProfile::kFree);
  if (between.size() != 2) return fields.fault("between", "must name two hosts");
  link.between[0] = between[0];
  link.between[1] = between[1];
}

json to_json(const LinkCompression& compression) {
  const double below = compression.below_bytes_per_second;
  return {{"codec", to_json(compression.codec)},
          {"below_bytes_per_second", std::isfinite(below) ? json(below) : json()}};
}

void read_compression(JsonFields& fields, LinkCompression& compression) {
  read_codec(fields, "codec", compression.codec);
  if (const auto fault = first_fault(compression.codec)) fields.fault("codec", fault->what);
  if (compression.codec.kind == CodecKind::kAuto) fields.fault("codec", "a plan has decided it");
  if (fields.has("below_bytes_per_second") && !fields.is_null("below_bytes_per_second"))
    fields.read_between("below_bytes_per_second", compression.below_bytes_per_second, 1e-3,
                        LinkProfile::kFree);
}

}  // namespace motley
