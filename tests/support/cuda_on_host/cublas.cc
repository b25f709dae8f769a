#include <cublas_v2.h>

#include <vector>

#include "core/reduced_floats.h"
#include "tests/support/cuda_on_host/matmul_on_host.h"

namespace motley::cuda_on_host {

float Matrix::get(int64_t i, int64_t j) const {
  const int64_t at = i + j * leading;
  if (type == CUDA_R_32F) return static_cast<const float*>(data)[at];
  const uint16_t bits = static_cast<const uint16_t*>(data)[at];
  return type == CUDA_R_16BF ? Bf16::widen(bits) : Fp16::widen(bits);
}

void Matrix::set(int64_t i, int64_t j, float value) const {
  const int64_t at = i + j * leading;
  if (type == CUDA_R_32F)
    static_cast<float*>(data)[at] = value;
  else
    static_cast<uint16_t*>(data)[at] =
        type == CUDA_R_16BF ? Bf16::round(value) : Fp16::round(value);
}

std::vector<float> multiply(const Product& p) {
  const auto at = [](int64_t i, int64_t j, int64_t rows) {
    return static_cast<size_t>(i + j * rows);
  };
  std::vector<float> c(static_cast<size_t>(p.m * p.n)), a(static_cast<size_t>(p.m * p.k));
  for (int64_t l = 0; l < p.k; ++l)
    for (int64_t i = 0; i < p.m; ++i)
      a[at(i, l, p.m)] = p.transpose_a ? p.a.get(l, i) : p.a.get(i, l);
  for (int64_t j = 0; j < p.n; ++j)
    for (int64_t l = 0; l < p.k; ++l) {
      const float b = p.transpose_b ? p.b.get(j, l) : p.b.get(l, j);
      for (int64_t i = 0; i < p.m; ++i) c[at(i, j, p.m)] += a[at(i, l, p.m)] * b;
    }
  return c;
}

}  // namespace motley::cuda_on_host

using motley::cuda_on_host::Matrix;
using motley::cuda_on_host::Product;

struct cublasContext {
  cudaStream_t stream = nullptr;
};

const char* cublasGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_SUCCESS ? "success" : "invalid value";
}
cublasStatus_t cublasCreate(cublasHandle_t* handle) {
  *handle = new cublasContext;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy(cublasHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetWorkspace(cublasHandle_t, void*, size_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasSetSmCountTarget(cublasHandle_t, int) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t cublasGetProperty(libraryPropertyType type, int* value) {
  *value = type == MAJOR_VERSION ? CUDART_VERSION / 1000 : 0;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGemmEx_64(cublasHandle_t handle, cublasOperation_t transpose_a,
                               cublasOperation_t transpose_b, int64_t m, int64_t n, int64_t k,
                               const void* alpha, const void* a, cudaDataType_t a_type, int64_t lda,
                               const void* b, cudaDataType_t b_type, int64_t ldb, const void* beta,
                               void* c, cudaDataType_t c_type, int64_t ldc, cublasComputeType_t,
                               cublasGemmAlgo_t) {
  const Product product{.m = m,
                        .n = n,
                        .k = k,
                        .a = {const_cast<void*>(a), a_type, lda},
                        .b = {const_cast<void*>(b), b_type, ldb},
                        .transpose_a = transpose_a == CUBLAS_OP_T,
                        .transpose_b = transpose_b == CUBLAS_OP_T};
  const Matrix out{c, c_type, ldc};
  const float scale = *static_cast<const float*>(alpha), keep = *static_cast<const float*>(beta);
  motley_enqueue(handle->stream, [=] {
    const std::vector<float> values = motley::cuda_on_host::multiply(product);
    for (int64_t j = 0; j < n; ++j)
      for (int64_t i = 0; i < m; ++i) {
        const float value = scale * values[static_cast<size_t>(i + j * m)];
        out.set(i, j, keep == 0 ? value : value + keep * out.get(i, j));
      }
  });
  return CUBLAS_STATUS_SUCCESS;
}
