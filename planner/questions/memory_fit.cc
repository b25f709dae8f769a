#include "planner/questions/memory_fit.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/pipeline.h"

namespace motley {
namespace {

/// Two types of a catalog and how many of each.
struct MixSize {
  size_t one = 0, other = 0;
  int ones = 0, others = 0;
};

/// Least memory first, then price where all have one, then speed.
struct MixRank {
  int64_t memory = 0;
  double price = 0;
  double flops = 0;

  auto operator<=>(const MixRank&) const = default;
};

MixRank rank_of(const std::vector<FitType>& types, const MixSize& mix) {
  const FitType &one = types[mix.one], &other = types[mix.other];
  MixRank rank;
  rank.memory = mix.ones * one.memory.value() + mix.others * other.memory.value();
  if (one.price_per_hour > 0 && (mix.others == 0 || other.price_per_hour > 0))
    rank.price = mix.ones * one.price_per_hour + mix.others * other.price_per_hour;
  else
    rank.price = std::numeric_limits<double>::infinity();
  rank.flops = mix.ones * one.flops_per_second + mix.others * other.flops_per_second;
  return rank;
}

std::vector<MixSize> mixes_of(const std::vector<FitType>& types, int devices, bool unlike) {
  std::vector<MixSize> mixes;
  for (size_t one = 0; one < types.size(); ++one) {
    if (!unlike) mixes.push_back({one, one, devices, 0});
    for (size_t other = one + 1; unlike && other < types.size(); ++other)
      for (int ones = 1; ones < devices; ++ones)
        mixes.push_back({one, other, ones, devices - ones});
  }
  std::stable_sort(mixes.begin(), mixes.end(), [&](const MixSize& a, const MixSize& b) {
    return rank_of(types, a) < rank_of(types, b);
  });
  return mixes;
}

}  // namespace

MemoryFit::Shape MemoryFit::shape_of(const FitStage& stage, int number, int stages) const {
  const bool embedding = stage.first == 0, head = stage.last + 1 == layers_;
  const int blocks = stage.last - stage.first + 1 - (embedding ? 1 : 0) - (head ? 1 : 0);
  return {most_in_flight(stages, number, micro_batches_), embedding, blocks, head, stage.precision};
}

/// Asked of a pipeline in which the stages around it have what layers are left.
Result<Bytes> MemoryFit::bytes(const FitStage& stage, int number, int stages) {
  if (const auto found = known_.find(shape_of(stage, number, stages)); found != known_.end())
    return found->second;
  std::vector<FitStage> all;
  for (int s = 0; s < number; ++s)
    all.push_back({s, s + 1 < number ? s : stage.first - 1, stage.precision});
  all.push_back(stage);
  for (int s = number + 1; s < stages; ++s) {
    const LayerIndex first = stage.last + s - number;
    all.push_back({first, s + 1 < stages ? first : layers_ - 1, stage.precision});
  }
  MOTLEY_TRY(const std::vector<Bytes> counts, count_(all));
  for (int s = 0; s < stages; ++s)
    known_.emplace(shape_of(all[static_cast<size_t>(s)], s, stages),
                   counts[static_cast<size_t>(s)]);
  return counts[static_cast<size_t>(number)];
}

/// The most layers from `first` on that the device holds in any of its precisions, leaving one for
/// each stage that follows; the last stage takes all or nothing.
Result<std::optional<FitStage>> MemoryFit::furthest(const FitType& type, LayerIndex first,
                                                    int number, int stages) {
  const LayerIndex end = layers_ - (stages - number - 1);  // it may reach to before this one
  std::optional<FitStage> best;
  for (const Precision precision : type.precisions) {
    LayerIndex holds = number + 1 == stages ? end - 1 : first;  // the fewest that are of use
    LayerIndex beyond = end;
    FitStage stage{first, holds, precision};
    MOTLEY_TRY(const Bytes least, bytes(stage, number, stages));
    if (least > type.usable) continue;
    while (beyond - holds > 1) {
      stage.last = holds + (beyond - holds) / 2;
      MOTLEY_TRY(const Bytes needs, bytes(stage, number, stages));
      (needs <= type.usable ? holds : beyond) = stage.last;
    }
    stage.last = holds;
    if (!best || stage.last > best->last) best = stage;
  }
  return best;
}

Result<Bytes> MemoryFit::whole(Precision precision) {
  return bytes({0, layers_ - 1, precision}, 0, 1);
}

Result<std::optional<Precision>> MemoryFit::holds_whole(size_t type) {
  for (const Precision precision : types_[type].precisions) {
    MOTLEY_TRY(const Bytes needs, whole(precision));
    if (needs <= types_[type].usable) return precision;
  }
  return std::nullopt;
}

Result<std::optional<size_t>> MemoryFit::smallest_device() {
  for (const MixSize& alone : mixes_of(types_, 1, false)) {
    MOTLEY_TRY(const auto holds, holds_whole(alone.one));
    if (holds) return alone.one;
  }
  return std::nullopt;
}

Result<std::optional<FitMix>> MemoryFit::pipeline(size_t one, int ones, size_t other, int others) {
  const int stages = ones + others;
  if (stages > layers_) return std::nullopt;
  const auto at = [&](int i, int j) { return static_cast<size_t>(i * (others + 1) + j); };
  std::vector<Reach> reach(at(ones, others) + 1);
  for (int i = 0; i <= ones; ++i)
    for (int j = 0; j <= others; ++j)
      for (const bool by_other : {false, true}) {
        if ((by_other ? j : i) == 0) continue;
        const int number = i + j - 1;
        const Reach& before = reach[by_other ? at(i, j - 1) : at(i - 1, j)];
        if (number > 0 && before.layers == 0) continue;
        MOTLEY_TRY(const auto stage,
                   furthest(types_[by_other ? other : one], before.layers, number, stages));
        Reach& here = reach[at(i, j)];
        if (stage && stage->last + 1 > here.layers) here = {stage->last + 1, by_other, *stage};
      }
  if (reach[at(ones, others)].layers < layers_) return std::nullopt;
  std::vector<MixStage> found;
  for (int i = ones, j = others; i + j > 0;) {
    const Reach& last = reach[at(i, j)];
    found.push_back({last.by_other ? other : one, last.last, Bytes(0)});
    (last.by_other ? j : i) -= 1;
  }
  std::reverse(found.begin(), found.end());
  return counted(std::move(found));
}

/// Its own bytes, where those of its stages were known from others.
Result<std::optional<FitMix>> MemoryFit::counted(std::vector<MixStage> stages) {
  std::vector<FitStage> layers;
  layers.reserve(stages.size());
  for (const MixStage& stage : stages) layers.push_back(stage.layers);
  MOTLEY_TRY(const std::vector<Bytes> needs, count_(layers));
  FitMix mix;
  for (size_t s = 0; s < stages.size(); ++s) {
    const FitType& type = types_[stages[s].type];
    if (needs[s] > type.usable) return std::nullopt;
    stages[s].needs = needs[s];
    mix.memory += type.memory;
  }
  mix.stages = std::move(stages);
  return mix;
}

Result<std::optional<FitMix>> MemoryFit::smallest_of(bool unlike, int most,
                                                     const std::vector<bool>& left_out) {
  for (int devices = 2; devices <= most; ++devices)
    for (const MixSize& mix : mixes_of(types_, devices, unlike)) {
      if (left_out[mix.one] || left_out[mix.other]) continue;
      if (mix.ones * types_[mix.one].usable.value() +
              mix.others * types_[mix.other].usable.value() <
          least_.value())
        continue;
      MOTLEY_TRY(auto found, pipeline(mix.one, mix.ones, mix.other, mix.others));
      if (found) return found;
    }
  return std::nullopt;
}

Result<std::optional<FitMix>> MemoryFit::smallest_mix(bool unlike, int most) {
  std::vector<bool> alone;
  for (size_t type = 0; type < types_.size(); ++type) {
    MOTLEY_TRY(const auto holds, holds_whole(type));
    alone.push_back(holds.has_value());
  }
  MOTLEY_TRY(auto found, smallest_of(unlike, most, alone));
  if (found || std::find(alone.begin(), alone.end(), true) == alone.end()) return found;
  return smallest_of(unlike, most, std::vector<bool>(types_.size(), false));
}

Result<std::optional<FitShards>> MemoryFit::smallest_replicas(int least, int most,
                                                              const CountShards& count) {
  for (int devices = least; devices <= most; ++devices) {
    std::map<Precision, Bytes> known;
    for (const MixSize& mix : mixes_of(types_, devices, false)) {
      MOTLEY_TRY(const auto holds, holds_whole(mix.one));
      if (holds) continue;
      for (const Precision precision : types_[mix.one].precisions) {
        if (!known.contains(precision)) {
          MOTLEY_TRY(known[precision], count(devices, precision));
        }
        if (known[precision] <= types_[mix.one].usable)
          return FitShards{mix.one, devices, precision, known[precision]};
      }
    }
  }
  return std::nullopt;
}

}  // namespace motley
