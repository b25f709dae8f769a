#include "tests/support/measured_fleet.h"

#include <gtest/gtest.h>

#include <mutex>
#include <utility>

#include "comm/communicator.h"
#include "kernels/device.h"
#include "worker/profiler/profiler.h"

namespace motley::testing {

Profile measured_by_threads(const JobSpec& job, const FleetSpec& fleet) {
  std::mutex mutex;
  Profile of_root;
  const auto done =
      run_inproc(static_cast<int>(fleet.devices.size()), [&](Communicator& world) -> Result<Unit> {
        const DeviceSpec& spec = fleet.devices[static_cast<size_t>(world.rank())];
        MOTLEY_TRY(const auto device, open_device(spec));
        Pacer pacer(spec, fleet.clock, fleet.pace_flops);
        MOTLEY_TRY(Profile profile, measure_fleet(job, fleet, {{&device, 1}, *spec.memory, pacer},
                                                  world, [](const std::string&) {}));
        const std::lock_guard lock(mutex);
        if (world.rank() == 0) of_root = std::move(profile);
        return Unit{};
      });
  EXPECT_TRUE(done.has_value()) << (done ? "" : done.error().to_string());
  return of_root;
}

}  // namespace motley::testing
