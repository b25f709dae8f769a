#pragma once
// Profiles of devices that nobody measured: counted work (core/work_table.h) at the rates of the
// catalog, or of a pace. For `motley simulate`, never for a run. Pure.
//
// A pass takes what the slower of computing and moving bytes takes, of products and of all else,
// and a little for every operation (the roofline, Williams et al. 2009):
//
//   max(product FLOPs / rate, product bytes / bandwidth) + max(other FLOPs / rate, other bytes /
//   bandwidth) + operations · overhead

#include <limits>
#include <string>
#include <vector>

#include "core/profile.h"
#include "core/spec/device_catalog.h"
#include "core/spec/fleet_spec.h"
#include "core/spec/job_spec.h"
#include "core/work_table.h"

namespace motley {

struct DeviceRates {
  double product_flops_per_second = 1;
  double other_flops_per_second = 1;
  double bytes_per_second = std::numeric_limits<double>::infinity();
  double operation_seconds = 0;
  double section_seconds = 0;      ///< to begin a section between communications
  double half_batch = 0;           ///< samples of which half the rate is reached
  double host_update_seconds = 0;  ///< of the whole model with its state in host memory
};

DeviceRates catalog_rates(const CatalogDevice& device, const CatalogAssumptions& assume,
                          Precision precision);
/// What DESIGN.md §4 says of a paced device.
DeviceRates paced_rates(const PaceSpec& pace, double pace_flops);

/// Curves and update of work at these rates.
DeviceProfile profile_at(const DeviceRates& rates, const WorkTable& work);

/// In which precisions a device is to be simulated: what the job asks for, or where it leaves that
/// to measurements, what measuring would try. kInvalidSpec where the figures have no rate for it.
Result<std::vector<Precision>> precisions_to_simulate(const JobSpec& job, const DeviceSpec& device,
                                                      const CatalogDevice* figures);

/// A device of a fleet and the work it would do.
struct DeviceToSimulate {
  const DeviceSpec* spec = nullptr;
  const CatalogDevice* figures = nullptr;  ///< null: paced
  Bytes memory_limit{0};
  struct InPrecision {
    Precision precision = Precision::kFp32;
    const WorkTable* work = nullptr;
  };
  std::vector<InPrecision>
      in;  ///< at least one; the profile is of the fastest, the first of equals
};

struct CatalogProfile {
  Profile profile;
  std::vector<LinkProfile> assumed;  ///< links of it of which the fleet says nothing
};

/// `devices`: all of the fleet, in its order.
CatalogProfile catalog_profile(const JobSpec& job, const FleetSpec& fleet,
                               const CatalogAssumptions& assume,
                               const std::vector<DeviceToSimulate>& devices);

}  // namespace motley
