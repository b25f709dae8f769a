#pragma once
// An engine's state as the checkpoint store sees it.

#include <vector>

#include "core/result.h"
#include "worker/checkpoint/store.h"
#include "worker/engine/engine.h"

namespace motley {

/// Of what compressed gradients have lost so far.
inline constexpr const char* kResidualPrefix = "residual/";

/// Views of every tensor of one state ("weight/…", "adam_m/…", "adam_v/…"), valid for the engine's
/// life and always of the state as it is.
Result<std::vector<StateView>> state_views(Engine& engine, Engine::State which);

/// Weights and both moments: what a checkpoint holds.
Result<std::vector<StateView>> all_state_views(Engine& engine);

/// Of a flat buffer that is laid out as the weights, as the tensors "residual/…"
/// (slice_exchange.h). None of an empty buffer.
std::vector<StateView> residual_views(Engine& engine, std::span<float> flat);

/// Tells the engine that what all_state_views() views was filled (after a load).
Result<Unit> state_written(Engine& engine);

}  // namespace motley
