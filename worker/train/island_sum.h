#pragma once
// A step's sums of gradients where GPUs form islands (core/device_islands.h): what an island's
// ranks have is added up on its GPUs, by NCCL. Where others hold some of it too, its speaker takes
// that sum to the hosts' exchange and gives the total to all of the island:
//
//   reduce      NCCL: from the GPUs to the speaker's
//   hosts       SliceExchange: each island's sum, and what other ranks have
//   broadcast   NCCL: from the speaker's GPU to the others
//
// Where optimizer state is sharded, the owner of a slice speaks for its island: all its ranks get
// the island's sum, and the exchange takes the rest of the way. Weights go through hosts.

#include <functional>
#include <memory>

#include "comm/communicator.h"
#include "comm/device_communicator.h"
#include "core/device_islands.h"
#include "core/result.h"
#include "worker/engine/engine.h"
#include "worker/train/slice_exchange.h"

namespace motley {

/// The islands of a plan whose GPUs are connected, alike on all ranks, and this rank's end of its
/// own.
struct OpenIslands {
  DeviceIslands islands;
  std::unique_ptr<Communicator> ranks;          ///< of its island; null: it is in none
  std::unique_ptr<DeviceCommunicator> devices;  ///< theirs; null: it is in none
};

/// Collective over `world`. Of the islands that are wanted, the same on all ranks, those that NCCL
/// connects; of any other its first rank logs why hosts sum for it. Borrows `device`; goes before
/// `world`.
Result<OpenIslands> open_islands(const DeviceIslands& wanted, Communicator& world, Device& device);

/// The gradients of one step, where they lie. A call of either finds what the other has led to.
struct IslandGradients {
  std::function<Result<DeviceArray>()> on_device;
  std::function<Result<GradientSpans>()> at_host;
};

class IslandSum {
 public:
  /// Collective over this rank's island, which is open. `slices` is the exchange of a plan with
  /// these islands; borrowed.
  static Result<std::unique_ptr<IslandSum>> open(OpenIslands island, bool shards_optimizer,
                                                 SliceExchange& slices);

  /// Collective; returns when the device has the sums. kPeerLost as DeviceCommunicator and
  /// Communicator say.
  Result<Unit> sum(const IslandGradients& gradients);
  /// Collective, after the last sum.
  Result<Unit> close() { return devices_->close(); }

 private:
  enum class Way {
    kAmongThemselves,  ///< nobody else holds any of it
    kBySpeaker,
    kByOwners,
  };
  IslandSum(OpenIslands island, Way way, SliceExchange& slices)
      : ranks_(std::move(island.ranks)),
        devices_(std::move(island.devices)),
        way_(way),
        slices_(slices) {}
  Result<Unit> sum_by_speaker(const IslandGradients& gradients);
  Result<Unit> sum_through_hosts(const IslandGradients& gradients);

  std::unique_ptr<Communicator> ranks_;
  std::unique_ptr<DeviceCommunicator> devices_;
  Way way_;
  SliceExchange& slices_;
};

}  // namespace motley
