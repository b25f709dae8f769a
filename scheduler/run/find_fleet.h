#pragma once
// A fleet file to start from: of what hosts say that they have, or of what Slurm says.

#include <string>
#include <vector>

#include "core/result.h"
#include "core/spec/device_catalog.h"
#include "core/spec/fleet_spec.h"
#include "scheduler/launch/slurm.h"

namespace motley {

/// A host with its devices, and what to remark about each.
struct FoundHost {
  std::string name;
  int slots = 0;  ///< at least one for each device
  FleetSpec fleet;
  std::vector<std::string> remarks;  ///< by device: "40 GiB, compute capability 8.0"
  std::string remark;                ///< about the host; empty: none
};

struct HostToAsk {
  std::string name;
  int slots = 0;  ///< 0: one for each device
};

/// "a1,r1:4": as mpirun's --host. kUsage.
Result<std::vector<HostToAsk>> parse_hosts(const std::string& text);

/// Asks `motley-worker devices` there, all at once; this machine is asked directly. kNoDevice
/// naming a host that does not answer, kBrokenInstall naming one without our worker. `rsh_agent`:
/// empty: ssh.
Result<std::vector<FoundHost>> ask_hosts(const std::vector<HostToAsk>& hosts,
                                         const std::string& rsh_agent);

/// Nodes without GPUs are one CPU device each. Memory by the catalog, where it knows the type.
std::vector<FoundHost> hosts_of_slurm(const std::vector<SlurmNode>& nodes,
                                      const DeviceCatalog& catalog);

/// A fleet file (core/FORMATS.md, "fleet") with comments for who edits it.
std::string fleet_yaml(const std::vector<FoundHost>& hosts);

}  // namespace motley
