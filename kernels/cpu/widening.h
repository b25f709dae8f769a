#pragma once
// The operands of a call in reduced precision, each with a place for it as floats.

#include <array>
#include <span>

#include "core/check.h"
#include "core/ids.h"
#include "kernels/ops/matmul.h"

namespace motley {

/// Visits the operands of a call and puts places in scratch memory in their stead. An operand named
/// twice (in place) gets one place.
class Widening {
 public:
  struct Entry {
    Address stored;
    int64_t count = 0;
    std::byte* wide = nullptr;
    bool read = false, written = false;
  };

  /// Null: nothing is put anywhere, only bytes() is of interest.
  explicit Widening(std::byte* scratch) : scratch_(scratch) {}

  void read(const Operand& operand) { use(operand, true, false); }
  void update(const Operand& operand) { use(operand, true, true); }
  void write(const Operand& operand) { use(operand, false, true); }

  std::span<const Entry> entries() const { return std::span(entries_).first(size_); }
  int64_t bytes() const { return bytes_; }

 private:
  void use(const Operand& operand, bool read, bool written) {
    if (operand.type != ElementType::kReduced || operand.address.null()) return;
    Entry& entry = entry_of(operand);
    entry.read |= read;
    entry.written |= written;
    if (scratch_ != nullptr) operand.address = Address::of(entry.wide);
  }

  Entry& entry_of(const Operand& operand) {
    for (Entry& entry : std::span(entries_).first(size_))
      if (entry.stored == operand.address) return entry;
    MOTLEY_CHECK(size_ < entries_.size(), "an operation with more operands than expected");
    constexpr int64_t kAlignment = 64;
    Entry& entry = entries_[size_++];
    entry = {.stored = operand.address, .count = operand.count};
    if (scratch_ != nullptr) entry.wide = scratch_ + bytes_;
    const int64_t size = operand.count * static_cast<int64_t>(sizeof(float));
    bytes_ += (size + kAlignment - 1) / kAlignment * kAlignment;
    return entry;
  }

  std::byte* scratch_;
  std::array<Entry, 8> entries_{};
  size_t size_ = 0;
  int64_t bytes_ = 0;
};

/// Where a CPU that computes in TensorFloat-32 has the factors of a product rounded: A's, then B's.
struct FactorCopies {
  int64_t a, b;  ///< elements

  explicit FactorCopies(const MatmulArgs& args)
      : a((args.transpose_a ? args.k : args.m) * args.lda()), b(args.k * args.n) {}
  int64_t b_begin() const { return (a + 15) / 16 * 16; }
  Bytes bytes() const { return Bytes((b_begin() + b) * static_cast<int64_t>(sizeof(float))); }
};

}  // namespace motley
