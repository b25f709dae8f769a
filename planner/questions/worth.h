#pragma once
// Should unlike devices be mixed at all? Every set of a fleet's device types is planned by itself,
// and the answer is one line. Pure, as any plan is.

#include <optional>
#include <string>
#include <vector>

#include "planner/questions/fleet_parts.h"

namespace motley {

/// The devices of one type in a mix.
struct TypeShare {
  std::string type;
  int devices = 0;  ///< that the job admits
  int used = 0;     ///< by the mix's plan; the others would not shorten its step
};

/// What the quickest plan that uses each of some types comes to.
struct Mix {
  std::vector<TypeShare> types = {};  ///< in the order of the fleet
  std::string why_not = {};           ///< no plan uses each of these types; empty: one does
  /// Types without which the same devices are quicker. The plan then uses all devices, or of these
  /// types one each, whichever is quickest: what using them nevertheless costs.
  std::vector<std::string> better_without = {};
  double step_seconds = 0;
  double samples_per_second = 0;
  double solo_sum_samples_per_second = 0;    ///< of the devices used
  double uncertainty = 0;                    ///< relative, of the step
  std::optional<double> cost_per_hour = {};  ///< empty where a device used has no price

  bool has_plan() const { return why_not.empty(); }
  int devices_used() const;
  std::optional<double> cost_per_million_samples() const;
  std::vector<std::string> names() const;  ///< of the types
};

enum class Advice {
  kMixAll,        ///< use every type
  kLeaveOut,      ///< mix some, without the others
  kOneType,       ///< mixing brings nothing
  kNothingToMix,  ///< there is one type only
};

struct Worth {
  std::vector<std::string> types = {};  ///< of the devices that the job admits
  bool every_set = true;
  std::vector<Mix> mixes = {};  ///< quickest first; last those without a plan
  /// The mix to use: of those as quick as the quickest, as far as predictions can tell, the one
  /// with the fewest devices, then types.
  size_t chosen = 0;
  Advice advice = Advice::kMixAll;

  const Mix& best() const { return mixes[chosen]; }
  std::vector<std::string> left_out() const;  ///< types that the mix to use does without
};

/// Steps that differ by less are as quick as each other: by what the predictions may be off, at
/// most 5 %, however unsteady the measurements were; at least rounding.
double indifference(const Mix& one, const Mix& other);
bool as_quick(const Mix& one, const Mix& other);  ///< both with a plan

/// Compares them. Where no set of types has a plan, the error of all of them together; any other
/// error of a search (means_no_plan) at once.
Result<Worth> compare_mixes(const PlanRequest& request, const SearchPlan& search);

/// "mix all: 2.31x the best single type (A100)", "leave the gtx1070 out: 12 % faster without; …",
/// "mixing brings nothing: use the A100 alone; …".
std::string verdict(const Worth& worth);

}  // namespace motley
