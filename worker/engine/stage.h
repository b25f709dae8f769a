#pragma once
// The programs of one stage: a range of layers composed for a micro-batch size. Today a stage is
// the whole model.

#include "core/model.h"
#include "core/spec/job_spec.h"
#include "worker/program/parameters.h"
#include "worker/program/program.h"

namespace motley {

/// What decides a stage's programs; of the device only what needs no hardware.
struct StageSpec {
  ModelSpec model;
  Numerics numerics = Numerics::kFast;
  int element_bytes = 4;
  int threads = 1;
  const int* exact_exponent = nullptr;  ///< read when programs run
};

/// Offsets of the exchange segment, the same for every micro-batch up to `largest` samples.
struct ExchangeLayout {
  ExchangeLayout(const StageSpec& stage, int largest);

  int64_t rows = 0;   ///< largest · context
  Bytes overflow{0};  ///< int64 flag
  Bytes norms{0};     ///< double for each tensor: where gradient norms are summed
  Bytes tokens{0};    ///< int32 [samples, context]
  Bytes targets{0};   ///< int32 [samples, context]
  Bytes losses{0};    ///< [samples, context] elements
  Bytes size{0};
};

/// Forward and backward of `samples` samples.
Program compile_training(const StageSpec& stage, const ParameterLayout& parameters,
                         const ExchangeLayout& exchange, int samples);

/// Forward alone, with losses. `logits` becomes their address, valid after the program has run.
Program compile_forward(const StageSpec& stage, const ParameterLayout& parameters,
                        const ExchangeLayout& exchange, int samples, Address* logits);

}  // namespace motley
