#pragma once
// How much CPU time the system leaves this process: a container's limit, a cgroup's quota.

#include <optional>
#include <string>
#include <string_view>

namespace motley {

/// Cores whose time cgroups leave to processes that are where `own` says, the text of a
/// /proc/PID/cgroup; nothing where none limits them. The least of their group's and its ancestors',
/// of version 2 (cpu.max) or 1 (cpu.cfs_quota_us), as mounted at `mount`.
std::optional<double> cpu_quota(std::string_view own, const std::string& mount);

/// Whether a rank that waits without sleeping may use up what its computing needs: where cgroups
/// leave less than two cores to each rank of the host, as far as the launcher tells how many there
/// are (else one). Which cores a rank may use is not asked. Looked up once; thread-safe.
bool cpu_time_is_limited();

}  // namespace motley
