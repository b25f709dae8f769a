#include "kernels/pcie.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace motley {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

GpuStatus linked(int width, int most_width, int generation, int most_generation) {
  GpuStatus status;
  status.pcie_width = width;
  status.most_pcie_width = most_width;
  status.pcie_generation = generation;
  status.most_pcie_generation = most_generation;
  return status;
}

// The figures everybody quotes for x16, in GB/s each way.
TEST(Pcie, CarriesWhatItsGenerationSays) {
  const double quoted[] = {4.0, 8.0, 15.75, 31.5, 63.0, 121.0};
  for (int generation = 1; generation <= 6; ++generation)
    EXPECT_NEAR(pcie_bytes_per_second(generation, 16).value() / 1e9, quoted[generation - 1], 0.05);
  EXPECT_NEAR(pcie_bytes_per_second(3, 4).value() / 1e9, 3.94, 0.005);
  EXPECT_EQ(pcie_bytes_per_second(0, 16), std::nullopt);
  EXPECT_EQ(pcie_bytes_per_second(7, 16), std::nullopt);
  EXPECT_EQ(pcie_bytes_per_second(4, 0), std::nullopt);
}

TEST(Pcie, AFullLinkIsNotComplainedAbout) {
  const std::string verdict = pcie_verdict(linked(16, 16, 4, 4), 26.3e9);
  EXPECT_EQ(verdict, "26.3 GB/s, 83 % of the 31.5 GB/s of x16 generation 4");
}

TEST(Pcie, AnExternalDockIsAReason) {
  EXPECT_EQ(pcie_verdict(linked(4, 16, 3, 3), 3.15e9),
            "3.1 GB/s, 80 % of the 3.9 GB/s of x4 generation 3 (x4 of x16: an external dock or a "
            "slot with fewer lanes)");
}

TEST(Pcie, AnOlderGenerationIsAReason) {
  const std::string verdict = pcie_verdict(linked(16, 16, 3, 4), 12.9e9);
  EXPECT_THAT(verdict, HasSubstr("generation 3 of 4"));
  EXPECT_THAT(verdict, Not(HasSubstr("of x16:")));
  EXPECT_THAT(pcie_verdict(linked(8, 16, 3, 4), 6e9),
              HasSubstr("(x8 of x16: an external dock or a slot with fewer lanes; generation 3"));
}

// A Thunderbolt 3 dock tunnels 22 Gbit/s of PCIe.
TEST(Pcie, WhatTheLinkDoesNotReachIsSaid) {
  EXPECT_THAT(pcie_verdict(linked(4, 16, 3, 3), 2.6e9), HasSubstr("Thunderbolt"));
  EXPECT_THAT(pcie_verdict(linked(16, 16, 4, 4), 12e9),
              HasSubstr("38 % of the 31.5 GB/s of x16 generation 4: something takes the rest"));
}

TEST(Pcie, ADriverThatDoesNotTellIsNotGuessedAt) {
  EXPECT_EQ(pcie_verdict(GpuStatus(), 1e9), "the driver does not tell what its PCIe link is");
  EXPECT_EQ(pcie_text(GpuStatus()), "");
  GpuStatus narrow;
  narrow.pcie_width = 4;
  narrow.most_pcie_width = 16;
  EXPECT_EQ(pcie_verdict(narrow, 1e9), "x4 of x16: an external dock or a slot with fewer lanes");
  EXPECT_EQ(pcie_text(linked(4, 16, 3, 3)), "x4 generation 3");
}

}  // namespace
}  // namespace motley
