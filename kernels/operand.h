#pragma once
// What an operation reads and writes: where, how much, of what type.

#include "kernels/address.h"

namespace motley {

enum class ElementType {
  kReduced,  ///< in the precision the device computes in, Device::reduced_bytes: activations, their
             ///< gradients, the copies of weights that products read
  kFull,     ///< Device::element_bytes: statistics, sums, gradients of parameters, optimizer state
  kBytes     ///< of another type: tokens, fixed point
};

/// Of one call. `address` is that in the call's arguments.
struct Operand {
  Address& address;
  int64_t count = 0;  ///< elements; of kBytes bytes
  ElementType type = ElementType::kFull;
};

inline Operand reduced(Address& address, int64_t count) {
  return {address, count, ElementType::kReduced};
}
inline Operand full(Address& address, int64_t count) {
  return {address, count, ElementType::kFull};
}
inline Operand raw(Address& address, int64_t bytes) {
  return {address, bytes, ElementType::kBytes};
}

}  // namespace motley
