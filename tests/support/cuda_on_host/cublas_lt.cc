#include <cublasLt.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <vector>

#include "core/reduced_floats.h"
#include "tests/support/cuda_on_host/matmul_on_host.h"

namespace motley::cuda_on_host {

float Matrix::get(int64_t i, int64_t j) const {
  const int64_t at = i + j * leading;
  if (type == CUDA_R_32F) return static_cast<const float*>(data)[at];
  if (type == CUDA_R_8F_E4M3) return E4m3::widen(static_cast<const uint8_t*>(data)[at]);
  if (type == CUDA_R_8F_E5M2) return E5m2::widen(static_cast<const uint8_t*>(data)[at]);
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
  const auto factor = [&](float value) { return p.tf32 ? Tf32::round(value) : value; };
  const auto at = [](int64_t i, int64_t j, int64_t rows) {
    return static_cast<size_t>(i + j * rows);
  };
  std::vector<float> c(static_cast<size_t>(p.m * p.n)), a(static_cast<size_t>(p.m * p.k));
  for (int64_t l = 0; l < p.k; ++l)
    for (int64_t i = 0; i < p.m; ++i)
      a[at(i, l, p.m)] = factor(p.transpose_a ? p.a.get(l, i) : p.a.get(i, l));
  for (int64_t j = 0; j < p.n; ++j)
    for (int64_t l = 0; l < p.k; ++l) {
      const float b = factor(p.transpose_b ? p.b.get(j, l) : p.b.get(l, j));
      for (int64_t i = 0; i < p.m; ++i) c[at(i, j, p.m)] += a[at(i, l, p.m)] * b;
    }
  return c;
}

}  // namespace motley::cuda_on_host

using motley::cuda_on_host::Matrix;
using motley::cuda_on_host::Product;

struct cublasLtContext {};

struct cublasLtMatmulDescOpaque_t {
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  cublasOperation_t transpose_a = CUBLAS_OP_N, transpose_b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  void* auxiliary = nullptr;
  int64_t auxiliary_leading = 0;
  const float *a_scale = nullptr, *b_scale = nullptr;

  bool has_bias() const { return (epilogue & CUBLASLT_EPILOGUE_BIAS) != 0; }
  bool has_auxiliary() const { return (epilogue & 128) != 0; }
};

struct cublasLtMatrixLayoutOpaque_t {
  cudaDataType_t type;
  int64_t rows, columns, leading;

  Matrix at(const void* data) const { return {const_cast<void*>(data), type, leading}; }
  bool in_8_bits() const { return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2; }
  bool is_like(int64_t other_rows, int64_t other_columns) const {
    return rows == other_rows && columns == other_columns && leading >= rows;
  }
};

struct cublasLtMatmulPreferenceOpaque_t {
  uint64_t workspace = 0;
  uint32_t schemes = 7;
  uint32_t alignment_a = 256, alignment_b = 256, alignment_c = 256, alignment_d = 256;
};

namespace {

/// What our algorithms write of themselves into cublasLtMatmulAlgo_t: what they were chosen for.
struct Algorithm {
  uint64_t alignment_a, alignment_b, alignment_d, alignment_bias, alignment_auxiliary, epilogue;

  static Algorithm of(const cublasLtMatmulAlgo_t& algo) {
    return {algo.data[0], algo.data[1], algo.data[2], algo.data[3], algo.data[4], algo.data[5]};
  }
  cublasLtMatmulAlgo_t written() const {
    return {{alignment_a, alignment_b, alignment_d, alignment_bias, alignment_auxiliary, epilogue,
             0, 0}};
  }
};

/// Of an address; that of null is the greatest.
uint64_t alignment_of(const void* address) {
  const auto bits = reinterpret_cast<uintptr_t>(address) | 256;
  return bits & (~bits + 1);
}

template <class T>
cublasStatus_t take(T& field, const void* value, size_t size) {
  if (size != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&field, value, size);
  return CUBLAS_STATUS_SUCCESS;
}

/// m, n, k; nothing where the layouts do not fit each other.
std::optional<Product> shape_of(const cublasLtMatmulDescOpaque_t& desc,
                                const cublasLtMatrixLayoutOpaque_t& a,
                                const cublasLtMatrixLayoutOpaque_t& b,
                                const cublasLtMatrixLayoutOpaque_t& d) {
  Product p;
  p.transpose_a = desc.transpose_a == CUBLAS_OP_T;
  p.transpose_b = desc.transpose_b == CUBLAS_OP_T;
  p.tf32 = desc.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  p.m = d.rows;
  p.n = d.columns;
  p.k = p.transpose_a ? a.rows : a.columns;
  const bool fits = (p.transpose_a ? a.is_like(p.k, p.m) : a.is_like(p.m, p.k)) &&
                    (p.transpose_b ? b.is_like(p.n, p.k) : b.is_like(p.k, p.n)) &&
                    d.is_like(p.m, p.n) && (a.type == b.type || (a.in_8_bits() && b.in_8_bits())) &&
                    p.m > 0 && p.n > 0 && p.k > 0;
  return fits ? std::optional(p) : std::nullopt;
}

/// What the cuBLAS library reference allows of products in 8 bits, on GPUs from sm_89 to sm_90.
bool is_served(const cublasLtMatmulDescOpaque_t& desc, const cublasLtMatrixLayoutOpaque_t& a,
               const cublasLtMatrixLayoutOpaque_t& b, const cublasLtMatrixLayoutOpaque_t& d,
               const cublasLtMatmulPreferenceOpaque_t& wish) {
  if (!a.in_8_bits()) return true;
  const int64_t numbers = a.rows | a.columns | b.columns | a.leading | b.leading | d.leading;
  const uint32_t alignment =
      std::min({wish.alignment_a, wish.alignment_b, wish.alignment_c, wish.alignment_d});
  const bool both_e5m2 = a.type == CUDA_R_8F_E5M2 && b.type == CUDA_R_8F_E5M2;
  return desc.transpose_a == CUBLAS_OP_T && desc.transpose_b == CUBLAS_OP_N &&
         desc.compute == CUBLAS_COMPUTE_32F && numbers % 16 == 0 && alignment >= 16 && !both_e5m2;
}

double gelu(double x) {
  return x / 2 * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
}

/// With a coarse tanh, as an H200's was.
double gelu_slope(double x) {
  const double inner = std::sqrt(2 / std::acos(-1.0));
  const double t = std::round(std::tanh(inner * (x + 0.044715 * x * x * x)) * 8192) / 8192;
  return (1 + t) / 2 + x / 2 * (1 - t * t) * inner * (1 + 3 * 0.044715 * x * x);
}

/// What is done with each sum, copied when the call is made.
struct Finish {
  cublasLtMatmulDescOpaque_t desc;
  Matrix d, bias, auxiliary;
  float alpha = 1, beta = 0;

  /// As it is when the stream is there.
  float scale() const {
    return (desc.a_scale == nullptr ? 1 : *desc.a_scale) *
           (desc.b_scale == nullptr ? 1 : *desc.b_scale);
  }

  void operator()(int64_t i, int64_t j, float product) const {
    float sum = alpha * scale() * product;
    if (beta != 0) sum += beta * d.get(i, j);
    if (desc.has_bias()) sum += bias.get(i, 0);
    if (desc.epilogue == CUBLASLT_EPILOGUE_DGELU) {
      sum = static_cast<float>(sum * gelu_slope(auxiliary.get(i, j)));
    } else if (desc.has_auxiliary()) {
      auxiliary.set(i, j, sum);
      sum = static_cast<float>(gelu(sum));
    }
    d.set(i, j, sum);
  }
};

}  // namespace

const char* cublasLtGetStatusString(cublasStatus_t status) {
  if (status == CUBLAS_STATUS_NOT_SUPPORTED) return "not supported";
  return status == CUBLAS_STATUS_SUCCESS ? "success" : "invalid value";
}
cublasStatus_t cublasLtGetProperty(libraryPropertyType type, int* value) {
  *value = type == MAJOR_VERSION ? CUDART_VERSION / 1000 : 0;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = new cublasLtContext;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  if (scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  *desc = new cublasLtMatmulDescOpaque_t{.compute = compute};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  delete desc;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, size_t size) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return take(desc->transpose_a, value, size);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return take(desc->transpose_b, value, size);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return take(desc->epilogue, value, size);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return take(desc->bias, value, size);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return take(desc->auxiliary, value, size);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return take(desc->auxiliary_leading, value, size);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
      return take(desc->a_scale, value, size);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
      return take(desc->b_scale, value, size);
    case CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET:
      return CUBLAS_STATUS_SUCCESS;  // of no consequence here
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type,
                                          uint64_t rows, uint64_t columns, int64_t leading) {
  *layout = new cublasLtMatrixLayoutOpaque_t{type, static_cast<int64_t>(rows),
                                             static_cast<int64_t>(columns), leading};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* wish) {
  *wish = new cublasLtMatmulPreferenceOpaque_t;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t wish) {
  delete wish;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t wish,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t size) {
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return take(wish->workspace, value, size);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return take(wish->schemes, value, size);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return take(wish->alignment_a, value, size);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return take(wish->alignment_b, value, size);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return take(wish->alignment_c, value, size);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return take(wish->alignment_d, value, size);
  }
  return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t wish, int wanted,
                                              cublasLtMatmulHeuristicResult_t* found, int* count) {
  *count = 0;
  const auto shape = shape_of(*desc, *a, *b, *d);
  if (!shape || wanted < 1 || c->type != d->type) return CUBLAS_STATUS_INVALID_VALUE;
  if (!is_served(*desc, *a, *b, *d, *wish)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (desc->has_auxiliary() &&
      (desc->auxiliary_leading % 8 != 0 || desc->auxiliary_leading < shape->m ||
       alignment_of(desc->auxiliary) < 16))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  const Algorithm algorithm{.alignment_a = wish->alignment_a,
                            .alignment_b = wish->alignment_b,
                            .alignment_d = std::max(wish->alignment_c, wish->alignment_d),
                            .alignment_bias = alignment_of(desc->bias),
                            .alignment_auxiliary = alignment_of(desc->auxiliary),
                            .epilogue = desc->epilogue};
  *found = {.algo = algorithm.written(), .workspaceSize = 0, .state = CUBLAS_STATUS_SUCCESS};
  *count = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t, void* d, cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algo, void*, size_t,
                              cudaStream_t stream) {
  auto product = shape_of(*desc, *a_layout, *b_layout, *d_layout);
  const Algorithm chosen = Algorithm::of(*algo);
  const bool served =
      alignment_of(a) >= chosen.alignment_a && alignment_of(b) >= chosen.alignment_b &&
      alignment_of(d) >= chosen.alignment_d && alignment_of(desc->bias) >= chosen.alignment_bias &&
      alignment_of(desc->auxiliary) >= chosen.alignment_auxiliary &&
      alignment_of(desc->a_scale) >= 16 && alignment_of(desc->b_scale) >= 16 &&
      desc->epilogue == chosen.epilogue && c == d;
  if (!product || !served || (desc->has_bias() && desc->bias == nullptr) ||
      (desc->has_auxiliary() && desc->auxiliary == nullptr))
    return CUBLAS_STATUS_INVALID_VALUE;
  product->a = a_layout->at(a);
  product->b = b_layout->at(b);
  Finish finish{.desc = *desc,
                .d = d_layout->at(d),
                .bias = {const_cast<void*>(desc->bias), d_layout->type, 0},
                .auxiliary = {desc->auxiliary, d_layout->type, desc->auxiliary_leading}};
  finish.alpha = *static_cast<const float*>(alpha);
  finish.beta = *static_cast<const float*>(beta);
  motley_enqueue(stream, [product = *product, finish] {
    const std::vector<float> sums = motley::cuda_on_host::multiply(product);
    for (int64_t j = 0; j < product.n; ++j)
      for (int64_t i = 0; i < product.m; ++i)
        finish(i, j, sums[static_cast<size_t>(i + j * product.m)]);
  });
  return CUBLAS_STATUS_SUCCESS;
}
