#include "kernels/cpu/cpu_device.h"

#include <cstring>

#include "core/spec/names.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/instruction_set.h"
#include "kernels/cpu/reduced_ops.h"
#include "kernels/host_memory.h"

namespace motley {

Result<std::unique_ptr<Device>> CpuDevice::open(int threads, Precision precision) {
  if (!cpu_runs_kernels())
    return fail(ErrorCode::kUnsupported,
                "the CPU kernels were built for " + kernel_instruction_set() +
                    ", which this CPU (" + cpu_instruction_set() +
                    ") lacks; rebuild with -DMOTLEY_CPU_ISA=" + cpu_instruction_set());
  if (threads < 1) return fail(ErrorCode::kInvalidSpec, "a CPU device needs at least one thread");
  MOTLEY_TRY(const Blas* blas, open_blas());
  const bool as_asked = is_reduced(precision) || precision == Precision::kTf32;
  return std::make_unique<CpuDevice>(*blas, threads, as_asked ? precision : Precision::kFp32);
}

const OpTable& CpuDevice::ops() const {
  return precision_ == Precision::kFp32 ? cpu::kCpuOps : cpu::rounding_ops(precision_);
}

std::string CpuDevice::arithmetic_class() const {
  return "cpu:" + kernel_instruction_set() + ":openblas-" + blas_.version + "-" + blas_.core +
         (precision_ == Precision::kFp32 ? "" : ":" + spec_name(precision_));
}

std::string CpuDevice::name() const { return host_cpu_name(); }

Bytes CpuDevice::available_memory() { return host_memory_available(); }

Result<DeviceBuffer> CpuDevice::allocate(Bytes size) {
  ++allocations_;
  return allocate_host_memory(size);
}

Result<Unit> CpuDevice::reserve_scratch(Bytes size) {
  if (size <= scratch_.size()) return Unit{};
  MOTLEY_TRY(scratch_, allocate(size));
  return Unit{};
}

std::byte* CpuDevice::scratch(Bytes size) {
  const Result<Unit> reserved = reserve_scratch(size);
  MOTLEY_CHECK(reserved.has_value(), "no memory for an operation's scratch");
  return static_cast<std::byte*>(scratch_.data());
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
