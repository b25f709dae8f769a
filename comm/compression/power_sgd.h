#pragma once
// PowerSGD (Vogels, Karimireddy and Jaggi 2019): a gradient matrix M [rows, columns] as the product
// of two thin factors, found by one step of power iteration that starts where the last training
// step ended. Both factors are linear in M, so islands sum factors instead of matrices:
//
//     P = Σ_w M_w Q         all-reduced, then its columns made orthonormal
//     Q = Σ_w M_wᵀ P        all-reduced
//     Σ_w M_w ≈ P Qᵀ
//
// with error feedback: M_w is the gradient and what was lost before, and what this rank loses is
// M_w - P (M_wᵀ P)ᵀ, whose sum over the ranks is what the sum loses.

#include <cstdint>
#include <span>
#include <vector>

#include "core/compression.h"

namespace motley {

/// Borrowed: planned by whoever has it.
struct PowerSgdMemory {
  std::span<float> residual;  ///< rows·columns, saved by checkpoints, 0 at the start of a training
  std::span<float> p, q;      ///< the rank times as many as rows and columns; q is 0 at the start
};

/// One tensor on one rank; the ranks that sum it make the same calls. One thread; fixed order of
/// sums, so equal bits in give equal bits out. All steps of a training go through
///
///     all_reduce(power_sgd.project(gradient));
///     all_reduce(power_sgd.orthonormalise_and_project_back());
///     power_sgd.reconstruct();
class PowerSgd {
 public:
  /// `codec` is of kind kPowerSgd; in what the factors are sent is left to those who sum them. The
  /// first Q comes from (seed, tensor), which are the same on all ranks.
  PowerSgd(const CodecSpec& codec, MatrixShape matrix, const PowerSgdMemory& memory, uint64_t seed,
           uint32_t tensor);

  /// Adds the residual to `gradient` (row by row) and gives this rank's P, [rank, rows], to be
  /// summed in place. `gradient` is borrowed until reconstruct(). A column of Q that is 0 or not
  /// finite, from which no step recovers, is first drawn anew, on all ranks alike.
  std::span<float> project(std::span<float> gradient);
  /// After P is summed: this rank's Q, [rank, columns], to be summed in place, and the new
  /// residual. Where that would be infinite or NaN it stays what it was. Columns of P that the
  /// others make up to a millionth become 0.
  std::span<float> orthonormalise_and_project_back();
  /// After Q is summed: `gradient` becomes P Qᵀ. All of it is NaN if a gradient of any rank was
  /// infinite or NaN. `lost`, if any: what the sum of Q lacks by this rank's doing, as where it is
  /// sent in fewer bytes; the residual then has what that was of the gradient. What the sum of P
  /// lacks no one need know.
  void reconstruct(std::span<const float> lost = {});

  int rank() const { return rank_; }
  /// [rank, rows] and [rank, columns].
  std::span<const float> p() const { return p_; }
  std::span<const float> q() const { return q_; }

 private:
  void revive_lost_columns();
  void draw_column(int column);
  /// Row `row` of P times the transpose of such a factor.
  void product_row(int64_t row, std::span<const float> factor, std::span<float> out) const;

  MatrixShape matrix_;
  int rank_;
  uint64_t seed_;
  uint32_t tensor_;
  std::span<float> residual_, p_, q_;
  std::span<float> gradient_;
  std::vector<float> row_;
};

}  // namespace motley
