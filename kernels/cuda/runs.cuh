#pragma once
// Which run of a table a block of threads works on.

#include <cuda_runtime.h>

#include "kernels/ops/adamw.h"

namespace motley::cuda {

/// A table of runs, or a single one.
struct Runs {
  const ParameterRun* table;  ///< null: `single`
  int64_t count;
  ParameterRun single;
};

/// The run that block number `block` of all runs is in.
__device__ inline ParameterRun run_of_block(const Runs& runs, int64_t block) {
  if (runs.table == nullptr) return runs.single;
  int64_t low = 0, high = runs.count - 1;
  while (low < high) {
    const int64_t middle = (low + high + 1) / 2;
    if (runs.table[middle].first_block <= block)
      low = middle;
    else
      high = middle - 1;
  }
  return runs.table[low];
}

}  // namespace motley::cuda
