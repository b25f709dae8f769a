#include "kernels/host_memory.h"

#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "core/units.h"

namespace motley {
namespace {

constexpr int64_t kAlignment = 64;
constexpr int64_t kHugePage = 2 << 20;

int64_t round_up(int64_t size, int64_t multiple) {
  return (size + multiple - 1) / multiple * multiple;
}

/// Large buffers on huge pages, where the system grants them on request: kernels walk matrices by
/// columns too.
void* allocate_aligned(int64_t size) {
  const int64_t alignment = size >= 2 * kHugePage ? kHugePage : kAlignment;
  const auto rounded = static_cast<size_t>(round_up(size, alignment));
  void* data = std::aligned_alloc(static_cast<size_t>(alignment), rounded);
  if (data != nullptr && alignment == kHugePage) madvise(data, rounded, MADV_HUGEPAGE);
  return data;
}

/// The text after "key :" in a file of such lines, or empty.
std::string field_of(const char* path, const std::string& key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.compare(0, key.size(), key) != 0) continue;
    const size_t colon = line.find(':');
    const size_t value =
        colon == std::string::npos ? colon : line.find_first_not_of(" \t", colon + 1);
    if (value != std::string::npos) return line.substr(value);
  }
  return {};
}

Bytes kilobytes_of(const std::string& key) {
  const std::string text = field_of("/proc/meminfo", key);
  return Bytes(std::strtoll(text.c_str(), nullptr, 10) * 1024);
}

}  // namespace

Result<DeviceBuffer> allocate_host_memory(Bytes size) {
  if (size.value() == 0) return DeviceBuffer();
  // Linux grants more than it has and kills the process later, so ask before.
  const bool possible = size.value() < 2 * kHugePage || size <= host_memory_size();
  void* data = possible ? allocate_aligned(size.value()) : nullptr;
  if (data == nullptr)
    return fail(ErrorCode::kOutOfMemory, "no " + format_bytes(size) +
                                             " of host memory; this machine has " +
                                             format_bytes(host_memory_size()));
  return DeviceBuffer(data, size, [](void* memory) { std::free(memory); });
}

Bytes host_memory_size() { return kilobytes_of("MemTotal"); }
Bytes host_memory_available() { return kilobytes_of("MemAvailable"); }

std::string host_cpu_name() {
  const std::string name = field_of("/proc/cpuinfo", "model name");
  return name.empty() ? "CPU" : name;
}

int host_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
}

}  // namespace motley
