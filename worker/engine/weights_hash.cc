#include "worker/engine/weights_hash.h"

#include <algorithm>
#include <map>

#include "core/hash.h"
#include "worker/engine/elements.h"

namespace motley {
namespace {

/// Brings owned slices to rank 0, as fp32.
class SliceGather {
 public:
  SliceGather(Engine& engine, Communicator& world) : engine_(engine), world_(world) {}

  /// On rank 0 the slice, row-major; elsewhere nothing of use.
  Result<std::span<const float>> bring(const Ownership& owned) {
    slice_.resize(static_cast<size_t>(owned.slice.elements()));
    const int owner = owned.owner.value();
    if (world_.rank() == owner) MOTLEY_TRY_VOID(copy_own(owned));
    if (owner != 0 && world_.rank() == owner)
      MOTLEY_TRY_VOID(world_.send(std::as_bytes(std::span(slice_)), 0));
    if (owner != 0 && world_.rank() == 0)
      MOTLEY_TRY_VOID(world_.receive(std::as_writable_bytes(std::span(slice_)), owner));
    return std::span<const float>(slice_);
  }

 private:
  Result<Unit> copy_own(const Ownership& owned) {
    const auto& tensors = engine_.tensors(Engine::State::kWeight);
    const auto held = std::find_if(tensors.begin(), tensors.end(), [&](const FlatTensor& flat) {
      return flat.tensor.name == owned.tensor;
    });
    const int64_t width = engine_.element_bytes();
    for (const CopyRun& run : copy_runs(held->slice, owned.slice)) {
      run_.resize(static_cast<size_t>(run.count * width));
      MOTLEY_TRY_VOID(engine_.read_state(Engine::State::kWeight,
                                         Bytes((held->offset + run.from_offset) * width), run_));
      const Elements weights(run_, full_precision(engine_.precision()));
      for (int64_t i = 0; i < run.count; ++i)
        slice_[static_cast<size_t>(run.to_offset + i)] = static_cast<float>(weights.get(i));
    }
    return Unit{};
  }

  Engine& engine_;
  Communicator& world_;
  std::vector<std::byte> run_;
  std::vector<float> slice_;
};

/// A tensor in blocks of whole rows, of about 4 MB as fp32.
std::vector<Slice> blocks_of_rows(const LogicalTensor& tensor) {
  constexpr int64_t kElements = 1 << 20;
  const int64_t rows = tensor.shape[0];
  const int64_t most = std::max<int64_t>(1, kElements / (tensor.elements() / rows));
  std::vector<Slice> blocks;
  for (int64_t row = 0; row < rows; row += most) {
    Slice block = whole(tensor.shape);
    block.start[0] = row;
    block.extent[0] = std::min(most, rows - row);
    blocks.push_back(std::move(block));
  }
  return blocks;
}

}  // namespace

Result<std::string> weights_xxh3(Engine& engine, const ModelSpec& model,
                                 const std::vector<Ownership>& owners, Communicator& world) {
  std::multimap<std::string, const Ownership*> owners_of;
  for (const Ownership& owned : owners) owners_of.emplace(owned.tensor, &owned);
  SliceGather gather(engine, world);
  Xxh3Stream hash;
  std::vector<float> values;
  for (const LogicalTensor& logical : logical_tensors(model)) {
    const auto [first, last] = owners_of.equal_range(logical.name);
    for (const Slice& rows : blocks_of_rows(logical)) {
      if (world.rank() == 0) values.resize(static_cast<size_t>(rows.elements()));
      for (auto owned = first; owned != last; ++owned) {
        Ownership part = *owned->second;
        if (!intersect(owned->second->slice, rows, &part.slice)) continue;
        MOTLEY_TRY(const std::span<const float> slice, gather.bring(part));
        if (world.rank() != 0) continue;
        for (const CopyRun& run : copy_runs(part.slice, rows))
          std::copy_n(slice.begin() + run.from_offset, run.count, values.begin() + run.to_offset);
      }
      if (world.rank() == 0) hash.add(values.data(), values.size() * sizeof(float));
    }
  }
  std::string text = hash.hex();
  MOTLEY_TRY_VOID(world.broadcast(text, 0));
  return text;
}

}  // namespace motley
