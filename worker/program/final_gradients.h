#pragma once
#include <vector>

#include "core/ids.h"
#include "worker/program/program.h"

namespace motley {

/// What is worth a report of its own: as a message so many bytes take far longer than its latency
/// (0.8 ms at 10 Gbit/s), and larger reports would let final gradients wait.
inline constexpr Bytes kLeastFinalGradients{1 << 20};

/// Where gradients are final in a program whose liveness is known: the bytes of kGradients that its
/// symbols cover, a tied tensor's after its last use. Neighbours are reported together until they
/// are `least` bytes; runs that never become so come with the last. Symbols of kGradients are of
/// the same bytes or of none in common.
std::vector<FinalGradients> final_gradients(const std::vector<Symbol>& symbols, Bytes least);

/// The same of weights and first uses, for a forward pass, instructions [0, backward), that begins
/// while they still arrive: needed together are those that come to `least` bytes after the first of
/// them.
std::vector<NeededWeights> needed_weights(const std::vector<Symbol>& symbols, size_t backward,
                                          Bytes least);

}  // namespace motley
