#pragma once
// What is computed twice to save memory.

namespace motley {

/// What of a block's forward pass is computed again in its backward pass instead of being kept
/// (Chen et al. 2016). Embedding and head keep nothing worth it.
enum class Recompute { kNone, kAttention, kMlp, kBlock };

}  // namespace motley
