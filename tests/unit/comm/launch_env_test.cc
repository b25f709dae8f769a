#include "comm/launch_env.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

namespace motley {
namespace {

/// Runs under ctest, but perhaps itself inside somebody's mpirun or srun: starts from nothing.
class LaunchEnvironment : public ::testing::Test {
 protected:
  LaunchEnvironment() { clear(); }
  ~LaunchEnvironment() override { clear(); }
  static void clear() {
    for (const char* name :
         {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
          "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "PMIX_RANK", "PMI_RANK", "PMI_SIZE",
          "MPI_LOCALRANKID", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_STEP_NUM_TASKS",
          "SLURM_LOCALID"})
      unsetenv(name);
  }
  static void set(const std::vector<std::pair<std::string, std::string>>& variables) {
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  }
};

TEST_F(LaunchEnvironment, NobodyStartedIt) { EXPECT_FALSE(launch_env().has_value()); }

TEST_F(LaunchEnvironment, OpenMpi) {
  set({{"OMPI_COMM_WORLD_RANK", "5"},
       {"OMPI_COMM_WORLD_SIZE", "8"},
       {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
       {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}});
  const auto env = launch_env();
  ASSERT_TRUE(env.has_value());
  EXPECT_EQ(env->rank, 5);
  EXPECT_EQ(env->size, 8);
  EXPECT_EQ(env->local_rank, 1);
  EXPECT_EQ(env->local_size, 4);
}

TEST_F(LaunchEnvironment, SlurmStepButNotTheBatchScriptAround) {
  set({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}});
  EXPECT_FALSE(launch_env().has_value());
  set({{"SLURM_PROCID", "3"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_LOCALID", "2"}});
  const auto env = launch_env();
  ASSERT_TRUE(env.has_value());
  EXPECT_EQ(env->rank, 3);
  EXPECT_EQ(env->size, 4);
  EXPECT_EQ(env->local_rank, 2);
}

TEST_F(LaunchEnvironment, NonsenseIsNotALauncher) {
  set({{"OMPI_COMM_WORLD_RANK", "x"}, {"OMPI_COMM_WORLD_SIZE", "4"}});
  EXPECT_FALSE(launch_env().has_value());
  set({{"OMPI_COMM_WORLD_RANK", "4"}});  // not below the size
  EXPECT_FALSE(launch_env().has_value());
}

}  // namespace
}  // namespace motley
