#include "core/rank_memory.h"

#include <algorithm>

namespace motley {
namespace {

constexpr int kStates = 3;                  // weight, first and second moment
constexpr int64_t kLeastMessage = 4 << 10;  // smaller ones cost more than they carry

}  // namespace

int gradient_element_bytes(Numerics numerics, int element_bytes) {
  return numerics == Numerics::kExact ? static_cast<int>(sizeof(int64_t)) : element_bytes;
}

Bytes snapshot_bytes(int64_t owned_elements, int element_bytes) {
  return Bytes(kStates * owned_elements * element_bytes);
}

Bytes exchange_message_bytes(int ranks) {
  const int64_t part = kMostExchangeBytes.value() / std::max(1, ranks - 1);
  return Bytes(std::max(kLeastMessage, part / 8 * 8));
}

Bytes plain_exchange_bytes(int ranks, int64_t owned_elements, int gradient_bytes) {
  const Bytes message = exchange_message_bytes(ranks);
  return std::min(message, Bytes(owned_elements * gradient_bytes)) * (ranks - 1);
}

}  // namespace motley
