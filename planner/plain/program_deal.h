#pragma once
// Shares of the global batch of a job that is a program. Nothing is known of its model but how long
// its micro-batches take (curve "model"): the first form's deal, without the reduction, which
// nobody has measured.

#include <vector>

#include "core/profile.h"
#include "core/result.h"
#include "core/spec/job_spec.h"

namespace motley {

struct RankShare {
  int samples = 0;      ///< of each global batch; 0: the device is left out
  int micro_batch = 0;  ///< at most so many at a time
  bool operator==(const RankShare&) const = default;
};

/// Whole grains (of one sample where the job says nothing), as equal as they can be; the last one
/// of a batch may be smaller. At most as many ranks as grains have any. One grain at a time, or
/// where the job gives none all samples.
std::vector<RankShare> equal_shares(const TrainSpec& train, int ranks);

/// Micro-batches of at most `most` samples that a device was measured to hold, and smaller ones:
/// all sizes, or of many some. Rising; none without a curve.
std::vector<int> program_sizes(const DeviceProfile& device, int most);

struct ProgramDeal {
  std::vector<RankShare> shares;  ///< by device
  double step_seconds = 0;        ///< of the slowest device, until its gradients are computed
};

/// The quickest deal of whole grains over `devices`, at least so many of them where there are as
/// many with a curve, in micro-batches no larger than was measured. kNoPlan when none has a curve.
Result<ProgramDeal> deal_program(const TrainSpec& train, const std::vector<DeviceProfile>& devices,
                                 int least_devices = 1);

}  // namespace motley
