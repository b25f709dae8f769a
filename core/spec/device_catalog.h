#pragma once
// Figures of devices that nobody has here (configs/devices.yaml): what simulated profiles are made
// of. They decide no plan that is run.

#include <string>
#include <vector>

#include "core/ids.h"
#include "core/precision.h"
#include "core/result.h"
#include "core/spec/fleet_spec.h"

namespace motley {

/// One way, between two devices or hosts.
struct CatalogLink {
  double bytes_per_second = 0;
  Nanos latency{0};
};

/// Operations in 1e12 a second by precision, of matrix products; 0: the hardware has it not.
struct CatalogTflops {
  double fp64 = 0, fp32 = 0, tf32 = 0, fp16 = 0, bf16 = 0, fp8 = 0;

  double in(Precision precision) const;
};

struct CatalogDevice {
  std::string type;
  std::vector<std::string> aliases;  ///< other names of it
  Bytes memory{0};
  double bytes_per_second = 0;  ///< of its memory
  CatalogTflops tflops;
  CatalogLink link;               ///< to others of its type on its host
  double compute_capability = 0;  ///< such as 6.1; 0: not given
  double price_per_hour = 0;      ///< 0: not given
};

/// What data sheets do not tell.
struct CatalogAssumptions {
  double product_efficiency = 1;     ///< of tflops, in matrix products and attention
  double bandwidth_efficiency = 1;   ///< of the memory's bandwidth
  Nanos operation_overhead{0};       ///< each operation takes that besides
  double host_bytes_per_second = 0;  ///< of host memory, for optimizer state that is kept there
  CatalogLink through_host;          ///< between unlike devices of a host
  CatalogLink between_hosts;         ///< where a fleet says nothing
};

struct DeviceCatalog {
  std::string source;
  CatalogAssumptions assume;
  std::vector<CatalogDevice> devices;
};

/// The entry a fleet's device means: that whose type or alias is its type, else is the longest
/// whole '-'-separated beginning of it, else begins with it ("A100"), of several the one whose
/// memory is nearest to the device's. Case and blanks (which are as '-') do not matter. A type with
/// the part "Laptop" means none that has it not, nor the other way round. kInvalidSpec at the
/// device's place where there is none, or it may be several and the fleet does not give its memory.
Result<const CatalogDevice*> find_figures(const DeviceCatalog& catalog, const DeviceSpec& device);

/// kInvalidSpec, at the job's words, for a name in resources.devices.types that means no entry, not
/// even as the beginning of a type or alias.
Result<Unit> check_types_known(const DeviceCatalog& catalog, const JobSpec& job);

}  // namespace motley
