// Compiled for the plainest CPU: it must run where the kernels do not.
#include "kernels/cpu/instruction_set.h"

namespace motley {
namespace {

#if defined(__x86_64__)
/// 1 to 4: the level of the x86-64 psABI.
int cpu_level() {
  if (__builtin_cpu_supports("x86-64-v4")) return 4;
  if (__builtin_cpu_supports("x86-64-v3")) return 3;
  if (__builtin_cpu_supports("x86-64-v2")) return 2;
  return 1;
}
#endif

}  // namespace

std::string kernel_instruction_set() {
  const std::string chosen = MOTLEY_CPU_ISA;
  return chosen.empty() ? "generic" : chosen;
}

bool cpu_runs_kernels() {
#if defined(__x86_64__)
  const std::string needed = kernel_instruction_set();
  for (int level = 2; level <= 4; ++level)
    if (needed == "x86-64-v" + std::to_string(level)) return cpu_level() >= level;
#endif
  return true;
}

std::string cpu_instruction_set() {
#if defined(__x86_64__)
  const int level = cpu_level();
  return level == 1 ? "x86-64" : "x86-64-v" + std::to_string(level);
#elif defined(__aarch64__)
  return "aarch64";
#else
  return "generic";
#endif
}

}  // namespace motley
