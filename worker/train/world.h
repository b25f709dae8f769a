#pragma once
// What the ranks of one launch share before they know their task.

#include <functional>
#include <memory>
#include <string>

#include "comm/communicator.h"
#include "core/result.h"
#include "core/spec/fleet_spec.h"
#include "core/spec/job_spec.h"
#include "core/wire.h"
#include "kernels/device.h"
#include "worker/train/control_link.h"

namespace motley {

/// The group mpirun or srun started this process in; a group of one when it was started alone.
Result<std::unique_ptr<Communicator>> open_world();

/// Runs `body` once for each of `ranks` ranks, as threads of this process: without MPI. The error
/// that came first; kUsage where mpirun started this process and others beside it.
Result<Unit> run_in_threads(int ranks, const std::function<Result<Unit>(Communicator&)>& body);

/// The text of a file as the lowest rank that can read it sees it: hosts need not share a file
/// system. kNotFound on every rank when none can.
Result<std::string> shared_text(Communicator& world, const std::string& path);

/// This rank's link to the runner at `control`, its key from `key_file`; null when `control` is
/// empty.
Result<std::unique_ptr<ControlLink>> join_runner(Communicator& world, const std::string& control,
                                                 const std::string& key_file, Epoch epoch,
                                                 ControlWishes* wishes);

/// The last act of a rank that failed: says why, or which rank it has lost, ends the others, exits
/// with the error's code.
[[noreturn]] void leave_world(std::unique_ptr<Communicator> world, const Error& error);

/// The name of this host as the system gives it.
std::string system_host_name();

/// The device a rank drives for `job`, computing in `precision`.
Result<std::unique_ptr<Device>> open_device_for(const JobSpec& job, const DeviceSpec& device,
                                                Precision precision);

/// The limit the fleet gives; else what is free on the device now, divided by the ranks that take
/// from it (takes_same_memory). All ranks of a host look before any of them takes more.
Bytes memory_limit_of(const DeviceSpec& spec, Device& device, int ranks_on_memory);

}  // namespace motley
