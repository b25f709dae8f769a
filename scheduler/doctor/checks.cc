#include "scheduler/doctor/checks.h"

#include <poll.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "core/debug_env.h"
#include "core/file_system.h"
#include "core/json_fields.h"
#include "core/json_file.h"
#include "core/units.h"
#include "core/version.h"
#include "scheduler/launch/command.h"
#include "scheduler/launch/launcher.h"
#include "scheduler/launch/log_file.h"
#include "scheduler/launch/scratch.h"
#include "scheduler/launch/worker_program.h"

namespace motley {
namespace {

constexpr Nanos kCommandLimit{int64_t{20} * 1'000'000'000};
constexpr int kOldestCompiler = 12;
constexpr Bytes kLeastDisk{int64_t{1} << 30};
constexpr Bytes kLeastSharedMemory{int64_t{64} << 20};

Finding good(const std::string& what, const std::string& detail) {
  return {what, Health::kGood, detail, ""};
}

Finding broken(const std::string& what, const std::string& detail, const std::string& fix) {
  return {what, Health::kBroken, detail, fix};
}

Result<std::string> output_of(const std::vector<std::string>& command) {
  MOTLEY_TRY(const CommandOutput output, run_command({command, ""}, kCommandLimit));
  if (output.timed_out) return fail(ErrorCode::kBrokenInstall, "no answer within 20 s");
  if (!output.status.ok()) {
    const std::string told = last_line(output.err);
    return fail(ErrorCode::kBrokenInstall, told.empty() ? output.status.to_string() : told);
  }
  return output.out;
}

Result<nlohmann::json> worker_says(const std::string& subcommand) {
  MOTLEY_TRY(const std::string worker, worker_program());
  MOTLEY_TRY(const std::string text, output_of({worker, subcommand, "--json"}));
  return parse_json_file(text, worker + " " + subcommand, ErrorCode::kBrokenInstall);
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
  if (end->error) return fail(*end->error);
  MOTLEY_TRY(const std::string log,
             read_text(real_file_system(), rank_log_path(scratch.path(), 0), Bytes(1 << 20)));
  const auto version = parse_json(last_line(log));
  if (!version || !version->is_object() || version->value("ranks", "") != "2")
    return fail(ErrorCode::kBrokenInstall, "the two ranks did not find each other");
  return version->value("communicator", "");
}

}  // namespace

Finding check_compiler() {
  const char* what = "compiler";
  const auto version = output_of({"c++", "-dumpfullversion", "-dumpversion"});
  const std::string fix = "apt-get install g++";
  if (!version) return {what, Health::kAbsent, "none (needed only to build Motley)", fix};
  const std::string text = last_line(*version);
  if (std::atoi(text.c_str()) < kOldestCompiler)
    return {what, Health::kAbsent, text + ", too old to build Motley (12 is needed)", fix};
  return good(what, text);
}

Finding check_worker() {
  const char* what = "motley-worker";
  const std::string fix = "build or install motley and motley-worker together, side by side";
  const auto version = worker_says("version");
  if (!version) return broken(what, version.error().message, fix);
  const std::string theirs = version->value("git", "");
  if (theirs != build_version().git)
    return broken(what, "of another version (" + theirs + ") than motley", fix);
  return good(what, version->value("version", "") + " (" + theirs + ")");
}

Finding check_mpi_launch() {
  const char* what = "MPI launch";
  const auto communicator = launch_two_ranks();
  if (!communicator)
    return broken(what, communicator.error().message,
                  "apt-get install openmpi-bin libopenmpi-dev, then build again");
  return good(what, "2 ranks through mpirun, " + *communicator);
}

Finding check_gpu() {
  const char* what = "CUDA and driver";
  const auto version = worker_says("version");
  if (!version) return broken(what, version.error().message, "see motley-worker above");
  const std::string gpus = version->value("gpus", "none");
  const std::string built = version->value("cuda", "");
  const std::string detail = gpus + (built.empty() ? "; built without CUDA" : "; CUDA " + built);
  if (gpus.starts_with("none")) return {what, Health::kAbsent, detail, "none needed: CPUs train"};
  return good(what, detail);
}

Finding check_disk() {
  const char* what = "disk";
  FileSystem& files = real_file_system();
  const std::string directory = state_directory();
  const std::string probe = directory + "/.doctor-" + std::to_string(getpid());
  auto wrote = files.make_directories(directory);
  if (wrote) wrote = write_text_durably(files, probe, "motley");
  if (!wrote)
    return broken(what, wrote.error().message,
                  "make " + directory + " writable, or set XDG_STATE_HOME to a place that is");
  const auto removed = files.remove_all(probe);
  const auto room = files.free_space(directory);
  if (!removed || !room) return broken(what, "cannot use " + directory, "check its file system");
  if (*room < kLeastDisk)
    return broken(what, "only " + format_bytes(*room) + " free in " + directory,
                  "free some space, or set XDG_STATE_HOME to a larger disk");
  return good(what, format_bytes(*room) + " free in " + directory + ", synced writes work");
}

Finding check_shared_memory() {
  const char* what = "shared memory";
  const char* fix = "mount -o remount,size=1G /dev/shm (in a container: --shm-size=1g)";
  struct statvfs info {};
  if (statvfs("/dev/shm", &info) != 0) return broken(what, "/dev/shm is missing", fix);
  const Bytes room(static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize));
  if (room < kLeastSharedMemory)
    return broken(what, "only " + format_bytes(room) + " free in /dev/shm", fix);
  return good(what, format_bytes(room) + " free in /dev/shm");
}

std::vector<Finding> check_everything() {
  return {check_compiler(), check_worker(), check_mpi_launch(),
          check_gpu(),      check_disk(),   check_shared_memory()};
}

}  // namespace motley
