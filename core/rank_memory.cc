#include "core/rank_memory.h"

namespace motley {
namespace {

constexpr int kStates = 3;  // weight, first and second moment

}  // namespace

int gradient_element_bytes(Numerics numerics, int element_bytes) {
  return numerics == Numerics::kExact ? static_cast<int>(sizeof(int64_t)) : element_bytes;
}

Bytes snapshot_bytes(int64_t owned_elements, int element_bytes, bool compresses) {
  const int residual = compresses ? static_cast<int>(sizeof(float)) : 0;
  return Bytes(owned_elements * (kStates * element_bytes + residual));
}

}  // namespace motley
