#pragma once
// Which devices a plan may use at all, and how a deal of grains over them becomes a plan.

#include <string>
#include <vector>

#include "core/plan.h"
#include "core/result.h"
#include "planner/costs/cost_model.h"
#include "planner/plain/grain_table.h"
#include "planner/request.h"

namespace motley {

struct Candidate {
  const DeviceSpec* spec = nullptr;
  const DeviceProfile* profile = nullptr;
  std::string name() const { return spec->id + " (" + spec->type + ")"; }
};

struct Candidates {
  std::vector<Candidate> devices;  ///< that can hold the model, in fleet order
  std::vector<LeftOut> left_out;   ///< the others
  int least_devices = 1;
  int most_devices = 0;
  std::string why_no_more;  ///< devices than that
};

/// Checks the request and sorts its devices. kNoPlan when none can hold the model, or too few.
Result<Candidates> find_candidates(const PlanRequest& request);

/// What a device may compute in grains of so many samples; `beside`: with its backward passes.
DeviceSizes sizes_of(const PlanRequest& request, const DeviceProfile& device, int grain,
                     bool beside);

/// Who computes how many grains.
struct Choice {
  int grain = 0;
  std::vector<int> grains;  ///< by candidate; 0: not used
  int short_device = -1;    ///< who takes the step's short grain, when there is one
};

/// The plan of a choice, with micro-batches, ownership and prediction; search record, reasons for
/// unused candidates and id are still to be filled in.
Result<Plan> assemble(const PlanRequest& request, const Candidates& candidates,
                      const Choice& choice);

/// kNoPlan: the job wants so many devices at least, and has work for fewer.
Error too_few_grains(const JobSpec& job, int least_devices);

/// "950 MiB (1 GiB less 5 % headroom)".
std::string usable_text(const DeviceProfile& device, double headroom);

/// For errors: "needs 2.1 GiB of 950 MiB (1 GiB less 5 % headroom) at micro-batch 1".
std::string memory_lack(const DeviceProfile& device, const MicroBatchRule& rule);

}  // namespace motley
