#pragma once
// What a rank holds of memory that grows with the model: every buffer of that kind is counted where
// it is allocated, for as long as it lives, and can be held against what a plan predicts.

#include <array>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "core/ids.h"

namespace motley {

enum class MemoryUse {
  kDevice,    ///< the device's: parameters, gradients, optimizer state, activations
  kExchange,  ///< the host's: slices on their way to and from other ranks
  kSnapshot,  ///< the host's: the copy of the state that a checkpoint is written from
  kHost,      ///< the host's: optimizer state kept there, views of memory it cannot reach
};

/// One thread. Outlives what is charged to it.
class MemoryAccount {
 public:
  void add(MemoryUse use, Bytes size);
  void remove(MemoryUse use, Bytes size);

  Bytes held(MemoryUse use) const { return held_[static_cast<size_t>(use)]; }
  /// The most that was ever held at once: for one use, and for all together.
  Bytes peak_of(MemoryUse use) const { return peaks_[static_cast<size_t>(use)]; }
  Bytes peak() const { return peak_; }

 private:
  std::array<Bytes, 4> held_, peaks_;
  Bytes peak_{0};
};

/// Bytes on an account for its own life.
class MemoryCharge {
 public:
  MemoryCharge() = default;
  MemoryCharge(MemoryAccount& account, MemoryUse use, Bytes size);
  MemoryCharge(MemoryCharge&& other) noexcept { swap(other); }
  MemoryCharge& operator=(MemoryCharge&& other) noexcept {
    MemoryCharge(std::move(other)).swap(*this);
    return *this;
  }
  ~MemoryCharge();

  Bytes size() const { return size_; }

 private:
  void swap(MemoryCharge& other) noexcept {
    std::swap(account_, other.account_);
    std::swap(use_, other.use_);
    std::swap(size_, other.size_);
  }

  MemoryAccount* account_ = nullptr;
  MemoryUse use_ = MemoryUse::kDevice;
  Bytes size_{0};
};

/// Host memory on an account, zeroed.
class CountedMemory {
 public:
  CountedMemory() = default;
  CountedMemory(MemoryAccount& account, MemoryUse use, Bytes size)
      : charge_(account, use, size), bytes_(static_cast<size_t>(size.value())) {}

  std::byte* data() { return bytes_.data(); }
  std::span<std::byte> bytes() { return bytes_; }

 private:
  MemoryCharge charge_;
  std::vector<std::byte> bytes_;
};

}  // namespace motley
