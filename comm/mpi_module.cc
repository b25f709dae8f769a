#include "comm/mpi_module.h"

#include <dlfcn.h>

#include <filesystem>
#include <system_error>

#include "comm/checked.h"
#include "comm/collectives.h"
#include "core/module.h"

namespace motley {
namespace {

/// kBrokenInstall where there is none.
Result<std::filesystem::path> mpi_module_path() {
  const std::filesystem::path path = module_path("motley_mpi");
  std::error_code error;
  if (std::filesystem::exists(path, error)) return path;
  return fail(ErrorCode::kBrokenInstall,
              "built without MPI: " + path.string() +
                  " is missing; install libopenmpi-dev and build again, or run one rank alone");
}

struct MpiModule {
  MpiModuleOpen open = nullptr;
  MpiModuleLibrary library = nullptr;
};

Result<MpiModule> load() {
  MOTLEY_TRY(const std::filesystem::path path, mpi_module_path());
  // Never closed: MPI libraries do not survive being unloaded.
  void* module = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (module == nullptr)
    return fail(ErrorCode::kBrokenInstall,
                std::string("the MPI module does not load: ") + dlerror());
  const auto version = reinterpret_cast<MpiModuleVersion>(dlsym(module, kMpiModuleVersionSymbol));
  const MpiModule found{reinterpret_cast<MpiModuleOpen>(dlsym(module, kMpiModuleOpenSymbol)),
                        reinterpret_cast<MpiModuleLibrary>(dlsym(module, kMpiModuleLibrarySymbol))};
  if (version == nullptr || found.open == nullptr || found.library == nullptr ||
      version() != kMpiModuleVersion)
    return fail(ErrorCode::kBrokenInstall,
                path.string() + " is of another version of Motley: build it again");
  return found;
}

}  // namespace

Result<std::unique_ptr<Communicator>> open_mpi_communicator(const CommunicatorOptions& options) {
  MOTLEY_TRY(const MpiModule module, load());
  MOTLEY_TRY(auto transport, module.open(options));
  auto ranks = communicator_over(std::move(transport));
  int64_t any_is_checked = options.checked.value_or(collectives_are_checked()) ? 1 : 0;
  MOTLEY_TRY_VOID(ranks->all_reduce_max(std::span(&any_is_checked, 1)));
  return any_is_checked != 0 ? checked(std::move(ranks)) : std::move(ranks);
}

Result<std::string> mpi_library() {
  MOTLEY_TRY(const MpiModule module, load());
  return module.library();
}

}  // namespace motley
