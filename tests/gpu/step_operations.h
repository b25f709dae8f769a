#pragma once
// Every operation of a training step as data, each different one once: what kernel_speed times.

#include <string>
#include <vector>

#include "core/model.h"
#include "core/precision.h"
#include "kernels/op_table.h"
#include "kernels/operand.h"
#include "worker/engine/engine.h"

namespace motley::testing {

/// What an operation needs to lie in memory.
struct OperandBuffer {
  Bytes size{0};
  ElementType type = ElementType::kFull;
  bool tokens = false;                  ///< int32 numbers below the vocabulary's size
  std::vector<ParameterRun> runs = {};  ///< what the bytes are, where they are a table
};

struct StepOperation {
  std::string name;  ///< "matmul 65536x2304x768 NT"
  OpCall call;       ///< operands are symbols: indices of `buffers`
  std::vector<OperandBuffer> buffers;
  int64_t vocab = 0;        ///< tokens are below
  int times = 1;            ///< in a micro-batch; of what follows the last one, in a step
  double bytes = 0;         ///< each input read once, each output written once
  double tensor_flops = 0;  ///< of products; of causal attention the half that is needed
  std::string limit = {};   ///< "copy" | "matmul": what it sets the limit of, or ""
};

/// What limits are measured with: a copy of `copied` bytes, products of matrices `side` and 2·side
/// wide.
std::vector<StepOperation> limit_operations(Precision precision, Bytes copied, int64_t side);

/// The different operations of a micro-batch of `samples` samples, forward and backward, in the
/// order of computation, then those that the engine computes once a step: gradients to zero, their
/// norm, the update, of all tensors at once and with the rounded weights.
std::vector<StepOperation> step_operations(const ModelSpec& model, const DeviceTraits& device,
                                           int samples);

}  // namespace motley::testing
