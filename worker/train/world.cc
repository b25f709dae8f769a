#include "worker/train/world.h"

#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>

#include "comm/launch_env.h"
#include "core/clock.h"
#include "core/file_system.h"
#include "core/log.h"
#include "core/output.h"
#include "core/spec/precisions.h"

namespace motley {
namespace {

constexpr Bytes kLargestDocument{64 << 20};
constexpr Nanos kCulpritsHeadStart{1'000'000'000};

}  // namespace

Result<std::unique_ptr<Communicator>> open_world() {
  const auto launched = launch_env();
  if (!launched || launched->size == 1) return solo_communicator();
  return open_mpi_communicator();
}

Result<Unit> run_in_threads(int ranks, const std::function<Result<Unit>(Communicator&)>& body) {
  if (const auto launched = launch_env(); launched && launched->size > 1)
    return fail(ErrorCode::kUsage,
                "--ranks makes all ranks threads of one process: start it without mpirun");
  configure_log("ranks 0 to " + std::to_string(ranks - 1));
  return run_inproc(
      ranks, [&](Communicator& world) { return without_exceptions([&] { return body(world); }); });
}

Result<std::string> shared_text(Communicator& world, const std::string& path) {
  const auto mine = read_text(real_file_system(), path, kLargestDocument);
  MOTLEY_TRY(const std::vector<std::string> readable, world.all_gather(mine ? "1" : "0"));
  for (int rank = 0; rank < world.size(); ++rank) {
    if (readable[static_cast<size_t>(rank)] != "1") continue;
    std::string text = rank == world.rank() ? *mine : std::string();
    MOTLEY_TRY_VOID(world.broadcast(text, rank));
    return text;
  }
  return fail(mine.error());
}

Result<std::unique_ptr<ControlLink>> join_runner(Communicator& world, const std::string& control,
                                                 const std::string& key_file, Epoch epoch,
                                                 ControlWishes* wishes) {
  if (control.empty()) return nullptr;
  Hello hello;
  hello.rank = world.rank();
  hello.host = system_host_name();
  hello.pid = getpid();
  if (!key_file.empty()) {
    MOTLEY_TRY(hello.key, shared_text(world, key_file));
  }
  return ControlLink::connect(control, epoch, hello, wishes);
}

std::string system_host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

Result<std::unique_ptr<Device>> open_device_for(const JobSpec& job, const DeviceSpec& device,
                                                Precision precision) {
  DeviceSpec spec = device;
  spec.kind = kind_driven(job, device);
  return open_device(spec, precision);
}

void leave_world(std::unique_ptr<Communicator> world, const Error& error) {
  const int status = exit_code(error.code);
  // Each survivor says whom it has lost, in case others cannot be heard any more.
  const bool lost = error.code == ErrorCode::kPeerLost;
  const std::string who = lost ? "rank " + std::to_string(world->rank()) + ": " : "";
  std::fprintf(stderr, "motley-worker: %s%s\n", who.c_str(), one_line(error.to_string()).c_str());
  std::fflush(stderr);
  // Whoever aborts first sets mpirun's status and silences the others: the culprit goes before.
  if (lost) steady_clock().sleep_until(steady_clock().now() + kCulpritsHeadStart);
  world->give_up(status);
  world.reset();  // under MPI this ends all ranks and does not return
  std::exit(status);
}

Bytes memory_limit_of(const DeviceSpec& spec, Device& device, int ranks_on_memory) {
  return spec.memory ? *spec.memory : Bytes(device.available_memory().value() / ranks_on_memory);
}

}  // namespace motley
