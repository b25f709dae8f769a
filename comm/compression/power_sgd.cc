#include "comm/compression/power_sgd.h"

#include <algorithm>
#include <cmath>

#include "comm/compression/error_feedback.h"
#include "core/check.h"
#include "core/philox.h"

namespace motley {
namespace {

/// A column that the ones before it make up to this part is rounding, and becomes 0.
constexpr double kNegligible = 1e-6;

/// Sixteen sums side by side, whatever the machine.
float dot(std::span<const float> a, std::span<const float> b) {
  constexpr size_t kSums = 16;
  float sums[kSums] = {};
  size_t i = 0;
  for (; i + kSums <= a.size(); i += kSums)
    for (size_t j = 0; j < kSums; ++j) sums[j] += a[i + j] * b[i + j];
  for (size_t j = 0; i + j < a.size(); ++j) sums[j] += a[i + j] * b[i + j];
  float sum = 0;
  for (const float part : sums) sum += part;
  return sum;
}

double exact_dot(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += double{a[i]} * double{b[i]};
  return sum;
}

/// Column `i` of a factor [rank, length].
template <class T>
std::span<T> column_of(std::span<T> factor, int i, int64_t length) {
  return factor.subspan(static_cast<size_t>(i * length), static_cast<size_t>(length));
}

void subtract(std::span<float> column, double factor, std::span<const float> other) {
  for (size_t i = 0; i < column.size(); ++i)
    column[i] = static_cast<float>(column[i] - factor * other[i]);
}

/// To length 1. NaN stays NaN.
void normalise(std::span<float> column) {
  const double length = std::sqrt(exact_dot(column, column));
  for (float& x : column) x = static_cast<float>(x / length);
}

/// Gram-Schmidt, each column twice: what cancels in the first round loses bits that the second
/// restores.
void orthonormalise(std::span<float> factor, int rank, int64_t length) {
  for (int i = 0; i < rank; ++i) {
    const std::span<float> column = column_of(factor, i, length);
    const double before = std::sqrt(exact_dot(column, column));
    if (!std::isfinite(before)) std::fill(column.begin(), column.end(), std::nanf(""));
    for (int round = 0; round < 2; ++round) {
      for (int j = 0; j < i; ++j) {
        const std::span<const float> other = column_of(factor, j, length);
        subtract(column, exact_dot(column, other), other);
      }
      const double left = std::sqrt(exact_dot(column, column));
      if (round == 0 && left <= kNegligible * before) {
        std::fill(column.begin(), column.end(), 0.0F);
        break;
      }
      normalise(column);
    }
  }
}

}  // namespace

PowerSgd::PowerSgd(const CodecSpec& codec, MatrixShape matrix, const PowerSgdMemory& memory,
                   uint64_t seed, uint32_t tensor)
    : matrix_(matrix),
      rank_(power_sgd_rank(codec, matrix)),
      seed_(seed),
      tensor_(tensor),
      residual_(memory.residual),
      p_(memory.p),
      q_(memory.q),
      row_(static_cast<size_t>(matrix.columns)) {
  MOTLEY_CHECK(codec.kind == CodecKind::kPowerSgd && !first_fault(codec), to_text(codec));
  MOTLEY_CHECK_EQ(std::ssize(residual_), matrix.rows * matrix.columns);
  MOTLEY_CHECK_EQ(std::ssize(p_), rank_ * matrix.rows);
  MOTLEY_CHECK_EQ(std::ssize(q_), rank_ * matrix.columns);
}

void PowerSgd::draw_column(int column) {
  const std::span<float> q = column_of(q_, column, matrix_.columns);
  for (size_t i = 0; i < q.size(); ++i)
    q[i] = random_uniform(seed_, RandomUse::kCompression, tensor_,
                          static_cast<uint64_t>(column) * q.size() + i) -
           0.5F;
}

void PowerSgd::revive_lost_columns() {
  for (int i = 0; i < rank_; ++i) {
    const std::span<const float> q = column_of(std::span<const float>(q_), i, matrix_.columns);
    const double square = exact_dot(q, q);
    if (!(square > 0) || !std::isfinite(square)) draw_column(i);
  }
}

std::span<float> PowerSgd::project(std::span<float> gradient) {
  MOTLEY_CHECK_EQ(gradient.size(), residual_.size());
  gradient_ = gradient;
  for (size_t i = 0; i < gradient.size(); ++i) gradient[i] += residual_[i];
  revive_lost_columns();
  const auto columns = static_cast<size_t>(matrix_.columns);
  for (int64_t row = 0; row < matrix_.rows; ++row)
    for (int i = 0; i < rank_; ++i)
      p_[static_cast<size_t>(i * matrix_.rows + row)] =
          dot(gradient.subspan(static_cast<size_t>(row) * columns, columns),
              column_of(std::span<const float>(q_), i, matrix_.columns));
  return p_;
}

void PowerSgd::product_row(int64_t row, std::span<const float> factor, std::span<float> out) const {
  std::fill(out.begin(), out.end(), 0.0F);
  for (int i = 0; i < rank_; ++i) {
    const float p = p_[static_cast<size_t>(i * matrix_.rows + row)];
    const std::span<const float> q = column_of(factor, i, matrix_.columns);
    for (size_t j = 0; j < out.size(); ++j) out[j] += p * q[j];
  }
}

std::span<float> PowerSgd::orthonormalise_and_project_back() {
  orthonormalise(p_, rank_, matrix_.rows);
  std::fill(q_.begin(), q_.end(), 0.0F);
  const auto columns = static_cast<size_t>(matrix_.columns);
  for (int64_t row = 0; row < matrix_.rows; ++row) {
    const float* m = gradient_.data() + row * matrix_.columns;
    for (int i = 0; i < rank_; ++i) {
      const float p = p_[static_cast<size_t>(i * matrix_.rows + row)];
      float* q = q_.data() + i * matrix_.columns;
      for (size_t j = 0; j < columns; ++j) q[j] += m[j] * p;
    }
  }
  for (int64_t row = 0; row < matrix_.rows; ++row) {
    const size_t first = static_cast<size_t>(row) * columns;
    product_row(row, q_, row_);
    keep_what_was_lost(gradient_.subspan(first, columns), row_, residual_.subspan(first, columns));
  }
  return q_;
}

void PowerSgd::reconstruct(std::span<const float> lost) {
  const auto columns = static_cast<size_t>(matrix_.columns);
  for (int64_t row = 0; row < matrix_.rows; ++row) {
    const size_t first = static_cast<size_t>(row) * columns;
    product_row(row, q_, gradient_.subspan(first, columns));
    if (lost.empty()) continue;
    product_row(row, lost, row_);
    for (size_t i = 0; i < columns; ++i) {
      const float both = residual_[first + i] + row_[i];
      if (std::isfinite(both)) residual_[first + i] = both;
    }
  }
  gradient_ = {};
}

}  // namespace motley
