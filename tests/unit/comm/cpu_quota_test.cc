#include "comm/cpu_quota.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/temporary_directory.h"

namespace motley {
namespace {

class CpuQuota : public ::testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = mount_.path() + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  std::optional<double> of(const std::string& own) { return cpu_quota(own, mount_.path()); }

  testing::TemporaryDirectory mount_;
};

TEST_F(CpuQuota, IsTheGroups) {
  write("/job/cpu.max", "150000 100000\n");
  EXPECT_EQ(of("0::/job\n"), 1.5);
  write("/cpu/job/cpu.cfs_quota_us", "5000\n");
  write("/cpu/job/cpu.cfs_period_us", "10000\n");
  EXPECT_EQ(of("9:memory:/job\n4:cpu,cpuacct:/job\n1:name=systemd:/job\n"), 0.5);
}

TEST_F(CpuQuota, IsTheLeastOfTheGroupsAbove) {
  write("/pod/box/cpu.max", "400000 100000\n");
  write("/pod/cpu.max", "200000 100000\n");
  EXPECT_EQ(of("0::/pod/box\n"), 2);
  write("/cpu.max", "100000 100000\n");
  EXPECT_EQ(of("0::/pod/box\n"), 1) << "as a container sees its own";
  EXPECT_EQ(of("0::/\n"), 1);
}

TEST_F(CpuQuota, IsNoneWhereNothingSetsOne) {
  write("/job/cpu.max", "max 100000\n");
  write("/cpu/job/cpu.cfs_quota_us", "-1\n");
  write("/cpu/job/cpu.cfs_period_us", "100000\n");
  write("/other/cpu.max", "1000 100000\n");
  for (const char* own : {"0::/job\n", "4:cpu:/job\n", "0::/elsewhere\n", "5:cpuset:/other\n", "",
                          "0::\n", "nonsense\n"})
    EXPECT_EQ(of(own), std::nullopt) << own;
}

}  // namespace
}  // namespace motley
