#include "kernels/cpu/instruction_set.h"
#include "kernels/cuda_module.h"
#include "kernels/host_memory.h"

namespace motley {

std::vector<FoundDevice> discover_devices(std::string* note) {
  FoundDevice cpu;
  cpu.kind = DeviceKind::kCpu;
  cpu.name = host_cpu_name();
  cpu.memory = host_memory_size();
  cpu.free_memory = host_memory_available();
  cpu.capability = cpu_instruction_set();
  cpu.cores = host_cores();
  std::vector<FoundDevice> found{cpu};
  note->clear();
  if (auto gpus = discover_cuda_devices())
    found.insert(found.end(), gpus->begin(), gpus->end());
  else
    *note = gpus.error().message;
  return found;
}

}  // namespace motley
