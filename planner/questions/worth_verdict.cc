// The answer of planner/questions/worth.h in one line.

#include <algorithm>
#include <cstdio>

#include "planner/questions/worth.h"

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

/// The mix to use with one type more; null where that was not planned.
const Mix* with_also(const Worth& worth, const std::string& type) {
  for (const Mix& mix : worth.mixes) {
    std::vector<std::string> names = mix.names();
    if (std::erase(names, type) == 1 && names == worth.best().names()) return &mix;
  }
  return nullptr;
}

/// Without the name of the type, which has just been told.
std::string reason_of_type(const std::string& type, const std::string& why) {
  return why.starts_with(type + ": ") ? why.substr(type.size() + 2) : why;
}

std::string why_without_type(const Worth& worth, const std::string& type) {
  const Mix* with = with_also(worth, type);
  if (with == nullptr) return "not tried with the others";
  return with->has_plan() ? speed_against(worth.best(), *with) + " without"
                          : reason_of_type(type, with->why_not);
}

/// "leave the a and b out: 12 % faster without"; where a plan with all is not possible, each with a
/// reason of its own.
std::string what_to_leave_out(const Worth& worth) {
  const Mix& all = mix_of_all(worth);
  const std::vector<std::string> left = worth.left_out();
  if (all.has_plan())
    return "leave the " + listed_types(left) + " out: " + speed_against(worth.best(), all) +
           " without; ";
  std::string text;
  for (const std::string& type : left)
    text += "leave the " + type + " out: " + why_without_type(worth, type) + "; ";
  return text;
}

std::string without_the_rest(const Worth& worth) {
  return what_to_leave_out(worth) + "mix " + listed_types(worth.best().names()) + ": " +
         against_single(worth);
}

std::string one_alone(const Worth& worth) {
  std::string text = "mixing brings nothing: use the " + worth.best().types[0].type + " alone";
  if (const Mix* mix = quickest_mix(worth, false))
    return text + "; " + listed_types(mix->names()) +
           " together: " + speed_against(*mix, worth.best());
  for (const std::string& type : worth.left_out()) {
    const Mix* with = with_also(worth, type);
    const std::string why = with == nullptr ? mix_of_all(worth).why_not : with->why_not;
    text += "; " + type + ": " + reason_of_type(type, why);
  }
  return text;
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
