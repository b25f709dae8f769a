#pragma once
// Products of matrices as CUDA's libraries define them: column-major, in any of our types.

#include <cublasLt.h>

#include <vector>

namespace motley::cuda_on_host {

/// A matrix of a library's call: element (i, j) lies at data[i + j·leading].
struct Matrix {
  void* data = nullptr;
  cudaDataType_t type = CUDA_R_32F;
  int64_t leading = 0;

  float get(int64_t i, int64_t j) const;
  void set(int64_t i, int64_t j, float value) const;
};

struct Product {
  int64_t m = 0, n = 0, k = 0;
  Matrix a, b;
  bool transpose_a = false, transpose_b = false;
  bool tf32 = false;  ///< rounds the factors
};

/// [m, n] column-major: op(A)·op(B), summed in float.
std::vector<float> multiply(const Product& product);

}  // namespace motley::cuda_on_host
