#include "kernels/cpu/cpu_device.h"

#include <cstring>

#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/instruction_set.h"
#include "kernels/host_memory.h"

namespace motley {

Result<std::unique_ptr<Device>> CpuDevice::open(int threads) {
  if (!cpu_runs_kernels())
    return fail(ErrorCode::kUnsupported,
                "the CPU kernels were built for " + kernel_instruction_set() +
                    ", which this CPU (" + cpu_instruction_set() +
                    ") lacks; rebuild with -DMOTLEY_CPU_ISA=" + cpu_instruction_set());
  if (threads < 1) return fail(ErrorCode::kInvalidSpec, "a CPU device needs at least one thread");
  MOTLEY_TRY(const Blas* blas, open_blas());
  return std::make_unique<CpuDevice>(*blas, threads);
}

const OpTable& CpuDevice::ops() const { return cpu::kCpuOps; }

std::string CpuDevice::arithmetic_class() const {
  return "cpu:" + kernel_instruction_set() + ":openblas-" + blas_.version + "-" + blas_.core;
}

std::string CpuDevice::name() const { return host_cpu_name(); }

Result<DeviceBuffer> CpuDevice::allocate(Bytes size) {
  ++allocations_;
  return allocate_host_memory(size);
}

Result<Unit> CpuDevice::copy_in(void* device, std::span<const std::byte> host) {
  if (!host.empty()) std::memcpy(device, host.data(), host.size());
  return Unit{};
}

Result<Unit> CpuDevice::copy_out(std::span<std::byte> host, const void* device) {
  if (!host.empty()) std::memcpy(host.data(), device, host.size());
  return Unit{};
}

void CpuDevice::parallel_for(int64_t count, const std::function<void(int64_t, int)>& body) {
  pool_.run(count, body);
}

}  // namespace motley
