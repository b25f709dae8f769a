#pragma once
// `motley serve` itself, as its clients see it.

#include "core/result.h"

namespace motley {

struct ServedFigures {
  double durable_submits_per_second = 0;
  double reads_per_second = 0;
  double first_line_seconds = 0;  ///< from a submission to what its program prints first; median
};

/// Of 32 connections each. Needs motley and motley-worker beside the folder of this program.
Result<ServedFigures> measure_served();

}  // namespace motley
