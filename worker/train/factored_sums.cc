#include "worker/train/factored_sums.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/check.h"
#include "core/reducer_memory.h"
#include "worker/train/slice_classes.h"

namespace motley {
namespace {

/// Of every first Q. Which numbers it has is of no account, as long as all ranks have the same.
constexpr uint64_t kSeed = 0;

bool has(const std::vector<int>& ranks, int rank) {
  return std::binary_search(ranks.begin(), ranks.end(), rank);
}

/// One of the factors, as sums see it: those of all tensors, one after the other.
using Length = int64_t FactorElements::*;

FactorElements elements_of(const CodecSpec& codec, const FactoredTensor& tensor) {
  FactorElements elements;
  elements.add(codec, tensor.matrix);
  return elements;
}

FactorElements elements_of_rank(const CodecSpec& codec, const std::vector<FactoredTensor>& tensors,
                                int rank) {
  FactorElements elements;
  for (const FactoredTensor& tensor : tensors)
    if (has(tensor.ranks, rank)) elements.add(codec, tensor.matrix);
  return elements;
}

SliceClasses classes_of(const CodecSpec& codec, const std::vector<FactoredTensor>& tensors,
                        Length length, int self) {
  SliceClasses found;
  std::map<std::vector<int>, size_t> numbers;
  int64_t offset = 0;  // of this rank's own
  for (const FactoredTensor& tensor : tensors) {
    const auto [number, is_new] = numbers.try_emplace(tensor.ranks, found.classes.size());
    if (is_new) {
      found.classes.push_back({tensor.ranks, tensor.ranks, std::nullopt, 0});
      found.runs.emplace_back();
    }
    const int64_t count = elements_of(codec, tensor).*length;
    int64_t& at = found.classes[number->second].elements;
    if (has(tensor.ranks, self)) {
      found.runs[number->second].push_back({.offset = offset, .count = count, .at = at});
      offset += count;
    }
    at += count;
  }
  return found;
}

ReductionPlan reduction_of(const Plan& plan, const SliceClasses& classes) {
  ReductionOptions options;
  options.compression = plan.compression.of_factors();
  return plan_reduction(classes.classes, islands_of(plan), sizeof(float), options);
}

Result<std::unique_ptr<Reducer>> open_sums(const Plan& plan,
                                           const std::vector<FactoredTensor>& tensors,
                                           Length length, Communicator& world) {
  SliceClasses classes = classes_of(plan.compression.codec, tensors, length, world.rank());
  return world.open_reducer(reduction_of(plan, classes), islands_of(plan), std::move(classes.runs));
}

/// Cuts memory into pieces.
std::span<float> take(std::span<float>* rest, int64_t count) {
  const std::span<float> piece = rest->first(static_cast<size_t>(count));
  *rest = rest->subspan(static_cast<size_t>(count));
  return piece;
}

}  // namespace

Bytes factored_sums_bytes(const Plan& plan, const std::vector<FactoredTensor>& tensors, Rank self) {
  const CodecSpec& codec = plan.compression.codec;
  Bytes bytes = factor_bytes(elements_of_rank(codec, tensors, self.value()), codec);
  for (const Length length : {&FactorElements::p, &FactorElements::q}) {
    const SliceClasses classes = classes_of(codec, tensors, length, self.value());
    bytes += reducer_memory(reduction_of(plan, classes), islands_of(plan), self.value()).total();
  }
  return bytes;
}

Result<std::unique_ptr<FactoredSums>> FactoredSums::open(const Plan& plan, const ModelSpec& model,
                                                         const std::vector<FactoredTensor>& tensors,
                                                         Communicator& world) {
  std::unique_ptr<FactoredSums> sums(new FactoredSums());
  sums->take_tensors(plan, model, tensors, world.rank());
  MOTLEY_TRY(sums->p_sums_, open_sums(plan, tensors, &FactorElements::p, world));
  MOTLEY_TRY(sums->q_sums_, open_sums(plan, tensors, &FactorElements::q, world));
  return sums;
}

void FactoredSums::take_tensors(const Plan& plan, const ModelSpec& model,
                                const std::vector<FactoredTensor>& tensors, int self) {
  const CodecSpec& codec = plan.compression.codec;
  const FactorElements all = elements_of_rank(codec, tensors, self);
  residuals_.resize(static_cast<size_t>(all.matrices));
  p_.resize(static_cast<size_t>(all.p));
  q_.resize(static_cast<size_t>(all.q));
  if (codec.values != CodecValues::kFp32) lost_.resize(std::max(p_.size(), q_.size()));
  std::span<float> residuals(residuals_), p(p_), q(q_), lost(lost_);
  const ParameterLayout layout = layout_of(plan, model, Rank(self));
  for (const FactoredTensor& tensor : tensors) {
    if (!has(tensor.ranks, self)) continue;
    const FactorElements one = elements_of(codec, tensor);
    const std::span<float> residual = take(&residuals, one.matrices);
    ranges_.push_back({layout.find(tensor.name)->offset, one.matrices});
    mine_.push_back(
        {.range = ranges_.back(),
         .keeps = tensor.ranks.front() == self,
         .residual = residual,
         .lost = lost_.empty() ? std::span<float>{} : take(&lost, one.q),
         .power_sgd = PowerSgd(codec, tensor.matrix, {residual, take(&p, one.p), take(&q, one.q)},
                               kSeed, tensor.number)});
  }
}

std::span<float> FactoredSums::gradient(const GradientSpans& gradients, const Mine& one) const {
  return gradients.floats.subspan(static_cast<size_t>(one.range.offset),
                                  static_cast<size_t>(one.range.count));
}

Result<Unit> FactoredSums::sum_factors(Reducer& sums, std::span<float> factors) {
  MOTLEY_TRY_VOID(sums.begin(std::as_writable_bytes(factors), SumType::kFloat32));
  return sums.wait();
}

/// Factors of the next step are of another basis: what these lack is not to be added to them.
void FactoredSums::forget_lost(Reducer& sums) {
  std::fill(lost_.begin(), lost_.end(), 0.0F);
  sums.restore_residuals(lost_);
}

Result<Unit> FactoredSums::sum(const GradientSpans& gradients) {
  if (gradients.staged != nullptr) MOTLEY_TRY_VOID(gradients.staged->wait(ranges_));
  for (Mine& one : mine_) one.power_sgd.project(gradient(gradients, one));
  MOTLEY_TRY_VOID(sum_factors(*p_sums_, p_));
  forget_lost(*p_sums_);
  for (Mine& one : mine_) one.power_sgd.orthonormalise_and_project_back();
  MOTLEY_TRY_VOID(sum_factors(*q_sums_, q_));
  q_sums_->gather_residuals(lost_);
  for (Mine& one : mine_) one.power_sgd.reconstruct(one.lost);
  forget_lost(*q_sums_);
  return gradients.staged == nullptr ? Result<Unit>(Unit{}) : gradients.staged->give_back(ranges_);
}

void FactoredSums::gather_residuals(std::span<float> flat) const {
  for (const Mine& one : mine_)
    std::copy(one.residual.begin(), one.residual.end(), flat.begin() + one.range.offset);
}

void FactoredSums::restore_residuals(std::span<const float> flat) {
  for (Mine& one : mine_)
    if (one.keeps)
      std::copy_n(flat.begin() + one.range.offset, one.range.count, one.residual.begin());
    else
      std::fill(one.residual.begin(), one.residual.end(), 0.0F);
}

}  // namespace motley
