#include <cstdlib>

#include "core/nvml.h"
#include "kernels/cpu/instruction_set.h"
#include "kernels/cuda_module.h"
#include "kernels/host_memory.h"
#include "kernels/visible_devices.h"

namespace motley {
namespace {

FoundDevice this_cpu() {
  FoundDevice cpu;
  cpu.kind = DeviceKind::kCpu;
  cpu.name = host_cpu_name();
  cpu.memory = host_memory_size();
  cpu.free_memory = host_memory_available();
  cpu.capability = cpu_instruction_set();
  cpu.cores = host_cores();
  return cpu;
}

/// All GPUs the driver knows, whoever may use them; none without a driver.
std::vector<GpuStatus> driver_gpus() {
  const auto nvml = Nvml::open();
  return nvml ? (*nvml)->gpus() : std::vector<GpuStatus>();
}

/// What the driver shows although CUDA shows nothing: " (the driver shows 2 GPUs,
/// CUDA_VISIBLE_DEVICES leaves 0)".
std::string beyond_reach(const std::vector<GpuStatus>& gpus) {
  if (gpus.empty()) return "";
  std::vector<std::string> uuids;
  for (const GpuStatus& gpu : gpus) uuids.push_back(gpu.uuid);
  std::string text =
      " (the driver shows " + std::to_string(gpus.size()) + (gpus.size() == 1 ? " GPU" : " GPUs");
  if (const char* variable = std::getenv("CUDA_VISIBLE_DEVICES"))
    text +=
        ", CUDA_VISIBLE_DEVICES leaves " + std::to_string(visible_devices(uuids, variable).size());
  return text + ")";
}

}  // namespace

std::vector<FoundDevice> discover_devices(std::string* note) {
  std::vector<FoundDevice> found{this_cpu()};
  note->clear();
  const std::vector<GpuStatus> statuses = driver_gpus();
  const auto gpus = discover_cuda_devices();
  if (!gpus) {
    *note = gpus.error().message + beyond_reach(statuses);
    return found;
  }
  bool fits = false;
  for (FoundDevice gpu : *gpus) {
    for (const GpuStatus& status : statuses)
      if (status.uuid == gpu.uuid) gpu.status = status;
    fits = fits || gpu.unfit.empty();
    found.push_back(std::move(gpu));
  }
  if (!fits && found.size() > 1) *note = found[1].unfit;
  return found;
}

}  // namespace motley
