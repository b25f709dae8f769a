#pragma once
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "core/plan.h"
#include "worker/engine/engine.h"

namespace motley {

/// Collective: XXH3-64 over the model's weights as fp32, tensor by tensor in canonical order, each
/// slice as its owner has it; the same on all ranks. Some rows at a time: no rank needs memory that
/// grows with the model.
Result<std::string> weights_xxh3(Engine& engine, const ModelSpec& model,
                                 const std::vector<Ownership>& owners, Communicator& world);

}  // namespace motley
