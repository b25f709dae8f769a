// The answer of planner/worth.h in one line.

#include <algorithm>
#include <cstdio>

#include "planner/worth.h"

namespace motley {
namespace {

/// The quickest mix with a plan that has one type (or more than one); null where there is none.
const Mix* quickest_mix(const Worth& worth, bool of_one_type) {
  for (const Mix& mix : worth.mixes)
    if (mix.has_plan() && (mix.types.size() == 1) == of_one_type) return &mix;
  return nullptr;
}

const Mix& mix_of_all(const Worth& worth) {
  return *std::find_if(worth.mixes.begin(), worth.mixes.end(),
                       [&](const Mix& mix) { return mix.types.size() == worth.types.size(); });
}

/// How quick `mix` is by `other`: "12 % faster", "1.2 % slower", "as quick".
std::string speed_against(const Mix& mix, const Mix& other) {
  if (!as_quick(mix, other)) return speed_text(mix.step_seconds, other.step_seconds);
  const double known = std::max(mix.uncertainty, other.uncertainty);
  if (known < indifference(mix, other)) return "as quick";
  return "as quick (predictions may be off by " + short_percent(known) + ")";
}

/// "2.31x the best single type (A100)".
std::string against_single(const Worth& worth) {
  const Mix* single = quickest_mix(worth, true);
  if (single == nullptr) return "no type can train this alone";
  char times[32];
  std::snprintf(times, sizeof times, "%.2fx",
                worth.best().samples_per_second / single->samples_per_second);
  return times + std::string(" the best single type (") + single->types[0].type + ")";
}

/// What all.why_not says, less the type that has just been named.
std::string why_not_all(const Worth& worth) {
  const std::string why = mix_of_all(worth).why_not;
  const std::vector<std::string> left = worth.left_out();
  const std::string prefix = left.size() == 1 ? left[0] + ": " : "";
  return why.starts_with(prefix) ? why.substr(prefix.size()) : why;
}

std::string without_the_rest(const Worth& worth) {
  const Mix& all = mix_of_all(worth);
  return "leave the " + listed_types(worth.left_out()) + " out: " +
         (all.has_plan() ? speed_against(worth.best(), all) + " without" : why_not_all(worth)) +
         "; mix " + listed_types(worth.best().names()) + ": " + against_single(worth);
}

std::string one_alone(const Worth& worth) {
  const std::string text =
      "mixing brings nothing: use the " + worth.best().types[0].type + " alone";
  if (const Mix* mix = quickest_mix(worth, false))
    return text + "; " + listed_types(mix->names()) +
           " together: " + speed_against(*mix, worth.best());
  return text + "; " + mix_of_all(worth).why_not;
}

std::string advice_text(const Worth& worth) {
  switch (worth.advice) {
    case Advice::kMixAll:
      return "mix all: " + against_single(worth);
    case Advice::kLeaveOut:
      return without_the_rest(worth);
    case Advice::kOneType:
      return one_alone(worth);
    case Advice::kNothingToMix:
      break;
  }
  return "nothing to mix: all devices are " + worth.types[0];
}

/// "; 1 of 2 slow stays idle".
std::string idle_devices(const Mix& mix) {
  std::string text;
  for (const TypeShare& share : mix.types) {
    const int idle = share.devices - share.used;
    if (idle == 0) continue;
    text += "; " + std::to_string(idle) + " of " + std::to_string(share.devices) + " " +
            share.type + (idle == 1 ? " stays idle" : " stay idle");
  }
  return text;
}

}  // namespace

std::string verdict(const Worth& worth) { return advice_text(worth) + idle_devices(worth.best()); }

}  // namespace motley
