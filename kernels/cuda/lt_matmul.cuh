#pragma once
// Products of matrices through cuBLASLt, which also applies what follows a product (an epilogue)
// before the result leaves the multiprocessor.

#include <cublasLt.h>

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <type_traits>

namespace motley::cuda {

/// D[m,n] = epilogue(op(A)·op(B) + (accumulate ? D : 0)), all column-major, as cuBLASLt sees them.
/// Sums are in float32.
struct LtProblem {
  int64_t m = 0, n = 0, k = 0;
  int64_t lda = 0, ldb = 0, ldd = 0;
  cudaDataType_t a_type = CUDA_R_32F, b_type = CUDA_R_32F;
  cudaDataType_t output_type = CUDA_R_32F;  ///< of D, of the bias[m] and the auxiliary matrix
  bool scaled = false;                      ///< A and B are multiplied with a number each
  bool transpose_a = false, transpose_b = false;
  bool accumulate = false;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  int64_t auxiliary_ld = 0;  ///< of the matrix that some epilogues write or read
  uint32_t alignment = 0;    ///< bytes; every address is a multiple of it

  auto operator<=>(const LtProblem&) const = default;
};

struct LtOperands {
  const void *a = nullptr, *b = nullptr;
  void* d = nullptr;
  const void* bias = nullptr;
  void* auxiliary = nullptr;
  const float *a_scale = nullptr, *b_scale = nullptr;  ///< on the device; of scaled ones
};

/// The library's handle and what it was asked before: its choice of an algorithm is asked for once
/// for each problem, and is always its first, so that a product repeated gives the same bits. One
/// thread uses it.
class LtMatmul {
 public:
  LtMatmul() = default;
  LtMatmul(const LtMatmul&) = delete;
  LtMatmul& operator=(const LtMatmul&) = delete;
  ~LtMatmul();

  struct Options {
    int multiprocessors = 0;  ///< that algorithms are chosen for; 0: all of the GPU's
    bool tf32 = false;        ///< factors that are floats are rounded to TensorFloat-32
  };
  /// `workspace` of device memory stays the caller's; nothing is allocated later. Before anything
  /// else.
  cublasStatus_t start(void* workspace, size_t workspace_size, const Options& options);

  /// Whether the library has an algorithm for the problem; a status other than success and
  /// not-supported is a fault.
  cublasStatus_t prepare(const LtProblem& problem);
  /// Puts a prepared problem on the stream.
  cublasStatus_t run(const LtProblem& problem, const LtOperands& operands, cudaStream_t stream);

  /// "13.0.2"
  static std::string version();

 private:
  template <auto destroy>
  struct Destroy {
    template <class Descriptor>
    void operator()(Descriptor* descriptor) const {
      destroy(descriptor);
    }
  };
  template <class Descriptor, auto destroy>
  using Owned = std::unique_ptr<std::remove_pointer_t<Descriptor>, Destroy<destroy>>;
  using Layout = Owned<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>;

  struct Choice {
    cublasStatus_t status = CUBLAS_STATUS_NOT_SUPPORTED;  ///< of asking
    Owned<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy> product;
    Layout a, b, d;
    cublasLtMatmulAlgo_t algorithm{};
  };

  cublasStatus_t describe(const LtProblem& problem, Choice& choice) const;
  cublasStatus_t choose(const LtProblem& problem, Choice& choice) const;

  cublasLtHandle_t handle_ = nullptr;
  void* workspace_ = nullptr;
  size_t workspace_size_ = 0;
  Options options_;
  std::map<LtProblem, Choice> choices_;
};

}  // namespace motley::cuda
