#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "comm/watched.h"
#include "core/attempt.h"
#include "core/json_file.h"
#include "core/log.h"
#include "core/spec/precisions.h"
#include "kernels/device.h"
#include "worker/commands/commands.h"
#include "worker/profiler/profiler.h"
#include "worker/train/agreement.h"
#include "worker/train/world.h"

namespace motley {
namespace {

Result<ProfileRequest> read_request(Communicator& world, const std::string& path) {
  MOTLEY_TRY(const std::string text, shared_text(world, path));
  MOTLEY_TRY(const auto document, parse_json_file(text, path, ErrorCode::kInvalidSpec));
  return profile_request_from_json(document);
}

/// The device in the precision the job wants; where it leaves that open, in those it may be best
/// in: bf16, on older cards fp16, and fp32.
Result<std::vector<std::unique_ptr<Device>>> open_in_each_precision(const JobSpec& job,
                                                                    const DeviceSpec& spec) {
  std::vector<std::unique_ptr<Device>> devices;
  if (precision_open(job, spec)) {
    auto reduced = open_device_for(job, spec, Precision::kBf16);
    if (!reduced) reduced = open_device_for(job, spec, Precision::kFp16);
    if (reduced) devices.push_back(std::move(*reduced));
  }
  MOTLEY_TRY(auto device, open_device_for(job, spec, precision_computed(job, spec)));
  devices.push_back(std::move(device));
  return devices;
}

Result<Profile> measure(const ProfileRequest& request, Communicator& world, ControlLink* link) {
  if (static_cast<size_t>(world.size()) != request.fleet.devices.size())
    return fail(ErrorCode::kUsage, "the fleet has " + std::to_string(request.fleet.devices.size()) +
                                       " devices but " + std::to_string(world.size()) +
                                       " ranks were started");
  const DeviceSpec& spec = request.fleet.devices[static_cast<size_t>(world.rank())];
  const auto on_memory =
      std::count_if(request.fleet.devices.begin(), request.fleet.devices.end(),
                    [&](const DeviceSpec& other) { return takes_same_memory(spec, other); });
  const auto devices = open_in_each_precision(request.job, spec);
  Bytes memory_limit{0};
  if (devices) memory_limit = memory_limit_of(spec, *devices->front(), static_cast<int>(on_memory));
  MOTLEY_TRY_VOID(all_succeeded(world, devices ? Result<Unit>(Unit{}) : fail(devices.error())));
  Pacer pacer(spec, request.fleet.clock, request.fleet.pace_flops);
  return measure_fleet(request.job, request.fleet, {*devices, memory_limit, pacer}, world,
                       [&](const std::string& what) {
                         if (link != nullptr) link->progress();
                         if (what.empty()) return;
                         if (link == nullptr) return log_info(spec.id + ": " + what);
                         link->send(MessageType::kPhase,
                                    to_json_text(PhaseReport{world.rank(), "measuring", what, 0}));
                       });
}

/// Everything between joining the runner and its last word.
Result<Unit> profile_for_runner(const std::string& path, Communicator& world) {
  MOTLEY_TRY(const ProfileRequest request, read_request(world, path));
  ControlWishes wishes;  // measuring is short: a wish to stop is the runner's to enforce
  MOTLEY_TRY(const auto link,
             join_runner(world, request.control, request.key_file, request.epoch, &wishes));
  // Quick devices wait for slow ones: for minutes, beside some.
  const auto told = link ? watched(world, link->waiting()) : nullptr;
  const auto profile = measure(request, told ? *told : world, link.get());
  DoneReport done;
  done.rank = world.rank();
  if (profile) {
    const std::string text = to_json(*profile).dump();
    if (world.rank() == 0 && link) link->send(MessageType::kProfile, text);
    if (world.rank() == 0 && !link) std::printf("%s\n", text.c_str());
    done.outcome = Outcome::kFinished;
  } else {
    done.code = profile.error().code;
    done.message = profile.error().message;
  }
  if (link) link->send_done(done);
  if (!profile) return fail(profile.error());
  return Unit{};
}

Result<Unit> run_profile(const std::string& path, int ranks) {
  if (ranks > 0)
    return run_in_threads(ranks,
                          [&](Communicator& world) { return profile_for_runner(path, world); });
  MOTLEY_TRY(auto world, open_world());
  configure_log("rank " + std::to_string(world->rank()));
  const auto done = profile_for_runner(path, *world);
  if (!done) leave_world(std::move(world), done.error());
  return Unit{};
}

}  // namespace

void add_profile_command(CLI::App& app, Result<Unit>* outcome) {
  auto* command = app.add_subcommand(
      "profile", "Measures the devices of a fleet, one rank each (under mpirun, in fleet order)");
  auto path = std::make_shared<std::string>();
  auto ranks = std::make_shared<int>(0);
  command->add_option("--request", *path, "Profile request (core/FORMATS.md)")->required();
  command
      ->add_option("--ranks", *ranks,
                   "So many ranks as threads of this process, instead of under mpirun")
      ->check(CLI::PositiveNumber);
  command->callback([=] { *outcome = run_profile(*path, *ranks); });
}

}  // namespace motley
