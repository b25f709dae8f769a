#pragma once
// XXH3, the one hash of Motley's formats: plan ids, checksums of checkpoints, cache keys.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace motley {

struct Hash128 {
  uint64_t high = 0;
  uint64_t low = 0;
  bool operator==(const Hash128&) const = default;
};
Hash128 xxh3_128(const void* data, size_t bytes);  ///< allocates nothing
std::string hex(const Hash128& hash);              ///< 32 digits, high half first

std::string xxh3_128_hex(const void* data, size_t bytes);  ///< 32 hex digits, high half first
std::string xxh3_64_hex(const void* data, size_t bytes);   ///< 16 hex digits

/// xxh3_64_hex() or xxh3_128_hex() of data that comes in pieces.
class Xxh3Stream {
 public:
  enum class Width { k64, k128 };
  explicit Xxh3Stream(Width width = Width::k64);
  ~Xxh3Stream();
  Xxh3Stream(const Xxh3Stream&) = delete;
  Xxh3Stream& operator=(const Xxh3Stream&) = delete;

  void add(const void* data, size_t bytes);
  std::string hex() const;  ///< of all so far
  void restart();           ///< as if nothing had been added

 private:
  struct State;
  const Width width_;
  std::unique_ptr<State> state_;
};

inline std::string xxh3_128_hex(std::string_view text) {
  return xxh3_128_hex(text.data(), text.size());
}

}  // namespace motley
