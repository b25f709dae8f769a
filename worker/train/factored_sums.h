#pragma once
// Sums of gradients by PowerSGD: every rank of a tensor projects its own, and what goes between
// ranks are the factors, of all tensors at once: P, then Q. Ranks of a host add up theirs before
// they cross links.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "comm/compression/power_sgd.h"
#include "worker/engine/engine.h"
#include "worker/train/factored_tensors.h"

namespace motley {

class FactoredSums {
 public:
  /// Collective. Of at least one tensor, for a plan whose factored_tensors() they are.
  static Result<std::unique_ptr<FactoredSums>> open(const Plan& plan, const ModelSpec& model,
                                                    const std::vector<FactoredTensor>& tensors,
                                                    Communicator& world);

  /// Whether this rank has a part in any.
  bool any() const { return !mine_.empty(); }

  /// Collective among the ranks that have a part. The matrices of `gradients`, floats, become their
  /// sums, with the same bits on all their ranks.
  Result<Unit> sum(const GradientSpans& gradients);

  /// As those of Reducer (comm/reducer.h).
  void gather_residuals(std::span<float> flat) const;
  void restore_residuals(std::span<const float> flat);
  int64_t bytes_sent() const { return p_sums_->bytes_sent() + q_sums_->bytes_sent(); }

 private:
  /// A tensor of this rank.
  struct Mine {
    ParameterRange range;  ///< of the gradients
    bool keeps = false;    ///< it takes what restore_residuals() is given
    std::span<float> residual, lost;
    PowerSgd power_sgd;
  };

  FactoredSums() = default;
  void take_tensors(const Plan& plan, const ModelSpec& model,
                    const std::vector<FactoredTensor>& tensors, int self);
  std::span<float> gradient(const GradientSpans& gradients, const Mine& one) const;
  Result<Unit> sum_factors(Reducer& sums, std::span<float> factors);
  void forget_lost(Reducer& sums);

  std::vector<float> residuals_, p_, q_;
  std::vector<float> lost_;  ///< of either factor; empty where they are sent as they are
  std::vector<Mine> mine_;
  std::vector<ParameterRange> ranges_;
  std::unique_ptr<Reducer> p_sums_, q_sums_;
};

/// What open() takes for a rank.
Bytes factored_sums_bytes(const Plan& plan, const std::vector<FactoredTensor>& tensors, Rank self);

}  // namespace motley
