#pragma once
// An engine's state as the checkpoint store sees it.

#include <vector>

#include "core/result.h"
#include "worker/checkpoint/store.h"
#include "worker/engine/engine.h"

namespace motley {

/// Views of every tensor of one state ("weight/…", "adam_m/…", "adam_v/…"), valid for the engine's
/// life.
Result<std::vector<StateView>> state_views(Engine& engine, Engine::State which);

/// Weights and both moments: what a checkpoint holds.
Result<std::vector<StateView>> all_state_views(Engine& engine);

/// Makes the memory behind all_state_views() current (before a snapshot).
Result<Unit> refresh_state(Engine& engine);

/// Tells the engine that the memory behind all_state_views() was filled (after a load).
Result<Unit> state_written(Engine& engine);

}  // namespace motley
