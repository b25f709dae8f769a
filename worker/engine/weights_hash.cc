#include "worker/engine/weights_hash.h"

#include <algorithm>
#include <map>

#include "core/hash.h"
#include "worker/engine/shared_memory.h"

namespace motley {
namespace {

/// Brings owned slices to rank 0, as fp32.
class SliceGather {
 public:
  SliceGather(Engine& engine, std::span<std::byte> weights, Communicator& world)
      : engine_(engine), weights_(weights, engine.element_bytes()), world_(world) {}

  /// On rank 0 the slice, row-major; elsewhere nothing of use.
  Result<std::span<const float>> bring(const Ownership& owned) {
    slice_.resize(static_cast<size_t>(owned.slice.elements()));
    const int owner = owned.owner.value();
    if (world_.rank() == owner) copy_own(owned);
    if (owner != 0 && world_.rank() == owner)
      MOTLEY_TRY_VOID(world_.send(std::as_bytes(std::span(slice_)), 0));
    if (owner != 0 && world_.rank() == 0)
      MOTLEY_TRY_VOID(world_.receive(std::as_writable_bytes(std::span(slice_)), owner));
    return std::span<const float>(slice_);
  }

 private:
  void copy_own(const Ownership& owned) {
    const auto& tensors = engine_.tensors(Engine::State::kWeight);
    const auto held = std::find_if(tensors.begin(), tensors.end(), [&](const FlatTensor& flat) {
      return flat.tensor.name == owned.tensor;
    });
    for (const CopyRun& run : copy_runs(held->slice, owned.slice))
      for (int64_t i = 0; i < run.count; ++i)
        slice_[static_cast<size_t>(run.to_offset + i)] =
            static_cast<float>(weights_.get(held->offset + run.from_offset + i));
  }

  Engine& engine_;
  Elements weights_;
  Communicator& world_;
  std::vector<float> slice_;
};

}  // namespace

Result<std::string> weights_xxh3(Engine& engine, const ModelSpec& model,
                                 const std::vector<Ownership>& owners, Communicator& world) {
  std::multimap<std::string, const Ownership*> owners_of;
  for (const Ownership& owned : owners) owners_of.emplace(owned.tensor, &owned);
  MOTLEY_TRY(const std::span<std::byte> weights, engine.state(Engine::State::kWeight));
  SliceGather gather(engine, weights, world);
  Xxh3Stream hash;
  std::vector<float> tensor;
  for (const LogicalTensor& logical : logical_tensors(model)) {
    if (world.rank() == 0) tensor.resize(static_cast<size_t>(logical.elements()));
    const auto [first, last] = owners_of.equal_range(logical.name);
    for (auto owned = first; owned != last; ++owned) {
      MOTLEY_TRY(const std::span<const float> slice, gather.bring(*owned->second));
      if (world.rank() != 0) continue;
      for (const CopyRun& run : copy_runs(owned->second->slice, whole(logical.shape)))
        std::copy_n(slice.begin() + run.from_offset, run.count, tensor.begin() + run.to_offset);
    }
    if (world.rank() == 0) hash.add(tensor.data(), tensor.size() * sizeof(float));
  }
  std::string text = hash.hex();
  MOTLEY_TRY_VOID(world.broadcast(text, 0));
  return text;
}

}  // namespace motley
