#include "scheduler/doctor/findings.h"

#include <cstdlib>

#include "core/units.h"

namespace motley {
namespace {

constexpr int kOldestCompiler = 12;
constexpr Bytes kLeastDisk{int64_t{1} << 30};
constexpr Bytes kLeastSharedMemory{int64_t{64} << 20};

const char* const kInstallDependencies = "bash deploy/install_dependencies.sh";
const char* const kBuildBoth = "cmake --build --preset release builds motley and motley-worker";

Finding good(const std::string& what, const std::string& detail) {
  return {what, Health::kGood, detail, ""};
}
Finding absent(const std::string& what, const std::string& detail, const std::string& fix) {
  return {what, Health::kAbsent, detail, fix};
}
Finding broken(const std::string& what, const std::string& detail, const std::string& fix) {
  return {what, Health::kBroken, detail, fix};
}

bool says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

/// 12 of "g++ (Debian 12.2.0-14+deb12u1) 12.2.0 20221027"; 0 where there is no such thing.
int major_version(const std::string& line) {
  const size_t maker = line.rfind(") ");
  return std::atoi(line.c_str() + (maker == std::string::npos ? 0 : maker + 2));
}

/// What a program lacks that does not start.
std::string fix_of_start(const std::string& error) {
  return says(error, "shared libraries") ? kInstallDependencies : kBuildBoth;
}

/// The path in "cannot use PATH: why".
std::string named_in(const std::string& message) {
  const std::string begin = "cannot use ";
  const size_t path = message.find(begin);
  if (path == std::string::npos) return message;
  const size_t end = message.find(": ", path);
  return message.substr(path + begin.size(), end - path - begin.size());
}

/// Empty when it names a library: then the module works, whoever made the library.
std::string fix_of_module(const std::string& library) {
  if (says(library, "built without MPI")) return "apt-get install libopenmpi-dev, then build again";
  if (says(library, "does not load")) return "apt-get install libopenmpi3";
  return says(library, "another version of Motley") ? kBuildBoth : "";
}

}  // namespace

Finding compiler_finding(const CompilerFacts& facts) {
  const char* what = "compiler";
  if (facts.program.empty())
    return absent(what, "none (needed only to build Motley)", "apt-get install g++");
  if (!facts.version)
    return absent(what, facts.program + " does not run: " + facts.version.error().message,
                  "apt-get install --reinstall g++");
  const std::string line = first_line(*facts.version);
  const std::string use_gcc =
      "apt-get install g++, then configure with -DCMAKE_CXX_COMPILER=/usr/bin/g++";
  if (says(line, "clang")) return absent(what, line + "; Motley is built with g++", use_gcc);
  if (major_version(line) < kOldestCompiler)
    return absent(what, line + ", too old to build Motley (12 is needed)", use_gcc);
  return good(what, line);
}

Finding worker_finding(const WorkerFacts& facts, const std::string& our_git) {
  const char* what = "motley-worker";
  const std::string unset = "unset MOTLEY_WORKER: the one beside motley is then used";
  if (!facts.found)
    return broken(what, facts.error,
                  facts.chosen
                      ? unset
                      : "put motley-worker into " + facts.directory + "; " + kBuildBoth + " there");
  if (!facts.error.empty())
    return broken(what, "does not start: " + facts.error,
                  facts.chosen ? unset : fix_of_start(facts.error));
  if (facts.git != our_git)
    return broken(what, "of another version (" + facts.git + ") than motley (" + our_git + ")",
                  facts.chosen ? unset : kBuildBoth);
  return good(what, facts.version + " (" + facts.git + ")");
}

Finding kernels_finding(const WorkerFacts& facts) {
  const char* what = "CPU kernels";
  if (!facts.works()) return broken(what, "not known", "see motley-worker above");
  if (facts.arithmetic.starts_with("cpu:")) return good(what, facts.arithmetic.substr(4));
  if (says(facts.arithmetic, "openblas"))
    return broken(what, facts.arithmetic, "apt-get install libopenblas0-pthread");
  const size_t option = facts.arithmetic.find("-DMOTLEY_CPU_ISA=");
  if (option == std::string::npos) return broken(what, facts.arithmetic, kBuildBoth);
  return broken(what, facts.arithmetic.substr(0, facts.arithmetic.find(';')),
                "cmake --preset release " + facts.arithmetic.substr(option) + ", then build again");
}

Finding launch_finding(const LaunchFacts& facts, const WorkerFacts& worker) {
  const char* what = "MPI launch";
  if (!facts.mpirun)
    return broken(what, "Open MPI's mpirun is not in PATH", "apt-get install openmpi-bin");
  if (!worker.works()) return broken(what, "not tried", "see motley-worker above");
  const std::string module = fix_of_module(worker.mpi);
  if (!module.empty()) return broken(what, worker.mpi, module);
  if (!facts.communicator) {
    const Error& error = facts.communicator.error();
    if (says(error.message, "; remove it"))
      return broken(what, error.message,
                    "remove what stands in the way: " + named_in(error.message));
    if (error.code == ErrorCode::kIo)
      return broken(what, error.message, "set TMPDIR to a directory that you may write");
    return broken(what, error.message, "mend what `mpirun -n 2 hostname` complains of");
  }
  return good(what, "2 ranks through mpirun, " + *facts.communicator);
}

Finding gpu_finding(const GpuFacts& facts, const WorkerFacts& worker) {
  const char* what = "CUDA and driver";
  if (!worker.works()) return broken(what, "not known", "see motley-worker above");
  if (!worker.gpus.starts_with("none"))
    return good(what, worker.gpus + "; built with CUDA " + worker.cuda);
  if (!facts.card && !facts.driver)
    return absent(what, "no NVIDIA GPU in this machine", "none needed: CPUs train");
  const std::string reason = first_line(worker.gpus);
  if (facts.container && !facts.nodes)
    return absent(what, "the host's GPU is not in this container",
                  "start the container with --gpus all");
  if (!facts.driver)
    return absent(what, "a GPU without its driver",
                  "apt-get install nvidia-driver (Debian's component non-free), then reboot");
  if (says(reason, "built without CUDA"))
    return absent(what, "a GPU, but Motley was built without CUDA",
                  "install NVIDIA's CUDA toolkit (nvcc in PATH), then build again");
  // Toolkit, driver or card do not fit: kernels/cuda_fit.h knows what to do.
  if (const size_t end = reason.find("; "); end != std::string::npos)
    return absent(what, reason.substr(0, end), reason.substr(end + 2));
  if (says(reason, "CUDA_VISIBLE_DEVICES"))
    return absent(what, reason, "unset CUDA_VISIBLE_DEVICES");
  return absent(what, reason,
                says(reason, "another version") || says(reason, "does not load")
                    ? kBuildBoth
                    : "mend what nvidia-smi complains of");
}

Finding disk_finding(const std::vector<DiskFacts>& places) {
  const char* what = "disk";
  std::string detail;
  for (const DiskFacts& place : places) {
    const std::string elsewhere = "set " + place.variable + " to a directory that you may write";
    if (!place.made) return broken(what, place.made.error().message, elsewhere);
    const std::string larger = "free some space on the disk of " + place.directory;
    if (!place.wrote)
      return broken(what, place.wrote.error().message,
                    says(place.wrote.error().message, "space") ? larger : elsewhere);
    if (place.room < kLeastDisk)
      return broken(what, "only " + format_bytes(place.room) + " free in " + place.directory,
                    larger);
    detail +=
        (detail.empty() ? "" : "; ") + format_bytes(place.room) + " free in " + place.directory;
  }
  return good(what, detail + ", synced writes work");
}

Finding shared_memory_finding(const SharedMemoryFacts& facts) {
  const char* what = "shared memory";
  const std::string restart = "start the container with --shm-size=1g";
  if (!facts.there)
    return broken(what, "/dev/shm is missing",
                  facts.container
                      ? restart
                      : "mkdir -p /dev/shm && mount -t tmpfs -o mode=1777,size=1G tmpfs /dev/shm");
  if (!facts.writable) return broken(what, "/dev/shm is not writable", "chmod 1777 /dev/shm");
  if (facts.room >= kLeastSharedMemory)
    return good(what, format_bytes(facts.room) + " free in /dev/shm");
  const std::string detail =
      "only " + format_bytes(facts.room) + " of " + format_bytes(facts.size) + " free in /dev/shm";
  if (facts.size >= kLeastSharedMemory + kLeastSharedMemory)
    return broken(what, detail, "remove what fills /dev/shm (ls -lS /dev/shm)");
  return broken(what, detail, facts.container ? restart : "mount -o remount,size=1G /dev/shm");
}

}  // namespace motley
