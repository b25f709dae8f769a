#pragma once
// Which devices of a catalog train a job's model (planner/questions/memory_fit.h), with bytes
// counted by `motley-worker estimate`.

#include "core/result.h"
#include "core/spec/device_catalog.h"
#include "core/spec/fleet_spec.h"
#include "core/spec/job_spec.h"
#include "scheduler/report/fit_table.h"

namespace motley {

/// Among the devices that the job admits by type and memory, in each precision that it allows; as
/// many in a mix as it allows, at most kMostFitDevices. kNoPlan where it admits none,
/// kInvalidSpec where it names a type that the catalog lacks.
Result<ModelFit> fit_model(const JobSpec& job, const DeviceCatalog& catalog);
inline constexpr int kMostFitDevices = 8;  ///< as many stages as searches for pipelines try

/// Whether some plan for this fleet fits it, as simulated from the catalog, without the devices
/// that fit_model() would leave out, too. kNotFound and other errors that say nothing of the fleet.
Result<FleetFit> fit_fleet(const JobSpec& job, const FleetSpec& whole,
                           const DeviceCatalog& catalog);

}  // namespace motley
