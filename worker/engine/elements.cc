#include "worker/engine/elements.h"

#include <algorithm>
#include <cstring>

#include "core/check.h"
#include "core/reduced_floats.h"

namespace motley {
namespace {

template <class T>
T load(std::span<const std::byte> bytes, int64_t index) {
  T value;
  std::memcpy(&value, bytes.data() + static_cast<size_t>(index) * sizeof(T), sizeof(T));
  return value;
}

template <class T>
void store(std::span<std::byte> bytes, int64_t index, T value) {
  std::memcpy(bytes.data() + static_cast<size_t>(index) * sizeof(T), &value, sizeof(T));
}

template <class Reduced>
void widen_as(std::span<const std::byte> stored, std::span<float> wide) {
  const auto* bits = reinterpret_cast<const uint16_t*>(stored.data());
  for (size_t i = 0; i < wide.size(); ++i) wide[i] = Reduced::widen(bits[i]);
}

template <class Reduced>
void round_as(std::span<const float> wide, std::span<std::byte> stored) {
  auto* bits = reinterpret_cast<uint16_t*>(stored.data());
  for (size_t i = 0; i < wide.size(); ++i) bits[i] = Reduced::round(wide[i]);
}

}  // namespace

// The precision is asked for once, so that the loops are of instructions for many elements.
void widen_elements(std::span<const std::byte> stored, Precision precision, std::span<float> wide) {
  MOTLEY_CHECK_EQ(stored.size(), wide.size() * sizeof(uint16_t));
  MOTLEY_CHECK(is_reduced(precision), "no reduced precision");
  if (precision == Precision::kFp16) return widen_as<Fp16>(stored, wide);
  widen_as<Bf16>(stored, wide);  // kFp8 is stored so, too
}

void round_elements(std::span<const float> wide, Precision precision, std::span<std::byte> stored) {
  MOTLEY_CHECK_EQ(stored.size(), wide.size() * sizeof(uint16_t));
  MOTLEY_CHECK(is_reduced(precision), "no reduced precision");
  if (precision == Precision::kFp16) return round_as<Fp16>(wide, stored);
  round_as<Bf16>(wide, stored);  // kFp8 is stored so, too
}

double Elements::get(int64_t index) const {
  switch (stored_) {
    case Precision::kFp64:
      return load<double>(bytes_, index);
    case Precision::kBf16:
    case Precision::kFp8:
      return Bf16::widen(load<uint16_t>(bytes_, index));
    case Precision::kFp16:
      return Fp16::widen(load<uint16_t>(bytes_, index));
    case Precision::kFp32:
    case Precision::kTf32:
    case Precision::kAuto:
      break;
  }
  return load<float>(bytes_, index);
}

void Elements::set(int64_t index, double value) {
  switch (stored_) {
    case Precision::kFp64:
      return store(bytes_, index, value);
    case Precision::kBf16:
    case Precision::kFp8:
      return store(bytes_, index, Bf16::round(static_cast<float>(value)));
    case Precision::kFp16:
      return store(bytes_, index, Fp16::round(static_cast<float>(value)));
    case Precision::kFp32:
    case Precision::kTf32:
    case Precision::kAuto:
      break;
  }
  store(bytes_, index, static_cast<float>(value));
}

std::span<std::byte> convert_in_place(std::span<std::byte> bytes, Precision from, Precision to) {
  const int widest = std::max(reduced_bytes(from), reduced_bytes(to));
  const size_t count = bytes.size() / static_cast<size_t>(widest);
  const Elements source(bytes.last(count * static_cast<size_t>(reduced_bytes(from))), from);
  const std::span<std::byte> result = bytes.first(count * static_cast<size_t>(reduced_bytes(to)));
  Elements target(result, to);
  // What is written never reaches past what has been read.
  for (int64_t i = 0; i < static_cast<int64_t>(count); ++i) target.set(i, source.get(i));
  return result;
}

}  // namespace motley
