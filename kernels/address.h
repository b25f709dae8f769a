#pragma once
// Where an operand lies: an index before the program is placed, a device address after.

#include <cstdint>

#include "core/check.h"

namespace motley {

class Address {
 public:
  constexpr Address() = default;
  /// A placed operand. Device memory is at least 4-byte aligned, which leaves the lowest bit for
  /// symbols.
  static Address of(const void* pointer) { return Address(reinterpret_cast<uintptr_t>(pointer)); }
  /// An operand known by number until a program is bound.
  static constexpr Address symbol(uint32_t id) {
    return Address((static_cast<uintptr_t>(id) << 1) | 1);
  }

  friend constexpr bool operator==(Address, Address) = default;
  constexpr bool null() const { return raw_ == 0; }
  constexpr bool is_symbol() const { return (raw_ & 1) != 0; }
  constexpr uint32_t symbol_id() const { return static_cast<uint32_t>(raw_ >> 1); }
  template <class T>
  T* as() const {
    MOTLEY_CHECK(!is_symbol(), "operand used before the program was bound");
    return reinterpret_cast<T*>(raw_);
  }

 private:
  constexpr explicit Address(uintptr_t raw) : raw_(raw) {}
  uintptr_t raw_ = 0;
};

}  // namespace motley
