#include "planner/plain/deal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <numeric>

#include "planner/plain/grain_sums.h"

namespace motley {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// Tables by hand: seconds of 1, 2, 3, ... grains.
struct Case {
  std::vector<GrainTable> tables;
  DealProblem problem;
  std::vector<double> times;

  Case(int grains, std::vector<std::vector<double>> devices,
       std::vector<std::vector<double>> shorted = {}) {
    for (size_t i = 0; i < devices.size(); ++i) {
      GrainTable table{curve(devices[i]), {}};
      if (!shorted.empty()) table.shorted = curve(shorted[i]);
      tables.push_back(std::move(table));
    }
    problem.grains = grains;
    problem.has_short = !shorted.empty();
    problem.reduction.assign(tables.size() + 1, 0);
    problem.most_devices = static_cast<int>(tables.size());
  }

  DealResult solve() {
    problem.devices.clear();
    for (const GrainTable& table : tables) problem.devices.push_back(&table);
    times = section_times(problem.devices);
    problem.section_times = &times;
    return best_deal(problem);
  }

  static GrainCurve curve(std::vector<double> seconds) {
    seconds.insert(seconds.begin(), kNever);
    return GrainCurve(std::move(seconds));
  }
};

TEST(GrainCurve, KnowsTheMostGrainsAndTheMostWithoutAHole) {
  const GrainCurve curve = Case::curve({1, 9, 3, 7});
  EXPECT_EQ(curve.most_within(0.5), 0);
  EXPECT_EQ(curve.most_within(1), 1);
  EXPECT_EQ(curve.most_within(3), 3);
  EXPECT_EQ(curve.whole_within(3), 1);
  EXPECT_EQ(curve.whole_within(9), 4);
}

TEST(GrainTable, HoldsTheBestMicroBatchAndTheUpdate) {
  DeviceProfile device;
  device.curves.emplace_back();
  device.curves[0].points = {{2, 4, 0, 1}, {4, 6, 0, 1}};
  device.curves[0].fit = {2, 1, 0};
  device.step_overhead_seconds = 0.5;
  device.update_seconds = 0.25;
  const StepCut cut{7, 2};  // 2 + 2 + 2 + 1
  ASSERT_EQ(cut.grains(), 4);
  const GrainTable table = make_grain_table({&device, {2, 4}}, cut);
  EXPECT_THAT(table.full.all(), ElementsAre(kNever, 4.75, 6.75, 10.75, 12.75));
  // One sample: as the fit falls below two, 3 / 4 of them; three: between two and four.
  EXPECT_THAT(table.shorted.all(), ElementsAre(kNever, 3.75, 5.75, 9.75, 11.75));
  EXPECT_THAT(make_grain_table({&device, {2, 4}}, {8, 2}).shorted.all(), IsEmpty());
}

DealResult solve(const GrainTables& tables, int grains) {
  DealProblem problem;
  problem.grains = grains;
  for (const auto& table : tables.of()) problem.devices.push_back(table.get());
  problem.reduction.assign(problem.devices.size() + 1, 0);
  problem.most_devices = static_cast<int>(problem.devices.size());
  problem.section_times = &tables.section_times();
  return best_deal(problem);
}

TEST(GrainTables, AreLongEnoughForWhatLiesBelowTheirEnd) {
  std::vector<DeviceProfile> devices(200);
  for (size_t i = 0; i < devices.size(); ++i) {
    const double seconds = i == 0 ? 0.01 : 1 + 0.001 * static_cast<double>(i);  // one is quick
    devices[i].curves.emplace_back();
    devices[i].curves[0].points = {{1, seconds, 0, 1}};
    devices[i].curves[0].fit = {0, seconds, 0};
  }
  const StepCut cut{1000, 1};
  std::vector<DeviceSizes> sizes;
  for (const DeviceProfile& device : devices) sizes.push_back({&device, {1}});
  GrainTables tables(sizes, cut);
  ASSERT_LT(tables.beyond(), kNever);
  const DealResult cut_off = solve(tables, cut.grains());
  EXPECT_GT(cut_off.deal.step_seconds, tables.beyond()) << "the quick one could do more";
  int lengthened = 0;
  for (;
       tables.beyond() < kNever && solve(tables, cut.grains()).deal.step_seconds >= tables.beyond();
       ++lengthened)
    tables.lengthen();
  EXPECT_GT(lengthened, 0);
  // 100 grains a second of the quick one and one a second of each other, but a little less of most.
  const Deal deal = solve(tables, cut.grains()).deal;
  EXPECT_GT(deal.grains[0], 300);
  for (size_t i = 0; i < devices.size(); ++i)
    EXPECT_LE(deal.grains[i] * devices[i].curves[0].fit.per_sample, deal.step_seconds + 1e-9);
  int64_t sooner = 0;  // grains that all could compute in a little less
  for (const DeviceProfile& device : devices)
    sooner += static_cast<int64_t>((deal.step_seconds - 1e-6) / device.curves[0].fit.per_sample);
  EXPECT_LT(sooner, cut.grains());
}

TEST(BestDeal, SharesAreAsSpeeds) {
  Case deal(6, {{1, 2, 3, 4, 5, 6}, {2, 4, 6, 8, 10, 12}});
  const DealResult best = deal.solve();
  EXPECT_THAT(best.deal.grains, ElementsAre(4, 2));
  EXPECT_EQ(best.deal.step_seconds, 4);
  EXPECT_EQ(best.lower_bound, 4);
  EXPECT_EQ(best.deal.devices(), 2);
}

TEST(BestDeal, EqualDevicesTakeTheBiggerShareInOrder) {
  Case deal(5, {{1, 2, 3, 4, 5}, {1, 2, 3, 4, 5}});
  EXPECT_THAT(deal.solve().deal.grains, ElementsAre(3, 2));
}

TEST(BestDeal, FewestDevicesAmongEquals) {
  Case deal(4, {{4, 4, 4, 4}, {4, 5, 6, 7}});
  EXPECT_THAT(deal.solve().deal.grains, ElementsAre(4, 0));
}

TEST(BestDeal, ReductionDecidesHowMany) {
  Case deal(6, {{1, 2, 3, 4, 5, 6}, {1, 2, 3, 4, 5, 6}, {1, 2, 3, 4, 5, 6}});
  deal.problem.reduction = {0, 0, 2, 3.5};
  EXPECT_EQ(deal.solve().deal.step_seconds, 5);  // 3 + 2, not 2 + 3.5
  EXPECT_EQ(deal.solve().deal.devices(), 2);
  deal.problem.reduction = {0, 0, 2, 2};
  EXPECT_EQ(deal.solve().deal.devices(), 3);
  deal.problem.reduction = {0, 0, 9, 9};
  EXPECT_EQ(deal.solve().deal.devices(), 1);
}

TEST(BestDeal, HoldsToTheNumberOfDevices) {
  Case deal(3, {{1, 2, 3}, {1, 2, 3}, {1, 2, 3}, {1, 2, 3}});
  deal.problem.most_devices = 2;
  EXPECT_THAT(deal.solve().deal.grains, ElementsAre(2, 1, 0, 0));
  deal.problem.most_devices = 4;
  deal.problem.reduction = {0, 0, 9, 9, 9};
  deal.problem.least_devices = 2;
  EXPECT_EQ(deal.solve().deal.devices(), 3);
  deal.problem.least_devices = 4;  // each would need a grain
  EXPECT_EQ(deal.solve().deal.step_seconds, kNever);
  EXPECT_THAT(deal.solve().deal.grains, IsEmpty());
}

TEST(BestDeal, FindsSumsThatHolesLeave) {
  // Two grains are slow: 1 + 3 fits, 2 + 2 does not.
  Case deal(4, {{1, 10, 2, 10}, {1, 10, 2, 10}});
  const DealResult best = deal.solve();
  EXPECT_EQ(best.deal.step_seconds, 2);
  EXPECT_EQ(best.lower_bound, 2);
  EXPECT_EQ(best.deal.grains[0] + best.deal.grains[1], 4);
}

TEST(BestDeal, TheShortGrainGoesWhereItHelps) {
  // Alike but for the short grain, which costs the first device nothing less.
  Case deal(4, {{2, 4, 6, 8}, {2, 4, 6, 8}}, {{2, 4, 6, 8}, {1, 3, 5, 7}});
  deal.tables[0].full = Case::curve({2, 3, 6, 8});
  const DealResult best = deal.solve();
  EXPECT_EQ(best.deal.step_seconds, 3);
  EXPECT_THAT(best.deal.grains, ElementsAre(2, 2));
  EXPECT_EQ(best.deal.short_device, 1);
}

TEST(BestDeal, SlowerThanTheCutoffIsNoDeal) {
  Case deal(2, {{1, 2}, {3, 6}});
  deal.problem.cutoff = 1.5;
  const DealResult best = deal.solve();
  EXPECT_EQ(best.deal.step_seconds, kNever);
  EXPECT_EQ(best.lower_bound, 1.5);
  deal.problem.cutoff = 2;
  EXPECT_EQ(deal.solve().deal.step_seconds, 2);
}

TEST(BestDeal, NoDevicesNoDeal) { EXPECT_EQ(best_deal({}).deal.step_seconds, kNever); }

TEST(DealBySums, DealsEveryTotalThatCanBeReached) {
  Case deal(0, {{1, 9, 1, 9, 9}, {9, 1, 9, 9, 9}, {1, 1, 9, 9, 9}});  // 1 or 3; 2; 1 or 2
  const auto grains = [&](int total, int n) {
    deal.problem.grains = total;
    deal.solve();
    const std::optional<Deal> found = deal_by_sums(deal.problem, n, 1);
    return found ? found->grains : std::vector<int>{};
  };
  EXPECT_THAT(grains(1, 1), ::testing::AnyOf(ElementsAre(1, 0, 0), ElementsAre(0, 0, 1)));
  EXPECT_THAT(grains(5, 2), ::testing::AnyOf(ElementsAre(3, 2, 0), ElementsAre(3, 0, 2)));
  EXPECT_THAT(grains(7, 3), ElementsAre(3, 2, 2));
  EXPECT_THAT(grains(5, 1), IsEmpty());
  EXPECT_THAT(grains(3, 3), IsEmpty());
}

// --- against every deal there is ---

/// Times of small whole numbers, so that there are ties and holes.
Case random_deal() {
  const int grains = *rc::gen::inRange(1, 8);
  const int devices = *rc::gen::inRange(1, 5);
  const auto curves = [&] {
    std::vector<std::vector<double>> all(static_cast<size_t>(devices));
    for (auto& seconds : all)
      for (int g = 1; g <= grains; ++g) seconds.push_back(*rc::gen::inRange(1, 12));
    return all;
  };
  Case deal =
      *rc::gen::arbitrary<bool>() ? Case(grains, curves(), curves()) : Case(grains, curves());
  for (double& seconds : deal.problem.reduction) seconds = *rc::gen::inRange(0, 6);
  deal.problem.most_devices = *rc::gen::inRange(1, devices + 1);
  deal.problem.least_devices = *rc::gen::inRange(1, deal.problem.most_devices + 1);
  return deal;
}

double least_by_trying(const DealProblem& problem, Deal deal, size_t device, int left) {
  if (device < problem.devices.size()) {
    double least = kNever;
    for (int grains = 0; grains <= left; ++grains) {
      deal.grains.push_back(grains);
      least = std::min(least, least_by_trying(problem, deal, device + 1, left - grains));
      deal.grains.pop_back();
    }
    return least;
  }
  const bool allowed =
      deal.devices() >= problem.least_devices && deal.devices() <= problem.most_devices;
  if (left > 0 || !allowed) return kNever;
  if (!problem.has_short) return deal_seconds(problem, deal);
  double least = kNever;
  for (size_t i = 0; i < deal.grains.size(); ++i) {
    if (deal.grains[i] == 0) continue;
    deal.short_device = static_cast<int>(i);
    least = std::min(least, deal_seconds(problem, deal));
  }
  return least;
}

RC_GTEST_PROP(BestDeal, IsTheBestOfAllDealsAndWhole, ()) {
  Case deal = random_deal();
  const DealResult best = deal.solve();
  const DealProblem& problem = deal.problem;
  RC_ASSERT(best.deal.step_seconds == least_by_trying(problem, {}, 0, problem.grains));
  if (best.deal.step_seconds == kNever) return;
  RC_ASSERT(best.lower_bound == best.deal.step_seconds);
  RC_ASSERT(best.deal.step_seconds == deal_seconds(problem, best.deal));
  RC_ASSERT(std::accumulate(best.deal.grains.begin(), best.deal.grains.end(), 0) == problem.grains);
  RC_ASSERT(best.deal.devices() >= problem.least_devices);
  RC_ASSERT(best.deal.devices() <= problem.most_devices);
  if (problem.has_short)
    RC_ASSERT(best.deal.grains[static_cast<size_t>(best.deal.short_device)] > 0);
}

}  // namespace
}  // namespace motley
