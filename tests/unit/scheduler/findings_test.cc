#include "scheduler/doctor/findings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace motley {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMiB = 1 << 20;

WorkerFacts healthy() {
  return {.chosen = false,
          .found = true,
          .directory = "/opt/motley/bin",
          .error = "",
          .version = "0.1.0",
          .git = "abc",
          .cuda = "13.0",
          .gpus = "none: no GPU",
          .arithmetic = "cpu:x86-64-v3:openblas-0.3.21-SkylakeX",
          .mpi = "Open MPI v4.1.4"};
}

WorkerFacts worker(std::string WorkerFacts::*member, const std::string& value) {
  WorkerFacts facts = healthy();
  facts.*member = value;
  return facts;
}

void expect(const Finding& finding, Health health, const std::string& fix) {
  EXPECT_EQ(finding.health, health) << finding.detail;
  EXPECT_FALSE(finding.detail.empty());
  if (fix.empty())
    EXPECT_EQ(finding.fix, "") << finding.detail;
  else
    EXPECT_THAT(finding.fix, HasSubstr(fix)) << finding.detail;
}

TEST(Doctor, Compiler) {
  const auto of = [](const std::string& version) {
    return compiler_finding({"/usr/bin/c++", version});
  };
  expect(of("c++ (Debian 12.2.0-14+deb12u1) 12.2.0\nCopyright"), Health::kGood, "");
  expect(of("g++ (GCC) 13.1.0 20230426"), Health::kGood, "");
  expect(of("c++ (Debian 10.2.1-6) 10.2.1"), Health::kAbsent, "-DCMAKE_CXX_COMPILER=/usr/bin/g++");
  expect(of("Debian clang version 14.0.6"), Health::kAbsent, "-DCMAKE_CXX_COMPILER=/usr/bin/g++");
  expect(compiler_finding({"", std::string()}), Health::kAbsent, "apt-get install g++");
  expect(compiler_finding({"/usr/bin/c++", fail(ErrorCode::kBrokenInstall, "status 1")}),
         Health::kAbsent, "--reinstall g++");
}

TEST(Doctor, Worker) {
  expect(worker_finding(healthy(), "abc"), Health::kGood, "");
  expect(worker_finding(healthy(), "def"), Health::kBroken, "cmake --build --preset release");
  const std::string lacks = "error while loading shared libraries: libspdlog.so.1.10: no such file";
  expect(worker_finding(worker(&WorkerFacts::error, lacks), "abc"), Health::kBroken,
         "deploy/install_dependencies.sh");
  expect(worker_finding(worker(&WorkerFacts::error, "signal 4"), "abc"), Health::kBroken,
         "cmake --build --preset release");
  WorkerFacts missing = worker(&WorkerFacts::error, "no worker program");
  missing.found = false;
  expect(worker_finding(missing, "abc"), Health::kBroken, "/opt/motley/bin");
  missing.chosen = true;
  expect(worker_finding(missing, "abc"), Health::kBroken, "unset MOTLEY_WORKER");
}

TEST(Doctor, Kernels) {
  expect(kernels_finding(healthy()), Health::kGood, "");
  expect(kernels_finding(worker(&WorkerFacts::arithmetic, "the CPU kernels need libopenblas.so.0")),
         Health::kBroken, "apt-get install libopenblas0-pthread");
  expect(kernels_finding(worker(&WorkerFacts::arithmetic,
                                "built for x86-64-v3, which this CPU lacks; rebuild with "
                                "-DMOTLEY_CPU_ISA=x86-64-v2")),
         Health::kBroken, "cmake --preset release -DMOTLEY_CPU_ISA=x86-64-v2, then build again");
  expect(kernels_finding(worker(&WorkerFacts::error, "status 127")), Health::kBroken,
         "motley-worker above");
}

TEST(Doctor, Launch) {
  const LaunchFacts fine = {true, std::string("mpi: Open MPI v4.1.4")};
  expect(launch_finding(fine, healthy()), Health::kGood, "");
  expect(launch_finding({false, std::string()}, healthy()), Health::kBroken,
         "apt-get install openmpi-bin");
  expect(launch_finding(fine, worker(&WorkerFacts::error, "status 127")), Health::kBroken,
         "motley-worker above");
  expect(launch_finding(fine, worker(&WorkerFacts::mpi, "built without MPI: lib is missing")),
         Health::kBroken, "apt-get install libopenmpi-dev, then build again");
  expect(launch_finding(fine, worker(&WorkerFacts::mpi, "the MPI module does not load: libmpi")),
         Health::kBroken, "apt-get install libopenmpi3");
  expect(launch_finding(fine, worker(&WorkerFacts::mpi, "is of another version of Motley")),
         Health::kBroken, "cmake --build");
  expect(launch_finding({true, fail(ErrorCode::kIo, "cannot use /tmp")}, healthy()),
         Health::kBroken, "TMPDIR");
  expect(launch_finding({true, fail(ErrorCode::kIo,
                                    "cannot use /dev/shm/motley-0: it is another's; remove it")},
                        healthy()),
         Health::kBroken, "in the way: /dev/shm/motley-0");
  expect(launch_finding({true, fail(ErrorCode::kBrokenInstall, "no answer")}, healthy()),
         Health::kBroken, "mpirun -n 2");
}

TEST(Doctor, Gpu) {
  const GpuFacts none, bare{.card = true}, driven{.card = true, .driver = true, .nodes = true};
  const GpuFacts hidden{.card = true, .driver = true, .container = true};
  const auto with = [](const std::string& gpus) { return worker(&WorkerFacts::gpus, gpus); };
  expect(gpu_finding(driven, with("2 found")), Health::kGood, "");
  expect(gpu_finding(none, healthy()), Health::kAbsent, "CPUs train");
  expect(gpu_finding(bare, healthy()), Health::kAbsent, "apt-get install nvidia-driver");
  expect(gpu_finding(hidden, healthy()), Health::kAbsent, "--gpus all");
  expect(gpu_finding(driven, with("none: built without CUDA: missing")), Health::kAbsent,
         "CUDA toolkit");
  expect(gpu_finding(driven, with("none: no GPU: the NVIDIA driver 535 supports CUDA 12.2, this "
                                  "build needs CUDA 13; build with preset cuda12")),
         Health::kAbsent, "build with preset cuda12");
  expect(gpu_finding(driven, with("none: (is CUDA_VISIBLE_DEVICES set?)")), Health::kAbsent,
         "unset CUDA_VISIBLE_DEVICES");
  expect(gpu_finding(driven, with("none: is of another version of Motley")), Health::kAbsent,
         "cmake --build");
}

TEST(Doctor, Disk) {
  const DiskFacts fine{"/home/a", "XDG_STATE_HOME", Unit{}, Unit{}, Bytes(4096 * kMiB)};
  expect(disk_finding({fine}), Health::kGood, "");
  DiskFacts place = {"/full", "XDG_CACHE_HOME", Unit{}, Unit{}, Bytes(1 * kMiB)};
  expect(disk_finding({fine, place}), Health::kBroken, "free some space on the disk of /full");
  place.wrote = fail(ErrorCode::kIo, "No space left on device");
  expect(disk_finding({fine, place}), Health::kBroken, "free some space");
  place.made = fail(ErrorCode::kNotPermitted, "Not a directory");
  expect(disk_finding({fine, place}), Health::kBroken, "set XDG_CACHE_HOME");
}

TEST(Doctor, SharedMemory) {
  const auto of = [](int64_t size, int64_t room, bool container) {
    return shared_memory_finding(
        {.container = container, .size = Bytes(size * kMiB), .room = Bytes(room * kMiB)});
  };
  expect(of(1024, 512, false), Health::kGood, "");
  expect(of(64, 63, true), Health::kBroken, "--shm-size=1g");
  expect(of(64, 63, false), Health::kBroken, "mount -o remount");
  expect(of(1024, 3, true), Health::kBroken, "remove what fills /dev/shm");
  expect(shared_memory_finding({.writable = false}), Health::kBroken, "chmod 1777");
  expect(shared_memory_finding({.there = false}), Health::kBroken, "mount -t tmpfs");
  expect(shared_memory_finding({.there = false, .container = true}), Health::kBroken,
         "--shm-size=1g");
}

}  // namespace
}  // namespace motley
