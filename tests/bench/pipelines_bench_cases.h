#pragma once
// Of `planner`: fleets on which models are cut, pipelines/….

#include <string>

#include "tests/bench/rows.h"

namespace motley {

/// Seconds and gaps of the case `only`, or of all; false when one has no plan. Prints what --json
/// does not.
bool run_pipeline_cases(bool json, const std::string& only, Rows* rows);

}  // namespace motley
