#include "worker/engine/elements.h"

#include <algorithm>
#include <cstring>

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

}  // namespace

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
