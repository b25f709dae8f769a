#pragma once
// Which GPUs a process may use, by the rules of CUDA_VISIBLE_DEVICES (CUDA programming guide,
// "CUDA Environment Variables").

#include <optional>
#include <string>
#include <vector>

namespace motley {

/// Indices into `uuids` (all GPUs of the machine by PCI bus id, "GPU-…"; MIG slices "MIG-…") in the
/// order in which the process sees them. `variable`: the value of CUDA_VISIBLE_DEVICES; without it
/// all. A GPU is named by its number or by as many leading characters of its UUID as tell it from
/// the others; what follows a name that fits nothing, "-1" among them, is not seen. A GPU named
/// twice leaves none.
std::vector<int> visible_devices(const std::vector<std::string>& uuids,
                                 const std::optional<std::string>& variable);

}  // namespace motley
