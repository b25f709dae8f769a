#pragma once
// Planning problems whose devices were measured layer by layer, for searches that cut models.

#include <string>

#include "planner/costs/layer_memory.h"
#include "tests/support/planning_case.h"

namespace motley::testing {

inline const ModelSpec kSmallGpt2{"gpt", 12, 12, 768, 1024, 50257};
inline const ModelSpec kLargeGpt2{"gpt", 48, 25, 1600, 1024, 50257};

/// A device that takes fixed + per_sample * b seconds for b samples of a block, a third of it
/// forward; of the embedding a tenth of that, of the head half as much again.
struct LayeredDevice {
  std::string host = "localhost";
  std::string type = "card";
  double per_sample = 0.010;
  double fixed = 0.001;
  double overhead = 0.0001;
  double update = 0.010;   ///< of the whole model
  double host_update = 0;  ///< the same with its state in host memory; 0: as long
  int64_t memory_mib = 8192;
  bool recomputing = false;  ///< measured also with blocks that are computed again: a third more
  bool sharing = false;      ///< measured also with a quarter of the heads, and with the rest
};

/// Measured with up to 32 samples, and with the whole model where its memory allows a sample.
void add_layered(const LayeredDevice& device, PlanningCase* problem);

/// Bytes that nobody counted: 16 for each parameter, half of them its optimizer state, 34 for each
/// activation of a block in flight, a row of the vocabulary for each token of a pass through the
/// head. A block that is computed again keeps what comes into it. Who shares a layer by so many
/// heads has that part of all but of what comes in.
LayerMemory layer_bytes(const ModelSpec& model, const std::string& layer, int micro_batch,
                        Recompute recompute, int heads);
LayerMemory layer_bytes(const ModelSpec& model, const std::string& layer, int micro_batch,
                        Recompute recompute = Recompute::kNone);

/// Of the layers a rank holds, a MiB besides, and of sharded state 8 bytes for what it owns; state
/// in host memory is there.
MemoryCounter layer_bytes_counter(const PlanningCase& problem);

}  // namespace motley::testing
