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
#include <memory>
#include <span>
#include <vector>

#include "comm/compression/codec.h"

namespace motley {

/// One tensor on one rank; the ranks that sum it make the same calls. One thread; fixed order of
/// sums, so equal bits in give equal bits out. All steps of a training go through
///
///     all_reduce(power_sgd.project(gradient));
///     all_reduce(power_sgd.orthonormalise_and_project_back());
///     power_sgd.reconstruct();
class PowerSgd {
 public:
  /// `codec` is of kind kPowerSgd. `residual` is borrowed, rows·columns floats, 0 at the start of a
  /// training. The first Q comes from (seed, tensor), which are the same on all ranks.
  PowerSgd(const CodecSpec& codec, MatrixShape matrix, std::span<float> residual, uint64_t seed,
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
  /// infinite or NaN.
  void reconstruct();

  int rank() const { return rank_; }
  /// [rank, rows] and [rank, columns].
  std::span<const float> p() const { return p_; }
  std::span<const float> q() const { return q_; }

  /// The factors are numbers that this one sends without a loss, in one span each: they are rounded
  /// before they are handed out, so the residual knows of it. Sums need not be.
  const CodecSpec& factor_codec() const { return factor_codec_->spec(); }

 private:
  void revive_lost_columns();
  void draw_column(int column);
  void round_factor(std::span<float> factor);
  /// Row `row` of P Qᵀ.
  void product_row(int64_t row, std::span<float> out) const;

  MatrixShape matrix_;
  int rank_;
  uint64_t seed_;
  uint32_t tensor_;
  std::span<float> residual_;
  std::span<float> gradient_;
  std::vector<float> p_, q_, row_;
  std::unique_ptr<Codec> factor_codec_;
  std::vector<std::byte> encoded_;
};

}  // namespace motley
