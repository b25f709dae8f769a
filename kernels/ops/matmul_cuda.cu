#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/element.cuh"
#include "kernels/cuda/gelu.cuh"
#include "kernels/cuda/launch.cuh"

namespace motley::cuda {
namespace {

constexpr cudaDataType_t type_of(const float*) { return CUDA_R_32F; }
constexpr cudaDataType_t type_of(const __nv_bfloat16*) { return CUDA_R_16BF; }
constexpr cudaDataType_t type_of(const __half*) { return CUDA_R_16F; }

/// A matrix whose rows lie `ld` elements apart.
template <class T>
struct Rows {
  T* first;
  int64_t count, columns, ld;
};

/// Calls body(row, column, element of the matrix) in one thread for each element.
template <class T, class Body>
__device__ void for_element(const Rows<T>& rows, const Body& body) {
  const int64_t i = element_index();
  if (i >= rows.count * rows.columns) return;
  const int64_t row = i / rows.columns, column = i % rows.columns;
  body(row, column, rows.first + row * rows.ld + column);
}

/// c[row, column] = bias[column] (+ c[row, column])
template <class T, class C>
__global__ void add_bias(Rows<C> rows, const T* bias, bool accumulate) {
  for_element(rows, [&](int64_t, int64_t column, C* c) {
    put(c, accumulate ? wide(*c) + wide(bias[column]) : wide(bias[column]));
  });
}

template <class C>
__global__ void clear(Rows<C> rows) {
  for_element(rows, [](int64_t, int64_t, C* c) { put(c, 0.0f); });
}

/// c = gelu(pre_activation)
template <class T>
__global__ void activate(Rows<T> rows, const T* pre_activation) {
  for_element(rows, [&](int64_t row, int64_t column, T* c) {
    put(c, gelu(wide(pre_activation[row * rows.columns + column])));
  });
}

/// c *= gelu'(pre_activation)
template <class T>
__global__ void through_activation(Rows<T> rows, const T* pre_activation) {
  for_element(rows, [&](int64_t row, int64_t column, T* c) {
    put(c, wide(*c) * gelu_slope(wide(pre_activation[row * rows.columns + column])));
  });
}

template <class T>
LaunchShape one_thread_each(const Rows<T>& rows) {
  return {blocks_for(rows.count * rows.columns)};
}

/// The greatest power of two, at most 16, that divides all of `numbers`.
uint32_t common_alignment(std::initializer_list<uintptr_t> numbers) {
  constexpr uintptr_t kMost = 16;
  uintptr_t bits = kMost;
  for (const uintptr_t number : numbers) bits |= number;
  return static_cast<uint32_t>(bits & (~bits + 1));
}

uintptr_t address_of(Address address) { return reinterpret_cast<uintptr_t>(address.as<void>()); }

cublasLtEpilogue_t epilogue_of(const MatmulArgs& args) {
  const bool bias = !args.bias.null();
  switch (args.epilogue) {
    case Epilogue::kNone:
      return bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    case Epilogue::kGelu:
      return bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    case Epilogue::kGeluGradient:
      return CUBLASLT_EPILOGUE_DGELU;
  }
  return CUBLASLT_EPILOGUE_DEFAULT;
}

/// cuBLASLt is column-major: it sees our row-major matrices as their transposes, and computes
/// Cᵀ = op(B)ᵀ·op(A)ᵀ.
template <class T, class C>
class Product {
 public:
  explicit Product(const MatmulArgs& args)
      : args_(args),
        c_{args.c.as<C>(), args.m, args.n, args.ldc()},
        problem_{.m = args.n,
                 .n = args.m,
                 .k = args.k,
                 .lda = args.ldb(),
                 .ldb = args.lda(),
                 .type = type_of(static_cast<const T*>(nullptr)),
                 .output_type = type_of(static_cast<const C*>(nullptr)),
                 .transpose_a = args.transpose_b,
                 .transpose_b = args.transpose_a} {}

  void enqueue(CudaDevice& gpu) {
    if (args_.m * args_.n == 0 || all_at_once(gpu)) return;
    in_steps(gpu);
  }

 private:
  bool all_at_once(CudaDevice& gpu);
  void in_steps(CudaDevice& gpu);
  void apply_epilogue(CudaDevice& gpu);
  LtProblem problem(const Rows<C>& out, cublasLtEpilogue_t epilogue, bool accumulate) const;

  const MatmulArgs& args_;
  const Rows<C> c_;
  const LtProblem problem_;
};

template <class T, class C>
LtProblem Product<T, C>::problem(const Rows<C>& out, cublasLtEpilogue_t epilogue,
                                 bool accumulate) const {
  LtProblem problem = problem_;
  problem.ldd = out.ld;
  problem.accumulate = accumulate;
  problem.epilogue = epilogue;
  // What is left out of the epilogue is aligned as the rest.
  const bool whole = epilogue != CUBLASLT_EPILOGUE_DEFAULT;
  if (whole && args_.epilogue != Epilogue::kNone) problem.auxiliary_ld = args_.n;
  const auto bytes = [](int64_t elements, size_t size) {
    return static_cast<uintptr_t>(elements) * size;
  };
  problem.alignment = common_alignment(
      {address_of(args_.a), address_of(args_.b), reinterpret_cast<uintptr_t>(out.first),
       whole ? address_of(args_.bias) : 0, whole ? address_of(args_.pre_activation) : 0,
       bytes(problem.lda, sizeof(T)), bytes(problem.ldb, sizeof(T)), bytes(out.ld, sizeof(C)),
       bytes(problem.auxiliary_ld, sizeof(C))});
  return problem;
}

/// False, and nothing is done, where the library has no such product.
template <class T, class C>
bool Product<T, C>::all_at_once(CudaDevice& gpu) {
  const bool bias_of_another_type = sizeof(T) != sizeof(C) && !args_.bias.null();
  const bool bias_in_gradient = args_.epilogue == Epilogue::kGeluGradient && !args_.bias.null();
  if (args_.k == 0 || bias_of_another_type || bias_in_gradient) return false;
  const LtProblem whole = problem(c_, epilogue_of(args_), args_.accumulate);
  auto status = gpu.products().prepare(whole);
  // However it says that it has no such epilogue; what else is wrong shows without one.
  if (status != CUBLAS_STATUS_SUCCESS && whole.epilogue != CUBLASLT_EPILOGUE_DEFAULT) return false;
  if (status == CUBLAS_STATUS_SUCCESS)
    status = gpu.products().run(whole,
                                {.a = args_.b.as<const void>(),
                                 .b = args_.a.as<const void>(),
                                 .d = c_.first,
                                 .bias = args_.bias.as<const void>(),
                                 .auxiliary = args_.pre_activation.as<void>()},
                                gpu.stream());
  gpu.check(status, "matmul");
  return true;
}

/// The product alone, with kernels of ours before and after it.
template <class T, class C>
void Product<T, C>::in_steps(CudaDevice& gpu) {
  const bool aside = args_.epilogue == Epilogue::kGelu;
  const Rows<C> out = aside ? Rows<C>{args_.pre_activation.as<C>(), args_.m, args_.n, args_.n} : c_;
  const bool add = args_.accumulate || !args_.bias.null();
  if (!args_.bias.null())
    launch(gpu, "bias", one_thread_each(out), add_bias<T, C>, out, args_.bias.as<const T>(),
           args_.accumulate);
  if (args_.k == 0 && !add) launch(gpu, "empty sums", one_thread_each(out), clear<C>, out);
  if (args_.k > 0) {
    const LtProblem bare = problem(out, CUBLASLT_EPILOGUE_DEFAULT, add);
    auto status = gpu.products().prepare(bare);
    if (status == CUBLAS_STATUS_SUCCESS)
      status = gpu.products().run(
          bare, {.a = args_.b.as<const void>(), .b = args_.a.as<const void>(), .d = out.first},
          gpu.stream());
    gpu.check(status, "matmul");
  }
  apply_epilogue(gpu);
}

template <class T, class C>
void Product<T, C>::apply_epilogue(CudaDevice& gpu) {
  if (args_.epilogue == Epilogue::kGelu)
    launch(gpu, "gelu", one_thread_each(c_), activate<C>, c_, args_.pre_activation.as<const C>());
  if (args_.epilogue == Epilogue::kGeluGradient)
    launch(gpu, "gelu gradient", one_thread_each(c_), through_activation<C>, c_,
           args_.pre_activation.as<const C>());
}

}  // namespace

template <Precision kPrecision>
void matmul(Device& device, const MatmulArgs& args) {
  using T = Element<kPrecision>;
  if (args.full_output)
    Product<T, float>(args).enqueue(cuda_device(device));
  else
    Product<T, T>(args).enqueue(cuda_device(device));
}

MOTLEY_IN_EACH_PRECISION(matmul, MatmulArgs);

}  // namespace motley::cuda
