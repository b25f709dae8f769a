#pragma once
// An engine's state as the checkpoint store sees it.

#include <vector>

#include "core/result.h"
#include "worker/checkpoint/store.h"
#include "worker/engine/engine.h"

namespace motley {

/// Views of every tensor of one state ("weight/…", "adam_m/…", "adam_v/…"), valid for the engine's
/// life and always of the state as it is.
Result<std::vector<StateView>> state_views(Engine& engine, Engine::State which);

/// Weights and both moments: what a checkpoint holds.
Result<std::vector<StateView>> all_state_views(Engine& engine);

/// Tells the engine that what all_state_views() views was filled (after a load).
Result<Unit> state_written(Engine& engine);

}  // namespace motley
