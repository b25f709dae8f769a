#pragma once
// Memory for the operands of one operation, filled with random numbers, several times over: calls
// that take the sets in turn find nothing of theirs in a cache.

#include <random>
#include <vector>

#include "kernels/device.h"
#include "tests/gpu/step_operations.h"

namespace motley::testing {

/// Fills memory of a device. Borrows it.
class RandomFill {
 public:
  /// Draws `block` bytes of numbers; what is larger is filled with them again and again.
  static Result<RandomFill> create(Device& device, Bytes block);

  /// Full precision: in [0.05, 1), which suits variances and second moments as well as weights;
  /// reduced: in [-1, 1); bytes that are neither tokens nor a table: zero. Enqueued.
  Result<Unit> operator()(const DeviceBuffer& memory, const OperandBuffer& what, int64_t vocab);

 private:
  explicit RandomFill(Device& device) : device_(&device) {}
  Result<Unit> put_tokens(const DeviceBuffer& memory, int64_t count, int64_t vocab);

  Device* device_;
  DeviceBuffer full_, reduced_;
  std::mt19937 random_{20};
};

class OperandSets {
 public:
  /// As many sets as make `enough` bytes, at least one, at most kMostSets. kDeviceLost when not
  /// even one fits.
  static Result<OperandSets> create(Device& device, const StepOperation& operation, Bytes enough,
                                    RandomFill& fill);
  static constexpr int kMostSets = 64;

  const std::vector<OpCall>& calls() const { return calls_; }  ///< one for each set

 private:
  std::vector<DeviceBuffer> memory_;
  std::vector<OpCall> calls_;
};

}  // namespace motley::testing
