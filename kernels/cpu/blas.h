#pragma once
// The one routine taken from OpenBLAS, opened at run time.

#include <string>

#include "core/result.h"

namespace motley {

/// CBLAS constants, as its header numbers them.
inline constexpr int kCblasRowMajor = 101;
inline constexpr int kCblasNoTrans = 111;
inline constexpr int kCblasTrans = 112;

/// OpenBLAS limited to the calling thread: how work is cut over threads decides bits, so the
/// devices do it themselves.
struct Blas {
  /// cblas_sgemm: C[m,n] = alpha·op(A)·op(B) + beta·C with leading dimensions. Beta 0 does not read
  /// C. Callable from any number of threads at once.
  void (*sgemm)(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha,
                const float* a, int lda, const float* b, int ldb, float beta, float* c,
                int ldc) = nullptr;
  std::string version;  ///< "0.3.21"
  std::string core;     ///< the kernels it chose for this CPU, e.g. "SkylakeX"
};

/// Opened at the first call, for the life of the process. On a CPU with AVX-512 the SkylakeX
/// kernels are asked for, unless the user set OPENBLAS_CORETYPE: OpenBLAS falls back to kernels of
/// half the speed on CPUs newer than itself. Sets variables of this process's environment, so call
/// it before other threads read theirs. kBrokenInstall, naming the package, when it is
/// missing.
Result<const Blas*> open_blas();

}  // namespace motley
