#pragma once
// A part of a GPU's multiprocessors for one rank: a green context of the CUDA driver (CUDA driver
// API, "Green Contexts"). Its functions are looked up at run time: nothing is linked with libcuda.

#include <cuda_runtime.h>

#include <memory>

#include "core/result.h"
#include "core/spec/fleet_spec.h"

namespace motley::cuda {

/// Kernels on its streams run on the share's multiprocessors alone; memory is the whole GPU's.
/// Shares of one GPU opened in one process never overlap. One thread.
class GreenContext {
 public:
  /// Of the GPU that is current. kInvalidSpec for a share this GPU cannot give; kUnsupported where
  /// toolkit or driver are older than green contexts with streams (CUDA 12.5).
  static Result<std::unique_ptr<GreenContext>> create(int ordinal, const ShareSpec& share,
                                                      const cudaDeviceProp& properties);
  /// Its streams must be gone.
  ~GreenContext();
  GreenContext(const GreenContext&) = delete;
  GreenContext& operator=(const GreenContext&) = delete;

  /// A stream that does not wait for the default one; destroyed as any other.
  Result<cudaStream_t> create_stream();

 private:
  struct Driver;
  GreenContext(std::unique_ptr<Driver> driver, void* context);

  std::unique_ptr<Driver> driver_;
  void* context_;  ///< CUgreenCtx
};

}  // namespace motley::cuda
