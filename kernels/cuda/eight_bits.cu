#include <cuda_fp8.h>

#include <algorithm>

#include "core/reduced_floats.h"
#include "kernels/cuda/eight_bits.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/vector_access.cuh"

namespace motley::cuda {
namespace {

/// Parts of which each has a largest magnitude: one for each thread of the blocks that join them.
constexpr int64_t kMostParts = kBlockThreads;

constexpr __nv_fp8_interpretation_t kind_of(E4m3) { return __NV_E4M3; }
constexpr __nv_fp8_interpretation_t kind_of(E5m2) { return __NV_E5M2; }

struct LargerOf {
  __device__ unsigned operator()(unsigned a, unsigned b) const { return a > b ? a : b; }
};

/// A magnitude as its bits, by which an infinity is larger than all numbers and NaN larger still:
/// fmaxf would lose it.
__device__ unsigned magnitude_bits(__nv_bfloat16 x) {
  return __float_as_uint(wide(x)) & 0x7fffffff;
}

/// Each block leaves the largest magnitude of its part. The largest of all is the same in any
/// order.
__global__ void __launch_bounds__(kBlockThreads)
    largest_of_parts(WideMatrix in, unsigned* largest) {
  constexpr int kElements = kPack<__nv_bfloat16>;
  const int64_t packs = in.columns / kElements, step = int64_t{gridDim.x} * blockDim.x;
  unsigned most = 0;
  for (int64_t row = blockIdx.y; row < in.rows; row += gridDim.y)
    for (int64_t pack = element_index(); pack < packs; pack += step) {
      const auto read =
          load_pack<Access::kVector, kElements>(in.first + row * in.stride + pack * kElements);
      for (int i = 0; i < kElements; ++i) most = LargerOf()(most, magnitude_bits(read.at[i]));
    }
  most = block_reduce(most, 0u, LargerOf());
  if (threadIdx.x == 0) largest[blockIdx.y * gridDim.x + blockIdx.x] = most;
}

/// What the blocks of largest_of_parts() have left.
struct Parts {
  const unsigned* largest;
  unsigned count;
};

/// Called by all threads of the block; the grid's first leaves the scale for the product.
template <class Format>
__device__ float scale_down(const Parts& parts, float* scale_up) {
  unsigned most = threadIdx.x < parts.count ? parts.largest[threadIdx.x] : 0;
  most = block_reduce(most, 0u, LargerOf());
  const auto scale = Format::scale_of(__uint_as_float(most));
  if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) *scale_up = scale.up;
  return scale.down;
}

template <class Format>
__device__ void put_pair_in_8_bits(uint8_t* out, float x, float y) {
  const __nv_fp8x2_storage_t pair =
      __nv_cvt_float2_to_fp8x2(make_float2(x, y), __NV_SATFINITE, kind_of(Format()));
  out[0] = static_cast<uint8_t>(pair & 0xff);
  out[1] = static_cast<uint8_t>(pair >> 8);
}

/// Each thread turns 16 neighbours into 16 bytes.
template <class Format>
__global__ void __launch_bounds__(kBlockThreads)
    round_rows(WideMatrix in, Parts parts, EightBitMatrix out) {
  constexpr int kElements = kPack<uint8_t>;
  const float scale = scale_down<Format>(parts, out.scale);
  const int64_t packs = in.columns / kElements, step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t row = blockIdx.y; row < in.rows; row += gridDim.y)
    for (int64_t pack = element_index(); pack < packs; pack += step) {
      const auto read =
          load_pack<Access::kVector, kElements>(in.first + row * in.stride + pack * kElements);
      Pack<uint8_t, kElements> rounded;
      for (int i = 0; i < kElements; i += 2)
        put_pair_in_8_bits<Format>(rounded.at + i, wide(read.at[i]) * scale,
                                   wide(read.at[i + 1]) * scale);
      store_pack<Access::kVector>(out.first + row * in.columns + pack * kElements, rounded);
    }
}

/// A block transposes a square: 16 threads read a row of it, 8 bytes each, and write a column, 4
/// bytes each.
constexpr int kSquare = 64, kTogether = 4, kAcross = kSquare / kTogether;

template <class Format>
__global__ void __launch_bounds__(kBlockThreads)
    round_transposed(WideMatrix in, Parts parts, EightBitMatrix out) {
  // [column] of 64 rows; the word after them keeps threads that write off each other's banks.
  __shared__ unsigned square[kSquare][kAcross + 1];
  const float scale = scale_down<Format>(parts, out.scale);
  const int64_t first_row = int64_t{blockIdx.x} * kSquare;
  const int64_t first_column = int64_t{blockIdx.y} * kSquare;
  const int line = static_cast<int>(threadIdx.x) / kAcross;
  const int place = static_cast<int>(threadIdx.x) % kAcross * kTogether;
  for (int row = line; row < kSquare; row += kBlockThreads / kAcross) {
    if (first_row + row >= in.rows || first_column + place >= in.columns) continue;
    __nv_bfloat16 read[kTogether];
    const uint2 words = *reinterpret_cast<const uint2*>(in.first + (first_row + row) * in.stride +
                                                        first_column + place);
    memcpy(read, &words, sizeof(words));
    uint8_t rounded[kTogether];
    for (int i = 0; i < kTogether; i += 2)
      put_pair_in_8_bits<Format>(rounded + i, wide(read[i]) * scale, wide(read[i + 1]) * scale);
    for (int i = 0; i < kTogether; ++i)
      reinterpret_cast<uint8_t*>(square[place + i])[row] = rounded[i];
  }
  __syncthreads();
  for (int column = line; column < kSquare; column += kBlockThreads / kAcross)
    if (first_column + column < in.columns && first_row + place < in.rows)
      *reinterpret_cast<unsigned*>(out.first + (first_column + column) * in.rows + first_row +
                                   place) = square[column][place / kTogether];
}

template <class Format>
void round_in(CudaDevice& gpu, const WideMatrix& in, const Parts& parts, bool transpose,
              const EightBitMatrix& out) {
  constexpr int kElements = kPack<uint8_t>;
  if (transpose) {
    const auto squares = [](int64_t n) { return static_cast<unsigned>(ceil_div(n, kSquare)); };
    launch(gpu, "rounding to 8 bits", {dim3(squares(in.rows), squares(in.columns))},
           round_transposed<Format>, in, parts, out);
  } else {
    const auto rows = static_cast<unsigned>(std::min(in.rows, kMostBlocksAlongY));
    const unsigned columns = blocks_in_strides(gpu, in.columns / kElements, 1);
    launch(gpu, "rounding to 8 bits", {dim3(columns, rows)}, round_rows<Format>, in, parts, out);
  }
}

}  // namespace

void round_to_8_bits(CudaDevice& gpu, const WideMatrix& in, const EightBitForm& form,
                     const EightBitMatrix& out) {
  // Of a dense matrix one row is made, in which neighbouring threads are busy whatever its width.
  const bool dense = in.stride == in.columns;
  const int64_t all = in.rows * in.columns;
  const WideMatrix lines = dense ? WideMatrix{in.first, 1, all, all} : in;
  constexpr int64_t kPacksAThread = 4;
  const int64_t packs = lines.columns / kPack<__nv_bfloat16>;
  const auto across = static_cast<unsigned>(
      dense ? std::clamp<int64_t>(packs / (kPacksAThread * kBlockThreads), 1, kMostParts) : 1);
  const auto down = static_cast<unsigned>(std::min(lines.rows, kMostParts));
  auto* const largest = static_cast<unsigned*>(gpu.workspace());
  launch(gpu, "largest magnitude", {dim3(across, down)}, largest_of_parts, lines, largest);
  const Parts parts{largest, across * down};
  const WideMatrix& rounded = form.transpose ? in : lines;
  if (form.gradient)
    round_in<E5m2>(gpu, rounded, parts, form.transpose, out);
  else
    round_in<E4m3>(gpu, rounded, parts, form.transpose, out);
}

}  // namespace motley::cuda
