#include "worker/train/island_sum.h"

#include <string>
#include <utility>
#include <vector>

#include "core/log.h"

namespace motley {
namespace {

/// A communicator's rank 0, which speaks for its island.
constexpr int kSpeaker = 0;

std::string listed(const std::vector<int>& ranks) {
  std::string text;
  for (size_t i = 0; i < ranks.size(); ++i)
    text += (i == 0 ? "" : i + 1 == ranks.size() ? " and " : ", ") + std::to_string(ranks[i]);
  return text;
}

/// Of this rank's own. Null where NCCL says why not, on all its ranks.
Result<std::unique_ptr<DeviceCommunicator>> connect(const std::vector<int>& island,
                                                    Communicator& ranks, Device& device) {
  auto opened = open_nccl_communicator(ranks, device);
  if (!opened && opened.error().code != ErrorCode::kUnsupported) return fail(opened.error());
  if (ranks.rank() == kSpeaker)
    log_info("gradients of ranks " + listed(island) + " are summed " +
             (opened ? "on their GPUs by " + (*opened)->description()
                     : "through host memory: " + opened.error().message));
  if (!opened) return nullptr;
  return std::move(*opened);
}

}  // namespace

Result<OpenIslands> open_islands(const DeviceIslands& wanted, Communicator& world, Device& device) {
  OpenIslands open;
  if (wanted.all().empty()) return open;
  if (const std::vector<int>* own = wanted.of(world.rank())) {
    open.ranks = world.group(*own);
    MOTLEY_TRY(open.devices, connect(*own, *open.ranks, device));
    if (!open.devices) open.ranks.reset();
  }
  MOTLEY_TRY(const std::vector<std::string> connected, world.all_gather(open.devices ? "1" : ""));
  std::vector<std::vector<int>> islands;
  for (const std::vector<int>& island : wanted.all())
    if (!connected[static_cast<size_t>(island.front())].empty()) islands.push_back(island);
  open.islands = DeviceIslands(std::move(islands));
  return open;
}

Result<std::unique_ptr<IslandSum>> IslandSum::open(OpenIslands island, bool shards_optimizer,
                                                   SliceExchange& slices) {
  int64_t passes_on = slices.has_gradients() ? 1 : 0;
  MOTLEY_TRY_VOID(island.ranks->all_reduce_max(std::span(&passes_on, 1)));
  const Way way = passes_on == 0     ? Way::kAmongThemselves
                  : shards_optimizer ? Way::kByOwners
                                     : Way::kBySpeaker;
  return std::unique_ptr<IslandSum>(new IslandSum(std::move(island), way, slices));
}

Result<Unit> IslandSum::sum(const IslandGradients& gradients) {
  if (way_ == Way::kBySpeaker) return sum_by_speaker(gradients);
  MOTLEY_TRY(const DeviceArray own, gradients.on_device());
  MOTLEY_TRY_VOID(devices_->all_reduce_sum(own));
  MOTLEY_TRY_VOID(devices_->wait());
  return slices_.has_gradients() ? sum_through_hosts(gradients) : Result<Unit>(Unit{});
}

/// Between the two halves the others wait for their speaker on the host: a broadcast that waits
/// would keep their GPUs busy, and is not told when a rank elsewhere is lost.
Result<Unit> IslandSum::sum_by_speaker(const IslandGradients& gradients) {
  MOTLEY_TRY(const DeviceArray own, gradients.on_device());
  MOTLEY_TRY_VOID(devices_->reduce_sum(own, kSpeaker));
  MOTLEY_TRY_VOID(devices_->wait());
  if (ranks_->rank() == kSpeaker) MOTLEY_TRY_VOID(sum_through_hosts(gradients));
  MOTLEY_TRY_VOID(ranks_->barrier());
  MOTLEY_TRY(const DeviceArray total, gradients.on_device());
  MOTLEY_TRY_VOID(devices_->broadcast(total.data, total.count * bytes_of(total.element), kSpeaker));
  return devices_->wait();
}

Result<Unit> IslandSum::sum_through_hosts(const IslandGradients& gradients) {
  MOTLEY_TRY(const GradientSpans spans, gradients.at_host());
  return slices_.sum(spans);
}

}  // namespace motley
