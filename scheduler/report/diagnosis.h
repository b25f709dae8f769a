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
  kWaiting,    ///< others are not there yet: stages of its pipeline, or now one rank, now another
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
///   host link   its update, where its state lies in host memory, and what travels on one host,
///   network     what travels between hosts: what even the last to come waits; in a pipeline as
///   much
///               of its waiting as was predicted to be communication,
///   waiting     what it waits besides,
///   imbalance   what its computing and updating take longer than the mean rank's,
///   compute     the rest.
/// `told`: of an attempt with this plan. kNotFound where a rank has told nothing.
Result<Diagnosis> diagnose(const AttemptResult& told, const Plan& plan);

/// "network: 31 % of a step of 210 ms on rank 3, …", what could be done, and a table of the costs.
/// What could be done depends on whether the run is one of a `program`.
std::string diagnosis_text(const Diagnosis& diagnosis, const Plan& plan, bool program);
/// `limit, rank, device, type, host, share, step_seconds, costs: [{limit, seconds}], advice`.
nlohmann::json to_json(const Diagnosis& diagnosis, const Plan& plan, bool program);

}  // namespace motley
