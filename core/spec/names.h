#pragma once
// The words of the specs' enumerations: one list each, for YAML, JSON and messages.

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/compression.h"
#include "core/recompute.h"
#include "core/spec/fleet_spec.h"
#include "core/spec/job_spec.h"

namespace motley {

template <class E>
struct Named {
  E value;
  std::string_view name;
};

inline constexpr Named<Numerics> kNumericsNames[] = {{Numerics::kFast, "fast"},
                                                     {Numerics::kExact, "exact"}};
inline constexpr Named<Precision> kPrecisionNames[] = {
    {Precision::kAuto, "auto"}, {Precision::kFp32, "fp32"}, {Precision::kFp64, "fp64"},
    {Precision::kBf16, "bf16"}, {Precision::kFp16, "fp16"}, {Precision::kTf32, "tf32"},
    {Precision::kFp8, "fp8"}};
inline constexpr Named<PaceClock> kPaceClockNames[] = {{PaceClock::kSleep, "sleep"},
                                                       {PaceClock::kVirtual, "virtual"}};
inline constexpr Named<ShardOptimizer> kShardOptimizerNames[] = {
    {ShardOptimizer::kAuto, "auto"}, {ShardOptimizer::kOn, "on"}, {ShardOptimizer::kOff, "off"}};
inline constexpr Named<DeviceKind> kDeviceKindNames[] = {
    {DeviceKind::kCpu, "cpu"}, {DeviceKind::kCuda, "cuda"}, {DeviceKind::kReference, "reference"}};
inline constexpr Named<Recompute> kRecomputeNames[] = {{Recompute::kNone, "none"},
                                                       {Recompute::kAttention, "attention"},
                                                       {Recompute::kMlp, "mlp"},
                                                       {Recompute::kBlock, "block"}};
inline constexpr Named<CodecKind> kCodecKindNames[] = {
    {CodecKind::kOff, "off"},    {CodecKind::kAuto, "auto"},         {CodecKind::kFp16, "fp16"},
    {CodecKind::kBf16, "bf16"},  {CodecKind::kInt8, "int8"},         {CodecKind::kSign, "sign"},
    {CodecKind::kTopK, "top_k"}, {CodecKind::kPowerSgd, "power_sgd"}};
inline constexpr Named<CodecValues> kCodecValuesNames[] = {{CodecValues::kFp32, "fp32"},
                                                           {CodecValues::kFp16, "fp16"},
                                                           {CodecValues::kBf16, "bf16"},
                                                           {CodecValues::kInt8, "int8"}};

constexpr std::span<const Named<Numerics>> names_of(Numerics) { return kNumericsNames; }
constexpr std::span<const Named<Precision>> names_of(Precision) { return kPrecisionNames; }
constexpr std::span<const Named<PaceClock>> names_of(PaceClock) { return kPaceClockNames; }
constexpr std::span<const Named<ShardOptimizer>> names_of(ShardOptimizer) {
  return kShardOptimizerNames;
}
constexpr std::span<const Named<DeviceKind>> names_of(DeviceKind) { return kDeviceKindNames; }
constexpr std::span<const Named<Recompute>> names_of(Recompute) { return kRecomputeNames; }
constexpr std::span<const Named<CodecKind>> names_of(CodecKind) { return kCodecKindNames; }
constexpr std::span<const Named<CodecValues>> names_of(CodecValues) { return kCodecValuesNames; }

/// "exact" for Numerics::kExact.
template <class E>
std::string spec_name(E value) {
  for (const Named<E>& named : names_of(value))
    if (named.value == value) return std::string(named.name);
  return "?";
}

/// The inverse; nothing for another word.
template <class E>
std::optional<E> from_spec_name(std::string_view name) {
  for (const Named<E>& named : names_of(E{}))
    if (named.name == name) return named.value;
  return std::nullopt;
}

}  // namespace motley
