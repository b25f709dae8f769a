#include <mutex>

#include "core/log.h"
#include "kernels/cuda/cuda_device.cuh"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/eight_bits.cuh"
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

constexpr uintptr_t kMostAlignment = 16;

/// The greatest power of two, at most kMostAlignment, that divides all of `numbers`.
uint32_t common_alignment(std::initializer_list<uintptr_t> numbers) {
  uintptr_t bits = kMostAlignment;
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

/// Of a product, where cuBLASLt reads it: row-major, `ld` elements from a row to the next.
struct Factor {
  const void* first;
  cudaDataType_t type;
  int element_bytes;
  int64_t ld;
  bool transpose;
  const float* scale = nullptr;  ///< in 8 bits

  uintptr_t address() const { return reinterpret_cast<uintptr_t>(first); }
  uintptr_t row_bytes() const { return static_cast<uintptr_t>(ld * element_bytes); }
};

template <class T>
Factor plain_a(const MatmulArgs& args) {
  const auto* first = args.a.as<const T>();
  return {first, type_of(first), sizeof(T), args.lda(), args.transpose_a};
}
template <class T>
Factor plain_b(const MatmulArgs& args) {
  const auto* first = args.b.as<const T>();
  return {first, type_of(first), sizeof(T), args.ldb(), args.transpose_b};
}

/// cuBLASLt is column-major: it sees our row-major matrices as their transposes, and computes
/// Cᵀ = op(B)ᵀ·op(A)ᵀ.
template <class T, class C>
class Product {
 public:
  explicit Product(const MatmulArgs& args) : Product(args, plain_a<T>(args), plain_b<T>(args)) {}
  /// Of these in place of those of `args`.
  Product(const MatmulArgs& args, const Factor& a, const Factor& b)
      : args_(args),
        a_(a),
        b_(b),
        c_{args.c.as<C>(), args.m, args.n, args.ldc()},
        problem_{.m = args.n,
                 .n = args.m,
                 .k = args.k,
                 .lda = b.ld,
                 .ldb = a.ld,
                 .a_type = b.type,
                 .b_type = a.type,
                 .output_type = type_of(static_cast<const C*>(nullptr)),
                 .scaled = a.scale != nullptr,
                 .transpose_a = b.transpose,
                 .transpose_b = a.transpose} {}

  /// What the library says of the product alone; k > 0.
  cublasStatus_t prepare(CudaDevice& gpu) const { return gpu.products().prepare(bare()); }

  void enqueue(CudaDevice& gpu) {
    if (args_.m * args_.n == 0 || all_at_once(gpu)) return;
    in_steps(gpu);
  }

 private:
  bool all_at_once(CudaDevice& gpu);
  void in_steps(CudaDevice& gpu);
  void apply_epilogue(CudaDevice& gpu);
  LtProblem problem(const Rows<C>& out, cublasLtEpilogue_t epilogue, bool accumulate) const;
  LtOperands operands(const Rows<C>& out) const {
    return {.a = b_.first, .b = a_.first, .d = out.first, .a_scale = b_.scale, .b_scale = a_.scale};
  }
  /// Where the sums go that a kernel of ours then applies the epilogue to.
  Rows<C> sums() const {
    const bool aside = args_.epilogue == Epilogue::kGelu;
    return aside ? Rows<C>{args_.pre_activation.as<C>(), args_.m, args_.n, args_.n} : c_;
  }
  bool adds() const { return args_.accumulate || !args_.bias.null(); }
  LtProblem bare() const { return problem(sums(), CUBLASLT_EPILOGUE_DEFAULT, adds()); }

  const MatmulArgs& args_;
  const Factor a_, b_;
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
      {a_.address(), b_.address(), reinterpret_cast<uintptr_t>(out.first),
       whole ? address_of(args_.bias) : 0, whole ? address_of(args_.pre_activation) : 0,
       a_.row_bytes(), b_.row_bytes(), bytes(out.ld, sizeof(C)),
       bytes(problem.auxiliary_ld, sizeof(C))});
  return problem;
}

/// False, and nothing is done, where the library has no such product.
template <class T, class C>
bool Product<T, C>::all_at_once(CudaDevice& gpu) {
  const bool bias_of_another_type = sizeof(T) != sizeof(C) && !args_.bias.null();
  const bool bias_in_gradient = args_.epilogue == Epilogue::kGeluGradient && !args_.bias.null();
  // Its GELU takes the GPU's own tanh, which is good for about 11 bits.
  const bool rougher = args_.epilogue != Epilogue::kNone && gpu.precision() == Precision::kFp32;
  if (args_.k == 0 || bias_of_another_type || bias_in_gradient || rougher) return false;
  const LtProblem whole = problem(c_, epilogue_of(args_), args_.accumulate);
  auto status = gpu.products().prepare(whole);
  // However it says that it has no such epilogue; what else is wrong shows without one.
  if (status != CUBLAS_STATUS_SUCCESS && whole.epilogue != CUBLASLT_EPILOGUE_DEFAULT) return false;
  LtOperands all = operands(c_);
  all.bias = args_.bias.as<const void>();
  all.auxiliary = args_.pre_activation.as<void>();
  if (status == CUBLAS_STATUS_SUCCESS) status = gpu.products().run(whole, all, gpu.stream());
  gpu.check(status, "matmul");
  return true;
}

/// The product alone, with kernels of ours before and after it.
template <class T, class C>
void Product<T, C>::in_steps(CudaDevice& gpu) {
  const Rows<C> out = sums();
  if (!args_.bias.null())
    launch(gpu, "bias", one_thread_each(out), add_bias<T, C>, out, args_.bias.as<const T>(),
           args_.accumulate);
  if (args_.k == 0 && !adds()) launch(gpu, "empty sums", one_thread_each(out), clear<C>, out);
  if (args_.k > 0) {
    auto status = prepare(gpu);
    if (status == CUBLAS_STATUS_SUCCESS)
      status = gpu.products().run(bare(), operands(out), gpu.stream());
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

/// Rows of C at its end that are better computed apart. Where the rows of Aᵀ hold part of 16 bytes,
/// cuBLASLt's fastest kernels will not read them: with 50,257 tokens that takes 1.7 times as long.
template <class T>
int64_t rows_left_over(const MatmulArgs& args) {
  constexpr int64_t kMany = 1024, kTile = 256;
  const auto on_16_bytes = [](int64_t elements) {
    return elements * static_cast<int64_t>(sizeof(T)) % 16 == 0;
  };
  const bool better = args.transpose_a && args.epilogue == Epilogue::kNone && args.m >= kMany &&
                      on_16_bytes(args.lda()) && !on_16_bytes(args.m);
  return better ? args.m % kTile : 0;
}

template <class T, class C>
void enqueue_product(CudaDevice& gpu, const MatmulArgs& args) {
  const int64_t left_over = rows_left_over<T>(args);
  if (left_over == 0) return Product<T, C>(args).enqueue(gpu);
  MatmulArgs most = args;
  most.m -= left_over;
  most.a_stride = args.lda();
  MatmulArgs rest = most;
  rest.m = left_over;
  rest.a = Address::of(args.a.as<const T>() + most.m);
  rest.c = Address::of(args.c.as<C>() + most.m * args.ldc());
  Product<T, C>(most).enqueue(gpu);
  Product<T, C>(rest).enqueue(gpu);
}

/// Both in 8 bits, in the call's workspace. Rows hold the k elements that are summed over, which is
/// all that tensor cores take in 8 bits before sm_100.
class EightBitFactors {
 public:
  explicit EightBitFactors(const MatmulArgs& args)
      : args_(args),
        a_{args.workspace.as<uint8_t>(), nullptr},
        b_{a_.first + args.m * args.k, nullptr} {
    a_.scale = reinterpret_cast<float*>(b_.first + args.n * args.k);
    b_.scale = a_.scale + kEightBitScale;
  }

  Factor a() const {
    return {a_.first, args_.gradient_a ? CUDA_R_8F_E5M2 : CUDA_R_8F_E4M3, 1, args_.k, false,
            a_.scale};
  }
  Factor b() const { return {b_.first, CUDA_R_8F_E4M3, 1, args_.k, true, b_.scale}; }

  /// Whether what they are made from lies as round_to_8_bits() wants it.
  bool can_be_made() const {
    return common_alignment({address_of(args_.a), address_of(args_.b)}) == kMostAlignment;
  }
  void enqueue(CudaDevice& gpu) const {
    const auto *a = args_.a.as<const __nv_bfloat16>(), *b = args_.b.as<const __nv_bfloat16>();
    const bool turn_a = args_.transpose_a, turn_b = !args_.transpose_b;
    round_to_8_bits(gpu, {a, turn_a ? args_.k : args_.m, turn_a ? args_.m : args_.k, args_.lda()},
                    {.gradient = args_.gradient_a, .transpose = turn_a}, a_);
    round_to_8_bits(gpu, {b, turn_b ? args_.k : args_.n, args_.ldb(), args_.ldb()},
                    {.transpose = turn_b}, b_);
  }

 private:
  const MatmulArgs& args_;
  EightBitMatrix a_, b_;
};

template <class C>
void enqueue_in_fp8(CudaDevice& gpu, const MatmulArgs& args) {
  using T = Element<stored_precision(Precision::kFp8)>;
  if (args.in_8_bits()) {
    MOTLEY_CHECK(!args.workspace.null(), "a product in fp8 without a workspace");
    const EightBitFactors factors(args);
    Product<T, C> product(args, factors.a(), factors.b());
    const auto status = product.prepare(gpu);
    if (status == CUBLAS_STATUS_SUCCESS && factors.can_be_made()) {
      factors.enqueue(gpu);
      return product.enqueue(gpu);
    }
    static std::once_flag said;
    std::call_once(said, [&] {
      log_warning(gpu.name() + ": cuBLASLt does not take every product in fp8 (" +
                  cublasLtGetStatusString(status) + "): those are computed in bf16");
    });
  }
  enqueue_product<T, C>(gpu, args);
}

}  // namespace

template <Precision kPrecision>
void matmul(Device& device, const MatmulArgs& args) {
  using T = Element<kPrecision>;
  if (args.full_output)
    enqueue_product<T, float>(cuda_device(device), args);
  else
    enqueue_product<T, T>(cuda_device(device), args);
}

MOTLEY_IN_EACH_PRECISION(matmul, MatmulArgs);

void matmul_in_fp8(Device& device, const MatmulArgs& args) {
  if (args.full_output)
    enqueue_in_fp8<float>(cuda_device(device), args);
  else
    enqueue_in_fp8<Element<stored_precision(Precision::kFp8)>>(cuda_device(device), args);
}

}  // namespace motley::cuda
