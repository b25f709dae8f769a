// Grids for fleets of types of which a foreign profile tells: any change of a plan is seen, and has
// to be meant.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "planner/grid/grid_plan_json.h"
#include "planner/grid/grid_search.h"
#include "tests/support/golden.h"

namespace motley {
namespace {

constexpr size_t kLayers = 14;
constexpr int kBatch = 256;

struct GridCard {
  std::string type;
  double speed = 1;  ///< of the first
  double memory_gb = 16;
  double alone = 0.4;  ///< of a micro-batch's time, what its first sample takes
};

ForeignTimes times_of(const GridCard& card, int micro_batch, int tensor) {
  ForeignTimes times{micro_batch, tensor, {}, {}, {}};
  const double samples = card.alone + (1 - card.alone) * micro_batch;
  for (size_t layer = 0; layer < kLayers; ++layer) {
    const double work = layer == 0 ? 0.3 : layer + 1 == kLayers ? 1.7 : 1;
    const double seconds = 0.01 * work * samples / (card.speed * (0.2 + 0.8 * tensor));
    times.forward_seconds.push_back(seconds / 3);
    times.backward_seconds.push_back(seconds * 2 / 3);
    times.update_seconds.push_back(0.002 / tensor);
  }
  return times;
}

/// Layers of 50 million parameters, more at both ends.
ForeignProfile profile_of(const std::vector<GridCard>& cards) {
  ForeignProfile profile;
  profile.optimizer_bytes_per_parameter = 16;
  for (size_t i = 0; i < kLayers; ++i) {
    ForeignLayer& layer = profile.layers.emplace_back();
    for (const int tensor : {1, 2, 4}) {
      layer.parameters[tensor] = (i == 0 || i + 1 == kLayers ? 9e7 : 5e7) / tensor;
      layer.activation_bytes_per_sample[tensor] = 2e8 / tensor;
    }
    layer.output_bytes_per_sample = 4e6;
  }
  for (const GridCard& card : cards) {
    ForeignDevice& device = profile.devices[card.type];
    device.memory = Bytes(static_cast<int64_t>(card.memory_gb * 1e9));
    for (const int micro_batch : {1, 2, 4})
      for (const int tensor : {1, 2, 4})
        device.profiles.push_back(times_of(card, micro_batch, tensor));
    for (const GridCard& other : cards)
      for (const int from : {1, 2, 4})
        for (const int to : {1, 2, 4})
          profile.links.push_back({card.type, other.type, from, to, ForeignLine{2e-5, 3e9}});
  }
  return profile;
}

std::string grid_text(const std::vector<GridCard>& cards, const std::vector<int>& devices) {
  const ForeignProfile profile = profile_of(cards);
  std::vector<GridType> types;
  for (size_t i = 0; i < cards.size(); ++i)
    types.push_back({cards[i].type, profile.devices.at(cards[i].type).memory,
                     std::vector<int>(static_cast<size_t>(devices[i] / 4), 4)});
  const ForeignCosts costs(profile, types, kBatch, 0.05);
  const Result<GridResult> found = search_grid(costs, costs.groups());
  EXPECT_TRUE(found) << found.error().message;
  nlohmann::json document = to_json(found->plan, types);
  document["gap"] = found->search.gap() < 1e-9 ? 0 : found->search.gap();
  return document.dump() + "\n";
}

TEST(GoldenGrid, OfFleetsOfAForeignProfile) {
  const GridCard large{.type = "large", .memory_gb = 40};
  const GridCard small{.type = "small", .speed = 0.5, .memory_gb = 16, .alone = 0.2};
  const GridCard old{.type = "old", .speed = 0.2, .memory_gb = 8, .alone = 0.1};
  testing::expect_golden("planner/grids.txt", grid_text({large}, {8}) +
                                                  grid_text({large, small}, {4, 4}) +
                                                  grid_text({large, small}, {16, 48}) +
                                                  grid_text({large, small, old}, {8, 24, 32}) +
                                                  grid_text({small, old}, {96, 32}));
}

}  // namespace
}  // namespace motley
