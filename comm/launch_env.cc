#include "comm/launch_env.h"

#include <charconv>
#include <cstdlib>
#include <cstring>

namespace motley {
namespace {

std::optional<int> number(const char* name) {
  const char* text = name == nullptr ? nullptr : std::getenv(name);
  if (text == nullptr) return std::nullopt;
  int value = 0;
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, value);
  if (error != std::errc() || stop != end || value < 0) return std::nullopt;
  return value;
}

struct Names {
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;  ///< may be null
};

// A launcher counts when it gives both rank and size. Slurm sets SLURM_PROCID and SLURM_NTASKS in
// batch scripts too, where one process stands alone; SLURM_STEP_NUM_TASKS only under srun.
constexpr Names kLaunchers[] = {
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"PMIX_RANK", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", nullptr},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", nullptr},
};

}  // namespace

std::optional<LaunchEnv> launch_env() {
  for (const Names& names : kLaunchers) {
    const auto rank = number(names.rank);
    const auto size = number(names.size);
    if (!rank || !size || *rank >= *size) continue;
    return LaunchEnv{*rank, *size, number(names.local_rank).value_or(0),
                     number(names.local_size).value_or(0)};
  }
  return std::nullopt;
}

}  // namespace motley
