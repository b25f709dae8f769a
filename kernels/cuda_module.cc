#include "kernels/cuda_module.h"

#include <dlfcn.h>

#include <system_error>

#include "core/module.h"
#include "core/version.h"
#include "kernels/cuda_fit.h"

namespace motley {
namespace {

struct CudaModule {
  CudaModuleOpen open = nullptr;
  CudaModuleDiscover discover = nullptr;
};

Result<CudaModule> load_module() {
  const std::filesystem::path path = module_path("motley_cuda");
  std::error_code error;
  if (!std::filesystem::exists(path, error))
    return fail(ErrorCode::kUnsupported, "built without CUDA: " + path.string() +
                                             " is missing; install a CUDA toolkit and build again");
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);  // for the life of the process
  if (library == nullptr) {
    const BuildVersion& build = build_version();
    return fail(ErrorCode::kUnsupported,
                load_fault({build.cuda, build.cuda_architectures}, dlerror()));
  }
  const auto version =
      reinterpret_cast<CudaModuleVersion>(dlsym(library, kCudaModuleVersionSymbol));
  const CudaModule module{
      reinterpret_cast<CudaModuleOpen>(dlsym(library, kCudaModuleOpenSymbol)),
      reinterpret_cast<CudaModuleDiscover>(dlsym(library, kCudaModuleDiscoverSymbol))};
  if (version == nullptr || module.open == nullptr || module.discover == nullptr ||
      version() != kCudaModuleVersion)
    return fail(ErrorCode::kUnsupported,
                path.string() + " is of another version of Motley: build it again");
  return module;
}

const Result<CudaModule>& cuda_module() {
  static const Result<CudaModule> module = load_module();
  return module;
}

}  // namespace

Result<std::unique_ptr<Device>> open_cuda_device(const DeviceSpec& spec, Precision precision) {
  const Result<CudaModule>& module = cuda_module();
  auto device = module ? module->open(spec, precision) : fail(module.error());
  // Whatever keeps a GPU from being used: to the job that names it, it is not there.
  if (!device && device.error().code == ErrorCode::kUnsupported)
    device.error().code = ErrorCode::kNoDevice;
  return device;
}

Result<std::vector<FoundDevice>> discover_cuda_devices() {
  MOTLEY_TRY(const CudaModule module, cuda_module());
  return module.discover();
}

}  // namespace motley
