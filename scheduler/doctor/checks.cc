#include "scheduler/doctor/checks.h"

#include <poll.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "core/debug_env.h"
#include "core/file_system.h"
#include "core/json_fields.h"
#include "core/json_file.h"
#include "core/user_directories.h"
#include "core/version.h"
#include "scheduler/launch/command.h"
#include "scheduler/launch/environment.h"
#include "scheduler/launch/launcher.h"
#include "scheduler/launch/log_file.h"
#include "scheduler/launch/scratch.h"
#include "scheduler/launch/worker_program.h"

namespace motley {
namespace {

namespace fs = std::filesystem;

constexpr Nanos kCommandLimit{int64_t{20} * 1'000'000'000};

Result<std::string> output_of(const std::vector<std::string>& command) {
  MOTLEY_TRY(const CommandOutput output, run_command({command, ""}, kCommandLimit));
  if (output.timed_out) return fail(ErrorCode::kBrokenInstall, "no answer within 20 s");
  if (!output.status.ok()) {
    const std::string told = last_line(output.err);
    return fail(ErrorCode::kBrokenInstall, told.empty() ? output.status.to_string() : told);
  }
  return output.out;
}

bool exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

bool in_container() { return exists("/.dockerenv") || exists("/run/.containerenv"); }

CompilerFacts compiler() {
  CompilerFacts facts;
  facts.program = find_program("c++");
  if (facts.program.empty()) facts.program = find_program("g++");
  if (!facts.program.empty()) facts.version = output_of({facts.program, "--version"});
  return facts;
}

Result<nlohmann::json> account_of(const std::string& worker) {
  MOTLEY_TRY(const std::string text, output_of({worker, "version", "--json"}));
  MOTLEY_TRY(nlohmann::json version,
             parse_json_file(text, worker + " version", ErrorCode::kBrokenInstall));
  if (!version.is_object()) return fail(ErrorCode::kBrokenInstall, "it is another program");
  return version;
}

WorkerFacts worker_facts() {
  WorkerFacts facts;
  facts.chosen = !debug_env().worker_path.empty();
  facts.directory = parent_directory(own_program());
  const auto worker = worker_program();
  facts.found = worker.has_value();
  if (!worker) {
    facts.error = worker.error().message;
    return facts;
  }
  const auto version = account_of(*worker);
  if (!version) {
    facts.error = version.error().message;
    return facts;
  }
  const nlohmann::json installation =
      version->value("installation", nlohmann::json(nlohmann::json::object()));
  facts.version = version->value("version", "");
  facts.git = version->value("git", "");
  facts.cuda = version->value("cuda", "");
  facts.gpus = version->value("gpus", "none");
  facts.arithmetic = installation.value("arithmetic", "");
  facts.mpi = installation.value("mpi", "");
  return facts;
}

/// What mpirun printed tells more than its status.
Error with_its_words(Error error, const std::string& log_directory) {
  std::istringstream log(tail_of(launch_log_path(log_directory)));
  std::string told;
  for (std::string line; std::getline(log, line);)
    if (line.find_first_not_of("- \t") != std::string::npos) told = line;
  if (!told.empty()) error.message += ": " + told;
  return error;
}

/// Two ranks that greet each other through mpirun; what they say of their communicator.
Result<std::string> launch_two_ranks() {
  MOTLEY_TRY(const std::string worker, worker_program());
  MOTLEY_TRY(const Scratch scratch, Scratch::create());
  LaunchRequest request;
  request.ranks = {{.device = "localhost/0", .host = "localhost", .type = "cpu"},
                   {.device = "localhost/1", .host = "localhost", .type = "cpu"}};
  request.command = {worker, "version", "--json"};
  request.log_directory = scratch.path();
  request.scratch_directory = scratch.path();
  request.shared_memory_directory = scratch.shared_memory();
  MOTLEY_TRY(const auto launched, mpirun_launcher()->launch(request));
  pollfd ended{.fd = launched->exit_fd(), .events = POLLIN, .revents = 0};
  poll(&ended, 1, static_cast<int>(kCommandLimit.value() / 1'000'000));
  const auto end = launched->end();
  if (!end) return fail(ErrorCode::kBrokenInstall, "no answer within 20 s");
  if (end->error) return fail(with_its_words(*end->error, scratch.path()));
  MOTLEY_TRY(const std::string log,
             read_text(real_file_system(), rank_log_path(scratch.path(), 0), Bytes(1 << 20)));
  const auto version = parse_json(last_line(log));
  if (!version || !version->is_object() || version->value("ranks", "") != "2")
    return fail(ErrorCode::kBrokenInstall, "the two ranks did not find each other");
  return version->value("communicator", "");
}

LaunchFacts launch_facts(const WorkerFacts& worker) {
  LaunchFacts facts;
  facts.mpirun = !find_program("mpirun.openmpi").empty();
  if (!facts.mpirun) {
    const auto version = output_of({"mpirun", "--version"});
    facts.mpirun = version && version->find("Open MPI") != std::string::npos;
  }
  if (facts.mpirun && worker.works()) facts.communicator = launch_two_ranks();
  return facts;
}

/// A display or 3D controller of NVIDIA.
bool is_nvidia_card(const fs::path& device) {
  std::string vendor, kind;
  std::ifstream(device / "vendor") >> vendor;
  std::ifstream(device / "class") >> kind;
  return vendor == "0x10de" && kind.starts_with("0x03");
}

GpuFacts gpu_facts() {
  GpuFacts facts;
  std::error_code error;
  for (const fs::directory_entry& device : fs::directory_iterator("/sys/bus/pci/devices", error))
    facts.card = facts.card || is_nvidia_card(device.path());
  facts.driver = exists("/sys/module/nvidia") || exists("/proc/driver/nvidia/version");
  facts.nodes = exists("/dev/nvidiactl");
  facts.container = in_container();
  return facts;
}

DiskFacts disk_facts(const std::string& directory, const std::string& variable, Result<Unit> made) {
  FileSystem& files = real_file_system();
  DiskFacts facts{.directory = directory, .variable = variable, .made = std::move(made)};
  if (!facts.made) return facts;
  const std::string probe = directory + "/.doctor-" + std::to_string(getpid());
  facts.wrote = write_text_durably(files, probe, "motley");
  if (const auto removed = files.remove_all(probe); facts.wrote && !removed)
    facts.wrote = fail(removed.error());
  if (const auto room = files.free_space(directory)) facts.room = *room;
  return facts;
}

std::vector<DiskFacts> disks() {
  FileSystem& files = real_file_system();
  const std::string state = state_directory(), cache = cache_directory();
  return {disk_facts(state, "XDG_STATE_HOME", make_state_directory(files, state)),
          disk_facts(cache, "XDG_CACHE_HOME", make_cache_directory(files, cache))};
}

SharedMemoryFacts shared_memory_facts() {
  SharedMemoryFacts facts;
  facts.container = in_container();
  struct statvfs info {};
  facts.there = statvfs("/dev/shm", &info) == 0;
  facts.writable = ::access("/dev/shm", W_OK | X_OK) == 0;
  const auto block = static_cast<int64_t>(info.f_frsize);
  facts.size = Bytes(static_cast<int64_t>(info.f_blocks) * block);
  facts.room = Bytes(static_cast<int64_t>(info.f_bavail) * block);
  return facts;
}

}  // namespace

std::vector<Finding> check_everything() {
  const WorkerFacts worker = worker_facts();
  return {compiler_finding(compiler()),
          worker_finding(worker, std::string(build_version().git)),
          kernels_finding(worker),
          launch_finding(launch_facts(worker), worker),
          gpu_finding(gpu_facts(), worker),
          disk_finding(disks()),
          shared_memory_finding(shared_memory_facts())};
}

}  // namespace motley
