#pragma once
// Why this plan: what was chosen, what lost, and the term that decided.

#include <string>

#include "core/plan.h"

namespace motley {

/// For people, one candidate a line, ending in a newline:
///
///   data parallel 24:8, grain 4   chosen    412 ms/step; next best 455 ms
///   grain 8                       rejected  455 ms/step: shares cannot be cut as finely
///   node3/1                       left out  memory: needs 17.2 GiB of 16 GiB at micro-batch 1
std::string explain(const Plan& plan);

}  // namespace motley
