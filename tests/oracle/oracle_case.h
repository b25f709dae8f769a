#pragma once
// A case for the PyTorch oracle: what goes into a folder, whoever computes it.
//
// FOLDER/case.json: the model, its tensors in order, the optimizer, losses. FOLDER/weights.f32 and
// gradients.f32: flat buffers at the start; the gradient is of the mean loss. FOLDER/tokens.i32:
// [steps, samples, context + 1].

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/model.h"
#include "core/result.h"
#include "core/spec/job_spec.h"

namespace motley::testing {

struct OracleCase {
  static constexpr int kSteps = 20;

  ModelSpec model;
  int samples = 0;
  Precision precision = Precision::kFp32;
  ScheduleSpec schedule{.type = "cosine", .warmup = 5, .min_lr = 1e-4};
  OptimizerSpec optimizer;

  OracleCase() {
    optimizer.lr = 1e-3;
    optimizer.clip = 0.5;  // below the first steps' norms, so that clipping acts
  }
};

/// Element `index` of all weights in canonical order, which belongs to `tensor`: larger than at the
/// start of training, biases and gains too, so that no gradient hides behind a zero.
float oracle_weight(const LogicalTensor& tensor, int64_t index);

/// What was computed, in canonical order.
struct OracleResult {
  std::vector<float> weights, gradients;
  std::vector<int32_t> tokens;
  std::vector<double> losses;
};
void write_case(const OracleCase& test, const OracleResult& result, const std::string& folder);

/// On one rank that holds the whole model, in two unequal micro-batches.
Result<OracleResult> compute_whole(const OracleCase& test);
/// On two stages of two ranks each, unequal in everything; the vocabulary holds bytes.
Result<OracleResult> compute_cut(const OracleCase& test);

}  // namespace motley::testing
