#include "kernels/cpu/blas.h"

#include <dlfcn.h>

#include <cstdlib>
#include <sstream>

namespace motley {
namespace {

constexpr const char* kLibrary = "libopenblas.so.0";

template <class Function>
bool find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  return function != nullptr;
}

bool has_skylake_avx512() {
#if defined(__x86_64__)
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512cd");
#else
  return false;
#endif
}

/// The second word of "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH ...".
std::string version_of(const char* config) {
  std::istringstream words(config);
  std::string word;
  words >> word >> word;
  return word;
}

Result<Blas> load() {
  // OpenBLAS reads its environment when it is loaded, and starts its threads then. A value the user
  // set stays.
  setenv("OPENBLAS_NUM_THREADS", "1", 0);
  if (has_skylake_avx512()) setenv("OPENBLAS_CORETYPE", "SkylakeX", 0);
  void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return fail(ErrorCode::kBrokenInstall,
                "the CPU kernels need " + std::string(kLibrary) +
                    " (Debian package libopenblas0-pthread): " + dlerror());
  Blas blas;
  void (*set_num_threads)(int) = nullptr;
  char* (*get_config)() = nullptr;
  char* (*get_corename)() = nullptr;
  if (!find(library, "cblas_sgemm", blas.sgemm) ||
      !find(library, "openblas_set_num_threads", set_num_threads) ||
      !find(library, "openblas_get_config", get_config) ||
      !find(library, "openblas_get_corename", get_corename))
    return fail(ErrorCode::kBrokenInstall,
                std::string(kLibrary) + " is not OpenBLAS: install libopenblas0-pthread");
  set_num_threads(1);
  blas.version = version_of(get_config());
  blas.core = get_corename();
  return blas;
}

}  // namespace

Result<const Blas*> open_blas() {
  static const Result<Blas> blas = load();
  if (!blas) return fail(blas.error());
  return &*blas;
}

}  // namespace motley
