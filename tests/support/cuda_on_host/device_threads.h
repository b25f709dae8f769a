#pragma once
// Runs kernels of CUDA sources on the CPU: each thread of a block is a fiber, so that barriers and
// the exchanges of a warp are what they are on a GPU. Slow, deterministic, and seen by the address
// and undefined-behaviour sanitizers. One launch at a time in the whole process.

#include <cstddef>
#include <cstdint>
#include <functional>

namespace motley::cuda_on_host {

struct Index3 {
  unsigned x = 0, y = 0, z = 0;
};
struct Extent3 {
  unsigned x = 1, y = 1, z = 1;
  int64_t count() const { return int64_t{x} * y * z; }
};

/// What the running thread sees as threadIdx, blockIdx, blockDim and gridDim.
struct Place {
  Index3 thread, block;
  Extent3 block_extent, grid_extent;
};
const Place& place();

/// Runs body() once for each thread of the grid. Ends the program with a message when the threads
/// of a block wait for each other for ever. The order in which threads and blocks run is rising, or
/// with MOTLEY_CUDA_ON_HOST_ORDER=falling the other way round: a kernel whose result depends on it
/// lacks a barrier.
void run_grid(Extent3 grid, Extent3 block, size_t shared_bytes, const std::function<void()>& body);

// For kernels, that is within body():

/// __syncthreads().
void block_barrier();
/// What the lanes of the warp have given, `stride` bytes apart by lane; valid until the lane's next
/// exchange but one. Called by all lanes that have not ended. size: at most kMostExchanged.
const std::byte* warp_exchange(const void* mine, size_t size);
inline constexpr size_t kMostExchanged = 64;
/// Lane within the warp.
int lane();
/// The block's dynamic shared memory, filled with NaN when the block begins.
std::byte* dynamic_shared();

}  // namespace motley::cuda_on_host
