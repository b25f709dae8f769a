#pragma once
// What limits a run: where the seconds of its steps go on the rank that all others wait for, and
// which of them could be saved.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/attempt_result.h"
#include "core/plan.h"
#include "core/result.h"

namespace motley {

enum class Limit {
  kCompute,    ///< its device; what is left when nothing else takes a tenth of the step
  kInput,      ///< its samples are not there in time
  kHostLink,   ///< what travels between a device and its host's memory, or within one host
  kNetwork,    ///< what travels between hosts
  kImbalance,  ///< it has more to do than the others have time for
  kWaiting,    ///< other stages of its pipeline are not there yet
};
/// "compute", "input", "host link", "network", "imbalance", "waiting".
const char* name_of(Limit limit);

/// A part of a step.
struct StepCost {
  Limit limit = Limit::kCompute;
  double seconds = 0;
};

struct Diagnosis {
  Limit limit = Limit::kCompute;
  int rank = 0;  ///< the one with the longest work: the others wait for it
  double step_seconds = 0;
  std::vector<StepCost> costs;  ///< of that rank's step; the longest first, none of nothing
  double share() const;         ///< of the step, what `limit` costs
};

/// The rank with the longest work decides how long a step is. Of its step
///   input       is what it waited for samples,
///   host link   its update, where its state lies in host memory, and sums of gradients on one
///               host,
///   network     sums of gradients between hosts: what even this rank waits, as it comes last,
///   waiting     what it waits besides in a pipeline, beyond the communication predicted,
///   imbalance   what its computing and updating take longer than the mean rank's,
///   compute     the rest.
/// `ranks`: of one attempt with this plan. kNotFound where one has told nothing.
Result<Diagnosis> diagnose(const std::vector<RankActual>& ranks, const Plan& plan);

/// "network: sums of gradients between hosts take 31 % of a step …", what could be done, and a
/// table of the costs.
std::string diagnosis_text(const Diagnosis& diagnosis, const Plan& plan);
/// `limit, rank, device, type, host, share, step_seconds, costs: [{limit, seconds}], advice`.
nlohmann::json to_json(const Diagnosis& diagnosis, const Plan& plan);

}  // namespace motley
