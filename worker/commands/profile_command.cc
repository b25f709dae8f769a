#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "core/attempt.h"
#include "core/json_file.h"
#include "core/log.h"
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

Result<Profile> measure(const ProfileRequest& request, Communicator& world, ControlLink* link) {
  if (static_cast<size_t>(world.size()) != request.fleet.devices.size())
    return fail(ErrorCode::kUsage, "the fleet has " + std::to_string(request.fleet.devices.size()) +
                                       " devices but " + std::to_string(world.size()) +
                                       " ranks were started");
  const DeviceSpec& spec = request.fleet.devices[static_cast<size_t>(world.rank())];
  const auto on_host =
      std::count_if(request.fleet.devices.begin(), request.fleet.devices.end(),
                    [&](const DeviceSpec& other) { return other.host == spec.host; });
  const auto device = open_device_for(request.job, spec);
  Bytes memory_limit{0};
  if (device) memory_limit = memory_limit_of(spec, **device, static_cast<int>(on_host));
  MOTLEY_TRY_VOID(all_succeeded(world, device ? Result<Unit>(Unit{}) : fail(device.error())));
  Pacer pacer(spec, request.fleet.clock, request.fleet.pace_flops);
  return measure_fleet(request.job, request.fleet, {**device, memory_limit, pacer}, world,
                       [&](const std::string& what) {
                         if (link == nullptr) return;
                         link->progress();
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
  const auto profile = measure(request, world, link.get());
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
