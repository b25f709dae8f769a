#include "comm/compression/top_k.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "comm/compression/magnitude.h"
#include "core/check.h"

namespace motley {
namespace {

constexpr int kIndexBits = 16;

int64_t index_blocks(size_t elements) {
  return static_cast<int64_t>((elements + (1 << kIndexBits) - 1) >> kIndexBits);
}

template <class T>
std::byte* append(std::byte* out, const std::vector<T>& values) {
  std::memcpy(out, values.data(), values.size() * sizeof(T));
  return out + values.size() * sizeof(T);
}

}  // namespace

TopKCodec::TopKCodec(const CodecSpec& spec)
    : Codec(spec), value_codec_(make_codec(codec_of_values(spec.values))) {}

void TopKCodec::gather(std::span<const float> in, int32_t floor) {
  constexpr size_t kGroup = 16;  // few groups hold any
  indices_.clear();
  size_t i = 0;
  const auto take = [&](size_t end) {
    for (; i < end; ++i)
      if (magnitude_bits(in[i]) >= floor) indices_.push_back(static_cast<uint32_t>(i));
  };
  while (i + kGroup <= in.size()) {
    if (largest_magnitude_bits(in.data() + i, kGroup) < floor)
      i += kGroup;
    else
      take(i + kGroup);
  }
  take(in.size());
}

/// Of those gathered, the `kept` largest stay.
void TopKCodec::drop_smallest(std::span<const float> in, int64_t kept) {
  magnitudes_.clear();
  for (const uint32_t index : indices_) magnitudes_.push_back(magnitude_bits(in[index]));
  const auto last = magnitudes_.begin() + (kept - 1);
  std::nth_element(magnitudes_.begin(), last, magnitudes_.end(), std::greater<>());
  const int32_t least = *last;
  const int64_t larger = std::count_if(magnitudes_.begin(), last,
                                       [&](int32_t magnitude) { return magnitude > least; });
  int64_t equals_left = kept - larger;
  std::erase_if(indices_, [&](uint32_t index) {
    const int32_t magnitude = magnitude_bits(in[index]);
    return magnitude < least || (magnitude == least && equals_left-- <= 0);
  });
}

void TopKCodec::select(std::span<const float> in, int64_t kept) {
  histogram_.fill(0);
  for (const float value : in)
    ++histogram_[static_cast<size_t>(magnitude_bits(value) >> kDroppedBits)];
  size_t bin = histogram_.size() - 1;
  int64_t not_below = histogram_[bin];
  while (not_below < kept) not_below += histogram_[--bin];
  gather(in, static_cast<int32_t>(bin << kDroppedBits));
  if (std::ssize(indices_) > kept) drop_smallest(in, kept);
  MOTLEY_CHECK_EQ(std::ssize(indices_), kept);
}

void TopKCodec::do_encode(std::span<const float> in, std::byte* out) {
  MOTLEY_CHECK_LE(in.size(), size_t{UINT32_MAX});
  const int64_t kept = kept_elements(spec(), std::ssize(in));
  select(in, kept);
  const auto blocks = static_cast<size_t>(index_blocks(in.size()));
  std::memset(out, 0, blocks * sizeof(uint32_t));
  short_indices_.clear();
  values_.clear();
  for (const uint32_t index : indices_) {
    std::byte* count_at = out + (index >> kIndexBits) * sizeof(uint32_t);
    uint32_t count;
    std::memcpy(&count, count_at, sizeof count);
    ++count;
    std::memcpy(count_at, &count, sizeof count);
    short_indices_.push_back(static_cast<uint16_t>(index));
    values_.push_back(in[index]);
  }
  out = append(out + blocks * sizeof(uint32_t), short_indices_);
  value_codec_->encode(values_, {out, static_cast<size_t>(value_codec_->encoded_bytes(kept))});
}

template <class Put>
void TopKCodec::for_sent(const std::byte* in, std::span<float> out, const Put& put) {
  const auto kept = static_cast<size_t>(kept_elements(spec(), std::ssize(out)));
  const auto blocks = static_cast<size_t>(index_blocks(out.size()));
  const std::byte* indices = in + blocks * sizeof(uint32_t);
  const std::byte* values = indices + kept * sizeof(uint16_t);
  values_.resize(kept);
  value_codec_->decode(
      {values, static_cast<size_t>(value_codec_->encoded_bytes(std::ssize(values_)))}, values_);
  size_t sent = 0;
  for (size_t block = 0; block < blocks; ++block) {
    uint32_t count;
    std::memcpy(&count, in + block * sizeof count, sizeof count);
    MOTLEY_CHECK_LE(count, kept - sent);
    for (const size_t end = sent + count; sent < end; ++sent) {
      uint16_t index;
      std::memcpy(&index, indices + sent * sizeof index, sizeof index);
      const size_t at = (block << kIndexBits) + index;
      MOTLEY_CHECK(at < out.size(), "no such element: these are not top-k's bytes");
      put(out[at], values_[sent]);
    }
  }
}

void TopKCodec::do_decode(const std::byte* in, std::span<float> out) {
  std::fill(out.begin(), out.end(), 0.0F);
  for_sent(in, out, [](float& to, float value) { to = value; });
}

void TopKCodec::do_decode_add(const std::byte* in, std::span<float> out) {
  for_sent(in, out, [](float& to, float value) { to += value; });
}

}  // namespace motley
