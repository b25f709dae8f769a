// The search over grids against trying every one, priced by a formula of the test's own.

#include "planner/grid/grid_search.h"

#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "planner/grid/grid_boxes.h"
#include "tests/support/new_seeds.h"

namespace motley {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();

/// Devices of each type, host by host.
using Hosts = std::vector<std::vector<int>>;

std::vector<GridGroups> groups_of(const Hosts& hosts) {
  std::vector<GridGroups> fleet;
  for (const std::vector<int>& type : hosts) {
    GridGroups& groups = fleet.emplace_back();
    for (const int on_host : type) groups[1] += on_host, groups[2] += on_host / 2;
  }
  return fleet;
}

/// Everything at random, with sends that count in one of two ways.
class RandomCosts : public GridCosts {
 public:
  /// `memory` about 1: some; 0.3: so scarce that what is in flight decides.
  RandomCosts(std::mt19937& random, int layers, int types, double memory = 1)
      : layers_(layers),
        types_(types),
        batch_(pick(random, 4, 24)),
        blocking_(pick(random, 0, 1)),
        rise_(pick(random, 0, 3)) {
    for (int type = 0; type < types; ++type) {
      memory_.push_back(memory * real(random, 3, 30));
      const double speed = real(random, 0.3, 3);
      for (int degree = 1; degree <= 2; ++degree)
        for (int size = 1; size <= 2; ++size)
          for (int layer = 0; layer < layers; ++layer)
            seconds_.push_back(speed * real(random, 0.7, 1.3) * (0.4 + 0.6 * size) /
                               (degree == 1 ? 1 : real(random, 1.2, 2)));
    }
    for (int layer = 0; layer < layers; ++layer) weights_.push_back(real(random, 0.2, 2));
    for (int i = 0; i < 4 * types * types; ++i) sends_.push_back(real(random, 0, 0.6));
    for (int i = 0; i < types; ++i) sums_.push_back(real(random, 0, 1));
  }

  /// All that devices of a type compute.
  void quicken(int type, double factor) {
    const auto own = seconds_.begin() + type * 4 * layers_;
    std::for_each(own, own + 4 * layers_, [&](double& seconds) { seconds *= factor; });
  }

  int layers() const override { return layers_; }
  int types() const override { return types_; }
  int global_batch() const override { return batch_; }
  std::vector<int> micro_batches() const override { return {1, 2}; }
  std::vector<int> degrees(int, int) const override { return {1, 2}; }
  double compute(GridConfig config, int size, int layer) const override {
    const int row = (config.type * 2 + config.degree - 1) * 2 + size - 1;
    return seconds_[static_cast<size_t>(row * layers_ + layer)];
  }
  double send(int layer, int size, GridConfig from, GridConfig to) const override {
    const int link = (from.type * 2 + from.degree - 1) * 2 * types_ + to.type * 2 + to.degree - 1;
    return sends_[static_cast<size_t>(link)] * size * (1 + 0.1 * (layer % 3));
  }
  double update(const GridStage& stage, int) const override {
    return 0.1 * weights_[static_cast<size_t>(stage.first)] / stage.config.degree;
  }
  using GridCosts::reduction;
  double reduction(const GridStage& stage, GridConfig next, int replicas) const override {
    const double more = rise_ > 0 ? (replicas - 1.0) / replicas : 1.0 / replicas;
    return held(stage) * std::max(sum(stage.config.type), sum(next.type)) * more;
  }
  bool reductions_rise() const override { return rise_ > 0; }
  int farthest_from_end(const GridStage& stage, int size, int) const override {
    const double left =
        memory_[static_cast<size_t>(stage.config.type)] * stage.config.degree - held(stage);
    return left < 0 ? 0 : static_cast<int>(left / (0.4 * size * (stage.end - stage.first)));
  }
  SendWeights weights(int from_end, bool first) const override {
    if (!blocking_) return from_end == 1 ? SendWeights{} : SendWeights{0, 0, 0, 2};
    if (first) return {0, from_end <= 3 ? 1.0 : 2.0, 0, from_end <= 3 ? 1.0 : 2.0};
    return from_end == 1 ? SendWeights{2, 0, 2, 0} : SendWeights{1, 1, 1, 1};
  }

  /// The step of a plan, or nothing where it does not fit; written apart from step_seconds().
  /// `configs`: by stage and replica.
  double price(const GridPlan& plan, const std::vector<std::vector<GridConfig>>& configs,
               const Hosts& hosts) const {
    const int count = static_cast<int>(plan.stages.size());
    double busiest = 0, path = 0, update_most = 0, sum_most = 0;
    for (int s = 0; s < count; ++s) {
      const auto own = static_cast<size_t>(s);
      GridStage stage = plan.stages[own];
      double computing = 0, in = 0, out = 0;
      for (size_t j = 0; j < configs[own].size(); ++j) {
        stage.config = configs[own][j];
        if (farthest_from_end(stage, plan.micro_batch, 0) < count - s) return kInfinite;
        double all = 0;
        for (int layer = stage.first; layer < stage.end; ++layer)
          all += compute(stage.config, plan.micro_batch, layer);
        computing = std::max(computing, all);
        if (s > 0)
          in = std::max(in, send(stage.first, plan.micro_batch, stage.config, configs[own - 1][j]));
        if (s + 1 < count)
          out = std::max(out,
                         send(stage.end - 1, plan.micro_batch, stage.config, configs[own + 1][j]));
        update_most = std::max(update_most, update(stage, plan.micro_batch));
        sum_most = std::max(sum_most, reduction(stage, plan.replicas));
      }
      double sending = in + out;
      if (s == 0 && count > 3) sending = 2 * out;
      if (s + 1 == count) sending = 2 * in;
      busiest = std::max(busiest, computing + (blocking_ ? sending : 0));
      path += computing + (blocking_ ? sending : 2 * out);
    }
    if (!have_devices(configs, hosts)) return kInfinite;
    const int samples = plan.micro_batch * plan.replicas;
    if (samples >= batch_ + plan.micro_batch) return kInfinite;  // nothing for the last replica
    const int passes = (batch_ + samples - 1) / samples;
    return (passes - 1) * busiest + path + update_most + sum_most;
  }
  double price(const GridPlan& plan, const Hosts& hosts) const {
    std::vector<std::vector<GridConfig>> configs(plan.stages.size());
    for (const GridReplicas& replicas : replicas_of(plan))
      for (size_t s = 0; s < configs.size(); ++s)
        configs[s].insert(configs[s].end(), static_cast<size_t>(replicas.count),
                          replicas.configs[s]);
    return price(plan, configs, hosts);
  }

 private:
  static bool have_devices(const std::vector<std::vector<GridConfig>>& configs,
                           const Hosts& hosts) {
    std::vector<int> used(hosts.size(), 0), pairs(hosts.size(), 0);
    for (const std::vector<GridConfig>& stage : configs)
      for (const GridConfig config : stage) {
        used[static_cast<size_t>(config.type)] += config.degree;
        pairs[static_cast<size_t>(config.type)] += config.degree / 2;
      }
    for (size_t type = 0; type < hosts.size(); ++type) {
      int there = 0, pairs_there = 0;
      for (const int on_host : hosts[type]) there += on_host, pairs_there += on_host / 2;
      if (used[type] > there || pairs[type] > pairs_there) return false;
    }
    return true;
  }
  static int pick(std::mt19937& random, int least, int most) {
    return std::uniform_int_distribution(least, most)(random);
  }
  static double real(std::mt19937& random, double least, double most) {
    return std::uniform_real_distribution(least, most)(random);
  }
  double sum(int type) const { return sums_[static_cast<size_t>(type)]; }
  double held(const GridStage& stage) const {
    return std::accumulate(weights_.begin() + stage.first, weights_.begin() + stage.end, 0.0);
  }

  int layers_, types_, batch_, blocking_, rise_;
  std::vector<double> seconds_, weights_, sends_, sums_, memory_;
};

/// The least step over every plan, also with more replicas than a number of passes needs, whichever
/// devices each replica has, or with the same in all; replicas by rising devices of the first
/// stage, as their order is of no matter.
class EveryGrid {
 public:
  EveryGrid(const RandomCosts& costs, const Hosts& hosts, bool alike = false)
      : costs_(costs), hosts_(hosts), alike_(alike) {
    int all = 0;
    for (const std::vector<int>& type : hosts) all += std::accumulate(type.begin(), type.end(), 0);
    for (plan_.micro_batch = 1; plan_.micro_batch <= 2; ++plan_.micro_batch)
      for (plan_.replicas = 1; plan_.replicas <= all; ++plan_.replicas) extend(0, all);
  }
  double least() const { return least_; }

 private:
  void extend(int first, int devices_left) {
    if (first == costs_.layers()) {
      least_ = std::min(least_, costs_.price(plan_, configs_, hosts_));
      return;
    }
    if (devices_left < plan_.replicas) return;
    for (int end = first + 1; end <= costs_.layers(); ++end) {
      plan_.stages.push_back({first, end, {}});
      configs_.emplace_back();
      fill(devices_left);
      configs_.pop_back();
      plan_.stages.pop_back();
    }
  }

  /// The last stage, replica by replica.
  void fill(int devices_left) {
    const size_t missing = static_cast<size_t>(plan_.replicas) - configs_.back().size();
    if (missing == 0) return extend(plan_.stages.back().end, devices_left);
    for (int type = 0; type < costs_.types(); ++type)
      for (int degree = 1; degree <= 2; ++degree) {
        if (devices_left < degree + static_cast<int>(missing) - 1) continue;
        std::vector<GridConfig>& stage = configs_.back();
        if (alike_ && !stage.empty() && stage.back() != GridConfig{type, degree}) continue;
        if (configs_.size() == 1 && !stage.empty() &&
            std::pair(type, degree) < std::pair(stage.back().type, stage.back().degree))
          continue;
        stage.push_back({type, degree});
        fill(devices_left - degree);
        configs_.back().pop_back();
      }
  }

  const RandomCosts& costs_;
  const Hosts& hosts_;
  const bool alike_;
  GridPlan plan_;
  std::vector<std::vector<GridConfig>> configs_;
  double least_ = kInfinite;
};

/// Up to `most` devices, at least one of each type, on hosts of one to three.
Hosts random_fleet(std::mt19937& random, int types, int most) {
  const auto pick = [&](int least, int greatest) {
    return std::uniform_int_distribution(least, greatest)(random);
  };
  Hosts hosts(static_cast<size_t>(types), std::vector<int>{1});
  for (int i = types, all = pick(types, most); i < all; ++i) {
    std::vector<int>& type = hosts[static_cast<size_t>(pick(0, types - 1))];
    if (type.back() < 3 && pick(0, 1) == 1)
      ++type.back();
    else
      type.push_back(1);
  }
  return hosts;
}

/// Whether any plan is possible.
bool expect_the_best(const RandomCosts& costs, const Hosts& hosts) {
  const double least = EveryGrid(costs, hosts).least();
  const Result<GridResult> found = search_grid(costs, groups_of(hosts));
  EXPECT_EQ(found.has_value(), least < kInfinite);
  if (!found) {
    EXPECT_EQ(found.error().code, ErrorCode::kNoPlan);
    return false;
  }
  EXPECT_NEAR(costs.price(found->plan, hosts), least, 1e-9 * least);
  EXPECT_NEAR(found->search.step_seconds, least, 1e-9 * least);
  EXPECT_NEAR(found->search.least_seconds, least, 1e-9 * least);
  return true;
}

TEST(GridSearch, FindsTheBestOfAllAndProvesIt) {
  std::mt19937 random(seed_of_this_run());
  int possible = 0;
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE(round);
    const int types = 1 + round % 3;
    const RandomCosts costs(random, 3 + round % 6, types);
    possible += expect_the_best(costs, random_fleet(random, types, 6));
  }
  EXPECT_GE(possible, 250);
}

TEST(GridSearch, FindsTheBestOfAllWhereMicroBatchesInFlightDecide) {
  std::mt19937 random(seed_of_this_run());
  int possible = 0;
  for (int round = 0; round < 200; ++round) {
    SCOPED_TRACE(round);
    const int types = 1 + round % 4;
    const RandomCosts costs(random, 3 + round % 6, types, 0.15 + 0.05 * (round % 5));
    possible += expect_the_best(costs, random_fleet(random, types, 6));
  }
  EXPECT_GE(possible, 50);
  EXPECT_LE(possible, 195);
}

TEST(GridSearch, BoundsAreTrueWhereItStopsEarly) {
  std::mt19937 random(seed_of_this_run());
  for (int round = 0; round < 100; ++round) {
    const RandomCosts costs(random, 6, 2);
    const Hosts hosts = random_fleet(random, 2, 6);
    const double least = EveryGrid(costs, hosts, true).least();
    double bound = kInfinite;
    GridBest best;
    for (const int micro_batch : costs.micro_batches())
      for (int replicas = 1; replicas <= 6; ++replicas) {
        if ((replicas - 1) * micro_batch >= costs.global_batch()) break;  // nothing for the last
        const GridTables tables(costs, {micro_batch, replicas}, groups_of(hosts), best.seconds);
        std::vector<GridBox> boxes = {whole_box(tables, 0, 0)};
        GridWork work{0, 1 << 30};
        const GridEffort effort{.width = 0.3,
                                .distances = 2,
                                .most_states = round % 2 == 0 ? 1 : 1'000'000,
                                .most_labels = 1};
        search_boxes(costs, tables, effort, &boxes, &best, &work);
        for (const GridBox& box : boxes) bound = std::min(bound, box.least_seconds);
      }
    EXPECT_LE(std::min(bound, best.seconds), least * (1 + 1e-12));
    if (!best.plan) continue;
    EXPECT_GE(best.seconds, least * (1 - 1e-12));
    EXPECT_NEAR(costs.price(*best.plan, hosts), best.seconds, 1e-9 * least);
  }
}

TEST(GridSearch, IsNoSlowerWithMoreDevicesOrFasterOnes) {
  std::mt19937 random(seed_of_this_run());
  for (int round = 0; round < 40; ++round) {
    const RandomCosts costs(random, 10, 2);
    const Hosts hosts = {std::vector<int>(static_cast<size_t>(2 + round / 2), 2), {3, 3, 3}};
    const auto before = search_grid(costs, groups_of(hosts));
    Hosts more = hosts;
    more[static_cast<size_t>(round % 2)].push_back(1);
    RandomCosts quicker = costs;
    quicker.quicken(round % 2, 0.3 + 0.01 * round);
    for (const auto& after :
         {search_grid(costs, groups_of(more)), search_grid(quicker, groups_of(hosts))}) {
      if (!before) continue;
      ASSERT_TRUE(after);
      const GridRecord &now = after->search, &then = before->search;
      EXPECT_LE(now.alike_seconds, then.alike_seconds * (1 + 1e-12));
      EXPECT_LE(now.step_seconds, now.alike_seconds);
      if (!now.unlike_too) continue;
      EXPECT_LE(now.step_seconds, then.step_seconds * (1 + 1e-12));
    }
  }
}

TEST(GridSearch, OfManyDevicesIsProved) {
  std::mt19937 random(5);
  const RandomCosts costs(random, 24, 3);
  for (const int many : {64, 1024, 16384}) {
    const Hosts hosts = {{many / 2}, {many / 4}, {many / 4}};
    const auto found = search_grid(costs, groups_of(hosts));
    ASSERT_TRUE(found) << found.error().to_string();
    EXPECT_LE(found->search.gap(), 1e-9) << many;
  }
}

}  // namespace
}  // namespace motley
