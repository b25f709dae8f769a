#include "core/hash.h"

#include <xxhash.h>

namespace motley {
namespace {

std::string digits(XXH64_hash_t value) {
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

std::string hex(const Hash128& hash) { return digits(hash.high) + digits(hash.low); }

std::string xxh3_128_hex(const void* data, size_t bytes) { return hex(xxh3_128(data, bytes)); }

std::string xxh3_64_hex(const void* data, size_t bytes) { return digits(XXH3_64bits(data, bytes)); }

struct Xxh3Stream::State {
  XXH3_state_t xxh3;
};

Xxh3Stream::Xxh3Stream(Width width) : width_(width), state_(std::make_unique<State>()) {
  restart();
}
Xxh3Stream::~Xxh3Stream() = default;

void Xxh3Stream::restart() {
  if (width_ == Width::k64)
    XXH3_64bits_reset(&state_->xxh3);
  else
    XXH3_128bits_reset(&state_->xxh3);
}

void Xxh3Stream::add(const void* data, size_t bytes) {
  if (width_ == Width::k64)
    XXH3_64bits_update(&state_->xxh3, data, bytes);
  else
    XXH3_128bits_update(&state_->xxh3, data, bytes);
}

std::string Xxh3Stream::hex() const {
  if (width_ == Width::k64) return digits(XXH3_64bits_digest(&state_->xxh3));
  const XXH128_hash_t hash = XXH3_128bits_digest(&state_->xxh3);
  return motley::hex(Hash128{hash.high64, hash.low64});
}

}  // namespace motley
