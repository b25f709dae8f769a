#include "kernels/cuda_fit.h"

#include <gtest/gtest.h>

namespace motley {
namespace {

constexpr const char* kCode13 = "sm_75 sm_80 sm_86 sm_89 sm_90 sm_100 sm_120 compute_120";
constexpr const char* kCode12 = "sm_70 sm_75 sm_80 sm_86 sm_89 sm_90 compute_90";
constexpr CudaBuild kBuild13{"13.0.88", kCode13};
constexpr CudaBuild kBuild12{"12.4.131", kCode12};

TEST(CudaDriver, RunsEveryCudaOfItsMajorVersionAndOlder) {
  EXPECT_EQ(driver_fault(kBuild13, {13000, "580.65"}), "");
  EXPECT_EQ(driver_fault({"13.2.1", kCode13}, {13000, "580.65"}), "");
  EXPECT_EQ(driver_fault(kBuild12, {12000, "525.60"}), "");
  EXPECT_EQ(driver_fault(kBuild12, {13010, ""}), "");
}

TEST(CudaDriver, OlderOnesAreNamedWithWhatToDo) {
  EXPECT_EQ(driver_fault(kBuild13, {12020, "535.183.01"}),
            "the NVIDIA driver 535.183.01 supports CUDA 12.2, this build needs CUDA 13 (driver 580 "
            "or later); update the driver, or build with preset cuda12");
  EXPECT_EQ(driver_fault(kBuild13, {11080, ""}),
            "the NVIDIA driver supports CUDA 11.8, this build needs CUDA 13 (driver 580 or later); "
            "update the driver");
  EXPECT_EQ(driver_fault(kBuild12, {11080, "520.61"}),
            "the NVIDIA driver 520.61 supports CUDA 11.8, this build needs CUDA 12 (driver 525 or "
            "later); update the driver");
  EXPECT_EQ(driver_fault(kBuild12, {0, ""}),
            "no NVIDIA driver is loaded; this build needs one for CUDA 12 (driver 525 or later)");
}

TEST(CudaCard, MachineCodeRunsOnItsGenerationFromItselfOn) {
  EXPECT_TRUE(has_code_for("sm_80", 80));
  EXPECT_TRUE(has_code_for("sm_80", 86));
  EXPECT_FALSE(has_code_for("sm_86", 80));
  EXPECT_FALSE(has_code_for("sm_80", 90));
  EXPECT_TRUE(has_code_for("sm_75 sm_90", 90));
  EXPECT_TRUE(has_code_for("sm_100", 103));
  EXPECT_FALSE(has_code_for("sm_100", 110));
}

TEST(CudaCard, CodeForOneCardRunsOnThatOneOnly) {
  EXPECT_TRUE(has_code_for("sm_90a", 90));
  EXPECT_FALSE(has_code_for("sm_100a", 103));
  EXPECT_TRUE(has_code_for("sm_100f", 103));
}

TEST(CudaCard, PtxRunsOnEverythingNewer) {
  EXPECT_TRUE(has_code_for("sm_70 compute_70", 120));
  EXPECT_FALSE(has_code_for("sm_90 compute_90", 89));
}

TEST(CudaCard, EveryCardNamedIsServedByAPreset) {
  for (const int capability : {75, 80, 86, 89, 90, 100, 103, 120, 121})
    EXPECT_EQ(card_fault(kBuild13, "card", capability), "") << capability;
  for (const int capability : {70, 75, 80, 86, 89, 90, 100, 120})
    EXPECT_EQ(card_fault(kBuild12, "card", capability), "") << capability;
}

TEST(CudaCard, OneWithoutCodeIsNamedWithThePresetThatServesIt) {
  EXPECT_EQ(card_fault(kBuild13, "Tesla V100-SXM2-16GB", 70),
            "Tesla V100-SXM2-16GB (sm_70): this build has sm_75 to sm_120; build with preset "
            "cuda12");
  EXPECT_EQ(card_fault({"13.0.88", "sm_90"}, "Tesla T4", 75),
            "Tesla T4 (sm_75): this build has sm_90; build with preset cuda");
  EXPECT_EQ(card_fault(kBuild12, "GeForce GTX 1070", 61),
            "GeForce GTX 1070 (sm_61): this build has sm_70 to sm_90; Motley needs sm_70");
  EXPECT_EQ(card_fault(kBuild13, "Thor", 110),
            "Thor (sm_110): this build has sm_75 to sm_120; build with "
            "-DCMAKE_CUDA_ARCHITECTURES=110");
}

TEST(CudaCard, WhatCannotBeToldFromTheBuildIsLeftToTheDriver) {
  EXPECT_EQ(card_fault({"13.0.88", "native"}, "Tesla T4", 75), "");
}

TEST(CudaModuleLoad, AMissingLibraryIsNamedWithItsPackage) {
  const std::string rest = ": cannot open shared object file: No such file or directory";
  EXPECT_EQ(load_fault(kBuild13, "libcublas.so.13" + rest),
            "the CUDA module does not load: libcublas.so.13 is missing; install libcublas-13-0 "
            "(CUDA 13.0.88), or add its directory to LD_LIBRARY_PATH");
  EXPECT_NE(load_fault(kBuild12, "libcublasLt.so.12" + rest).find("install libcublas-12-4 "),
            std::string::npos);
  EXPECT_NE(load_fault(kBuild13, "libcudnn.so.9" + rest).find("install libcudnn9-cuda-13 "),
            std::string::npos);
  EXPECT_NE(load_fault(kBuild13, "libnccl.so.2" + rest).find("install libnccl2 "),
            std::string::npos);
}

TEST(CudaModuleLoad, OtherReasonsStandAsTheyAre) {
  const std::string reason = "lib/motley_cuda.so: undefined symbol: cublasLtMatmul";
  EXPECT_EQ(load_fault(kBuild13, reason), "the CUDA module does not load: " + reason);
}

}  // namespace
}  // namespace motley
