#pragma once
// Gradients that are summed on the GPUs themselves, where all ranks of a job are one island.

#include <memory>
#include <vector>

#include "comm/device_communicator.h"
#include "core/plan.h"
#include "core/spec/fleet_spec.h"

namespace motley {

/// Whether these devices are like GPUs (of one type), two at least, each whole and none twice.
bool form_island(const std::vector<const DeviceSpec*>& devices);

/// Whether every rank holds all of the model and updates all of it: its gradient is the sum over
/// all ranks, element by element.
bool sums_whole_gradients(const Plan& plan);

/// The island of all `ranks`, whose devices are given by rank. Collective. Null on all of them
/// where they form none, or where NCCL says why not: then rank 0 logs it. Borrows `device`.
Result<std::unique_ptr<DeviceCommunicator>> open_island(
    const std::vector<const DeviceSpec*>& devices, Communicator& ranks, Device& device);

}  // namespace motley
