#pragma once
// Devices of one host that share a stage (tensor parallelism), each with whole heads and as much of
// columns and vocabulary.

#include <vector>

#include "core/spec/job_spec.h"

namespace motley {

/// Whether the job leaves room for it: in exact numerics sums over devices have no place.
inline bool may_share_stages(const JobSpec& job) {
  const ModelSpec& model = job.model;
  return job.train.numerics == Numerics::kFast && job.parallel.tensor.value_or(2) > 1 &&
         model.heads > 1 && model.vocab >= model.heads;
}

struct TensorSet {
  struct Member {
    int group = 0;  ///< of devices
    int heads = 0;
    bool operator==(const Member&) const = default;
  };
  std::vector<Member> members;  ///< groups rising; of a group those with more heads first

  int size() const { return static_cast<int>(members.size()); }
  std::vector<double> shares(int heads) const {
    std::vector<double> shares;
    for (const Member& member : members)
      shares.push_back(static_cast<double>(member.heads) / heads);
    return shares;
  }
  bool operator==(const TensorSet&) const = default;
};

}  // namespace motley
