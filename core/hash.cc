#include "core/hash.h"

#include <xxhash.h>

namespace motley {
namespace {

std::string hex(XXH64_hash_t value) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text(16, '0');
  for (size_t i = text.size(); i-- > 0; value >>= 4) text[i] = kDigits[value & 15];
  return text;
}

}  // namespace

Hash128 xxh3_128(const void* data, size_t bytes) {
  const XXH128_hash_t hash = XXH3_128bits(data, bytes);
  return {hash.high64, hash.low64};
}

std::string hex(const Hash128& hash) { return hex(hash.high) + hex(hash.low); }

std::string xxh3_128_hex(const void* data, size_t bytes) { return hex(xxh3_128(data, bytes)); }

std::string xxh3_64_hex(const void* data, size_t bytes) { return hex(XXH3_64bits(data, bytes)); }

}  // namespace motley
