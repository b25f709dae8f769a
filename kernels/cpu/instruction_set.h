#pragma once
#include <string>

namespace motley {

/// The instruction set the CPU kernels were compiled for, e.g. "x86-64-v3"; "generic" when the
/// compiler's default.
std::string kernel_instruction_set();

/// Whether this CPU can run them. False positives are possible for sets the compiler knows by the
/// name of a CPU.
bool cpu_runs_kernels();

/// The highest of x86-64, x86-64-v2, v3, v4 that this CPU has; elsewhere the architecture's name.
std::string cpu_instruction_set();

}  // namespace motley
