#pragma once
// Matrices in 8-bit floats with one scale each, as products of cuBLASLt read them.

#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/element.cuh"

namespace motley::cuda {

/// Rows of bfloat16, `stride` elements from one to the next. The first starts on 16 bytes; rows,
/// columns and stride are multiples of 16.
struct WideMatrix {
  const __nv_bfloat16* first;
  int64_t rows, columns, stride;
};

/// Where one in 8 bits goes: dense, on 16 bytes, and what a number is to be multiplied with
/// afterwards.
struct EightBitMatrix {
  uint8_t* first;
  float* scale;
};

/// In 8 bits as MatmulArgs::fp8 says: E5M2 of a gradient, else E4M3. `out` gets the transpose if
/// wanted.
struct EightBitForm {
  bool gradient = false, transpose = false;
};
void round_to_8_bits(CudaDevice& gpu, const WideMatrix& in, const EightBitForm& form,
                     const EightBitMatrix& out);

}  // namespace motley::cuda
