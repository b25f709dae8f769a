#pragma once
// The door between the program and lib/motley_cuda.so, the only thing that is linked with CUDA.

#include "kernels/device.h"

namespace motley {

/// Bump when Device, FoundDevice, OpTable or an operation's operands change: program and module
/// must agree.
inline constexpr int kCudaModuleVersion = 11;

/// What the module exports under these names, without mangling.
using CudaModuleVersion = int (*)();
using CudaModuleOpen = Result<std::unique_ptr<Device>> (*)(const DeviceSpec& spec,
                                                           Precision precision);
using CudaModuleDiscover = Result<std::vector<FoundDevice>> (*)();
inline constexpr const char* kCudaModuleVersionSymbol = "motley_cuda_version";
inline constexpr const char* kCudaModuleOpenSymbol = "motley_cuda_open";
inline constexpr const char* kCudaModuleDiscoverSymbol = "motley_cuda_discover";

/// kNoDevice when there is no such GPU, for whatever reason: the module was not built, does not
/// load, finds no driver, or no GPU has the UUID. Without a UUID the first GPU this process sees.
/// kInvalidSpec for a share that the GPU cannot give. kAuto: fp32.
Result<std::unique_ptr<Device>> open_cuda_device(const DeviceSpec& spec, Precision precision);

/// By PCI bus id; never an empty list: kUnsupported says in one line why there is none.
Result<std::vector<FoundDevice>> discover_cuda_devices();

}  // namespace motley
