// The smallest device and mixes against trying everything, with bytes made up.

#include "planner/questions/memory_fit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <random>

#include "core/pipeline.h"

namespace motley {
namespace {

constexpr int kMost = 3;

/// Bytes as engines need them: some for each layer, more of embedding and head, what is kept times
/// the micro-batches in flight, something within a pass.
struct MadeUp {
  int layers = 0;
  int micro_batches = 0;
  int64_t embedding = 0, block = 0, head = 0, kept = 0, pass = 0;

  Bytes of(const FitStage& stage, int number, int stages) const {
    const bool first = stage.first == 0, last = stage.last + 1 == layers;
    const int blocks = stage.last - stage.first + 1 - (first ? 1 : 0) - (last ? 1 : 0);
    const int in_flight = most_in_flight(stages, number, micro_batches);
    const int64_t wide = stage.precision == Precision::kFp32 ? 2 : 1;
    const int64_t copies = stage.precision == Precision::kFp32 ? 4 : 5;
    return Bytes(copies * ((first ? embedding : 0) + blocks * block + (last ? head : 0)) / 4 +
                 wide * (in_flight * kept * (blocks + 1) + (last ? 2 * pass : pass)));
  }

  Result<std::vector<Bytes>> count(const std::vector<FitStage>& stages) const {
    std::vector<Bytes> bytes;
    EXPECT_EQ(stages.front().first, 0);
    EXPECT_EQ(stages.back().last, layers - 1);
    for (size_t s = 0; s < stages.size(); ++s) {
      EXPECT_GE(stages[s].last, stages[s].first);
      if (s > 0) {
        EXPECT_EQ(stages[s].first, stages[s - 1].last + 1);
      }
      bytes.push_back(of(stages[s], static_cast<int>(s), static_cast<int>(stages.size())));
    }
    return bytes;
  }
};

/// Whether devices in this order hold layers from `first` on, however they are cut.
bool holds(const MadeUp& model, const std::vector<FitType>& types, const std::vector<size_t>& order,
           size_t number, LayerIndex first) {
  if (number == order.size()) return first == model.layers;
  for (LayerIndex last = first; last < model.layers; ++last)
    for (const Precision precision : types[order[number]].precisions)
      if (model.of({first, last, precision}, static_cast<int>(number),
                   static_cast<int>(order.size())) <= types[order[number]].usable &&
          holds(model, types, order, number + 1, last + 1))
        return true;
  return false;
}

/// The fewest devices of one or of two types, and their least memory; 0: none.
struct Least {
  size_t devices = 0;
  int64_t memory = 0;
};

Least try_among(const MadeUp& model, const std::vector<FitType>& types, size_t kinds,
                size_t fewest) {
  for (size_t devices = fewest; devices <= kMost; ++devices) {
    int64_t least = std::numeric_limits<int64_t>::max();
    std::vector<size_t> order(devices, 0);
    const std::function<void(size_t)> choose = [&](size_t number) {
      if (number < devices) {
        for (order[number] = 0; order[number] < types.size(); ++order[number]) choose(number + 1);
        return;
      }
      std::vector<size_t> used = order;
      std::sort(used.begin(), used.end());
      used.erase(std::unique(used.begin(), used.end()), used.end());
      int64_t memory = 0;
      for (const size_t type : order) memory += types[type].memory.value();
      if (used.size() == kinds && memory < least && holds(model, types, order, 0, 0))
        least = memory;
    };
    choose(0);
    if (least < std::numeric_limits<int64_t>::max()) return {devices, least};
  }
  return {};
}

/// Of types that do not hold it alone, or else of any.
Least try_mixes(const MadeUp& model, const std::vector<FitType>& types, size_t kinds) {
  std::vector<FitType> small;
  for (size_t type = 0; type < types.size(); ++type)
    if (!holds(model, types, {type}, 0, 0)) small.push_back(types[type]);
  const Least least = try_among(model, small, kinds, 2);
  return least.devices > 0 ? least : try_among(model, types, kinds, 2);
}

std::vector<FitType> some_types(std::mt19937_64& random, int64_t whole) {
  std::vector<FitType> types;
  for (int i = 0; i < 4; ++i) {
    FitType& type = types.emplace_back();
    type.type = "card" + std::to_string(i);
    type.memory = Bytes(1 + static_cast<int64_t>(random() % static_cast<uint64_t>(whole)));
    type.usable = Bytes(type.memory.value() * 19 / 20);
    type.precisions = {Precision::kFp32};
    if (random() % 2 == 0) type.precisions.insert(type.precisions.begin(), Precision::kBf16);
  }
  return types;
}

void expect_least(const std::optional<FitMix>& found, const Least& least) {
  ASSERT_EQ(found.has_value(), least.devices > 0);
  if (!found) return;
  EXPECT_EQ(found->stages.size(), least.devices);
  EXPECT_EQ(found->memory.value(), least.memory);
}

TEST(MemoryFit, IsTheSmallestThatTryingEverythingFinds) {
  std::mt19937_64 random(6);
  const auto up_to = [&](int most) {
    return 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(most));
  };
  int found_like = 0, found_unlike = 0, more_than_two = 0;
  for (int round = 0; round < 300; ++round) {
    MadeUp model{static_cast<int>(2 + up_to(6)),
                 static_cast<int>(up_to(4)),
                 up_to(100),
                 up_to(60),
                 up_to(100),
                 up_to(10),
                 up_to(20)};
    const int64_t whole = model.of({0, model.layers - 1, Precision::kFp32}, 0, 1).value();
    const auto types = some_types(random, whole * (round % 3 == 0 ? 2 : 1));
    MemoryFit fit(types, model.layers, model.micro_batches,
                  [&](const std::vector<FitStage>& stages) { return model.count(stages); });
    SCOPED_TRACE("round " + std::to_string(round));

    const Least alone = try_among(model, types, 1, 1);
    const auto device = fit.smallest_device();
    ASSERT_TRUE(device);
    ASSERT_EQ(device->has_value(), alone.devices == 1);
    if (*device) {
      EXPECT_EQ(types[**device].memory.value(), alone.memory);
    }

    const auto like = fit.smallest_mix(false, kMost);
    const auto unlike = fit.smallest_mix(true, kMost);
    ASSERT_TRUE(like && unlike);
    expect_least(*like, try_mixes(model, types, 1));
    expect_least(*unlike, try_mixes(model, types, 2));
    found_like += *like ? 1 : 0;
    found_unlike += *unlike ? 1 : 0;
    more_than_two += *unlike && (*unlike)->stages.size() > 2 ? 1 : 0;
  }
  EXPECT_GT(found_like, 50);
  EXPECT_GT(found_unlike, 50);
  EXPECT_GT(more_than_two, 10);
}

TEST(MemoryFit, OfEqualMemoryTheCheapestThenTheSlowest) {
  const MadeUp model{4, 1, 1, 1, 1, 1, 1};
  const auto smallest = [&](std::vector<FitType> types) {
    MemoryFit fit(std::move(types), model.layers, 1,
                  [&](const std::vector<FitStage>& stages) { return model.count(stages); });
    return fit.smallest_device().value().value();
  };
  FitType card{"card", Bytes(95), Bytes(100), {Precision::kFp32}, 0, 10};
  FitType slow = card, dear = card, cheap = card, large = card;
  slow.flops_per_second = 5;
  dear.price_per_hour = 3;
  cheap.price_per_hour = 1;
  large.memory = large.usable = Bytes(200);
  large.price_per_hour = 0.1;
  EXPECT_EQ(smallest({large, card, slow}), 2U);
  EXPECT_EQ(smallest({slow, dear, cheap, large}), 2U);
}

TEST(MemoryFit, ErrorsOfTheCounterEndIt) {
  MemoryFit fit({{"card", Bytes(95), Bytes(100), {Precision::kFp32}, 0, 10}}, 4, 1,
                [](const std::vector<FitStage>&) -> Result<std::vector<Bytes>> {
                  return fail(ErrorCode::kBrokenInstall, "no worker");
                });
  EXPECT_EQ(fit.smallest_device().error().code, ErrorCode::kBrokenInstall);
  EXPECT_EQ(fit.smallest_mix(false, 3).error().code, ErrorCode::kBrokenInstall);
}

}  // namespace
}  // namespace motley
