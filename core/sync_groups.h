#pragma once
// Groups of hosts that train by themselves between averages: local SGD (Stich 2019; Lin et al.
// 2020), for links so slow that sums of gradients in each step are out of the question.
//
// Between two averages a group is a training of its own on its share of each global batch: sums,
// gradient norm, clipping and loss are of that share. Then all take the average of weights and
// moments over the groups, weighted by their samples. That is another learning problem than one sum
// over all in each step.

#include <string>
#include <vector>

#include "core/plan.h"

namespace motley {

/// The plan's hosts in groups: those it names, or else what links faster than kSlowLink and
/// replicas over several hosts join, directly or through other hosts of the plan.
std::vector<std::vector<std::string>> sync_groups(const Plan& plan);

/// Whether its groups ever do a step by themselves.
bool trains_apart(const Plan& plan);

/// The number of each rank's group, from 0; all 0 where they do not train apart.
std::vector<int> group_of_ranks(const Plan& plan);

/// What a group does of a plan in a step: a plan of its own.
struct GroupPart {
  Plan plan;               ///< of its ranks, counted from 0; its owners tile the model again
  std::vector<int> ranks;  ///< their numbers in the whole, rising
  Rank self;               ///< the number in the group of the rank it was asked for
  double share = 1;        ///< of the global batch's samples
};
/// Of the group that `rank` of a valid plan is in; the plan itself where groups do not train apart.
GroupPart group_part(const Plan& plan, const ModelSpec& model, Rank rank);

/// That groups name each host of the plan once, each replica lies within one, and nothing else of
/// the plan contradicts averaging. kInvalidSpec with the JSON pointer. Ranks, replicas and the
/// batch must be valid.
Result<Unit> check_sync(const Plan& plan);

}  // namespace motley
