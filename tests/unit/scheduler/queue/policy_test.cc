#include "scheduler/policies/policy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace motley {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Of a job that goes at `rates[pool]` a device on so many devices.
JobView job_on(int64_t id, int devices, double work, const std::vector<double>& rates,
               const std::vector<Pool>& pools) {
  JobView job;
  job.id = id;
  job.owner = "owner-" + std::to_string(id);
  job.submitted = static_cast<double>(id);
  job.work_left = work;
  job.speeds = SpeedTable(pools.size());
  PoolCounts limit;
  for (size_t pool = 0; pool < pools.size(); ++pool) {
    if (rates[pool] > 0) job.speeds.add(pool, 1, rates[pool]);
    limit.push_back(rates[pool] > 0 ? pools[pool].devices : 0);
  }
  job.any_of = {{devices, devices, limit, false}};
  return job;
}

Schedule decide(const char* policy, const QueueView& view) {
  return schedule(**make_policy(policy), view);
}

std::vector<int64_t> running(const Schedule& schedule, const QueueView& view) {
  std::vector<int64_t> ids;
  for (const Placement& placement : schedule.run) ids.push_back(view.jobs[placement.job].id);
  return ids;
}

TEST(Policies, AreKnownByName) {
  EXPECT_EQ(policy_names().size(), 5u);
  const auto unknown = make_policy("lifo");
  ASSERT_FALSE(unknown);
  EXPECT_THAT(unknown.error().message, HasSubstr("fifo, backfill"));
}

TEST(Policies, FifoLetsNobodyPass) {
  QueueView view{10, {{"card", 4}}, {}};
  view.jobs = {job_on(1, 3, 100, {1}, view.pools), job_on(2, 2, 10, {1}, view.pools),
               job_on(3, 1, 1, {1}, view.pools)};
  EXPECT_THAT(running(decide("fifo", view), view), ElementsAre(1));
}

TEST(Policies, BackfillLetsThosePassWhoPutNobodyOff) {
  QueueView view{10, {{"card", 4}}, {}};
  view.jobs = {job_on(1, 2, 100, {1}, view.pools), job_on(2, 4, 10, {1}, view.pools),
               job_on(3, 1, 60, {1}, view.pools), job_on(4, 1, 49, {1}, view.pools),
               job_on(5, 1, 40, {1}, view.pools)};
  view.jobs[0].held = {2};  // 50 seconds more
  const Schedule schedule = decide("backfill", view);
  EXPECT_THAT(running(schedule, view), ElementsAre(1, 4, 5));
  ASSERT_TRUE(schedule.reserved);
  EXPECT_EQ(view.jobs[schedule.reserved->job].id, 2);
  EXPECT_DOUBLE_EQ(schedule.reserved->at, 60);
}

TEST(Policies, WhoseEndNobodyKnowsDoesNotPass) {
  QueueView view{0, {{"card", 2}}, {}};
  view.jobs = {job_on(1, 1, 100, {1}, view.pools), job_on(2, 2, 10, {1}, view.pools),
               job_on(3, 1, kUnknownSeconds, {1}, view.pools)};
  EXPECT_THAT(running(decide("backfill", view), view), ElementsAre(1));
}

TEST(Policies, HigherPrioritiesStopPreemptibleJobs) {
  for (const char* policy : {"backfill", "fair_share", "shortest_remaining", "makespan"}) {
    QueueView view{0, {{"card", 2}}, {}};
    view.jobs = {job_on(1, 2, 5, {1}, view.pools), job_on(2, 2, 50, {1}, view.pools)};
    view.jobs[0].held = {2};
    view.jobs[1].priority = 51;
    EXPECT_THAT(running(decide(policy, view), view), ElementsAre(2)) << policy;
    view.jobs[0].preemptible = false;
    EXPECT_THAT(running(decide(policy, view), view), ElementsAre(1)) << policy;
  }
  QueueView view{0, {{"card", 2}}, {}};
  view.jobs = {job_on(1, 2, 5, {1}, view.pools), job_on(2, 2, 50, {1}, view.pools)};
  view.jobs[0].held = {2};
  EXPECT_THAT(running(decide("backfill", view), view), ElementsAre(1));  // an equal stops nobody
}

TEST(Policies, FairShareGoesByWhatDevicesAreWorthAndByWeight) {
  QueueView view{0, {{"fast", 1}, {"slow", 1}}, {}};
  view.jobs = {job_on(1, 1, 1e6, {4, 1}, view.pools), job_on(2, 1, 1e6, {4, 1}, view.pools)};
  view.jobs[0].served = 1000;
  view.jobs[1].served = 10;
  Schedule schedule = decide("fair_share", view);
  ASSERT_EQ(schedule.run.size(), 2u);
  EXPECT_THAT(schedule.run[1].devices, ElementsAre(1, 0));  // who has had less, the better one
  view.jobs[0].weight = 1000;
  schedule = decide("fair_share", view);
  EXPECT_THAT(schedule.run[0].devices, ElementsAre(1, 0));
}

TEST(Policies, AJobTakesSeveralTypesWhereOneIsTooFewAndNoneThatSlowsIt) {
  QueueView view{0, {{"fast", 2}, {"slow", 2}}, {}};
  JobView job = job_on(1, 3, 100, {10, 5}, view.pools);
  job.any_of[0].mix = true;
  view.jobs = {job};
  EXPECT_THAT(decide("backfill", view).run[0].devices, ElementsAre(2, 1));
  view.jobs[0].any_of[0] = {2, 4, {2, 2}, true};
  EXPECT_THAT(decide("backfill", view).run[0].devices, ElementsAre(2, 2));
  view.jobs[0].speeds = SpeedTable(2);
  view.jobs[0].speeds.add(0, 2, 100);
  view.jobs[0].speeds.add(1, 1, 1);  // less than what a second type costs
  EXPECT_THAT(decide("backfill", view).run[0].devices, ElementsAre(2, 0));
}

TEST(Policies, ShortestRemainingGivesMoreToWhoIsNearlyDoneBeforeALongJobStarts) {
  QueueView view{0, {{"card", 2}}, {}};
  view.jobs = {job_on(1, 1, 2, {1}, view.pools)};
  view.jobs[0].any_of[0].most = 2;
  for (int64_t id = 2; id < 6; ++id)  // none of which would be the last of all
    view.jobs.push_back(job_on(id, 1, 100, {1}, view.pools));
  EXPECT_THAT(running(decide("shortest_remaining", view), view), ElementsAre(1));
  EXPECT_THAT(decide("shortest_remaining", view).run[0].devices, ElementsAre(2));
  EXPECT_THAT(running(decide("backfill", view), view), ElementsAre(1, 2));
  for (size_t job = 1; job < 5; ++job) view.jobs[job].work_left = 10;  // soon done as well
  EXPECT_THAT(running(decide("shortest_remaining", view), view), ElementsAre(1, 2));
  for (size_t job = 1; job < 5; ++job) view.jobs[job].work_left = 100;
  view.jobs[0].priority = 60;  // gives no right to more before others have their first
  view.jobs[1].priority = 55;
  EXPECT_THAT(running(decide("shortest_remaining", view), view), ElementsAre(1, 2));
}

TEST(SpeedTable, OfSeveralTypesIsTheSumLessALossForEach) {
  SpeedTable speeds(2);
  speeds.add(0, 1, 10);
  speeds.add(0, 4, 28);
  speeds.add(1, 2, 8);
  EXPECT_DOUBLE_EQ(speeds.rate(0, 2), 16);
  EXPECT_DOUBLE_EQ(speeds.rate(0, 8), 56);
  EXPECT_DOUBLE_EQ(speeds.rate(1, 1), 4);
  EXPECT_DOUBLE_EQ(speeds.rate({2, 2}), (28.0 / 4 * 2 + 4.0 * 2) * 0.95);
}

/// Remaining times of jobs on one device, stopped and started at will: the sum of completion times
/// that this order of them has.
double sum_of_completions(const std::vector<double>& seconds, const std::vector<size_t>& order) {
  double now = 0, sum = 0;
  for (const size_t job : order) sum += now += seconds[job];
  return sum;
}

TEST(Policies, ShortestRemainingIsTheBestOfAllOrders) {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    std::vector<double> seconds(5);
    for (double& each : seconds) each = 1 + static_cast<double>(random() % 100);
    seconds.push_back(1000);  // the one that the end of all waits for would go first
    double best = kUnknownSeconds;
    std::vector<size_t> order(5);
    std::iota(order.begin(), order.end(), size_t{0});
    do best = std::min(best, sum_of_completions(seconds, order));
    while (std::next_permutation(order.begin(), order.end()));
    // Its own order, asked one by one on the second of two devices.
    QueueView view{0, {{"card", 2}}, {}};
    for (size_t i = 0; i < seconds.size(); ++i)
      view.jobs.push_back(job_on(static_cast<int64_t>(i), 1, seconds[i], {1}, view.pools));
    std::vector<size_t> own;
    while (own.size() < 5) {
      for (const int64_t id : running(decide("shortest_remaining", view), view))
        if (id != 5) own.push_back(static_cast<size_t>(id));
      std::erase_if(view.jobs,
                    [&](const JobView& job) { return job.id == static_cast<int64_t>(own.back()); });
    }
    EXPECT_DOUBLE_EQ(sum_of_completions(seconds, own), best);
  }
}

/// Of all pools together, and of the last ones within that.
void add_limits(std::mt19937& random, Alternative* alternative) {
  SharedLimit all{{}, static_cast<int>(random() % 8)}, last{{}, static_cast<int>(random() % 5)};
  for (size_t pool = 0; pool < alternative->limit.size(); ++pool) {
    all.pools.push_back(pool);
    if (pool > 0) last.pools.push_back(pool);
  }
  alternative->shared = {all, last};
}

Alternative other_alternative(std::mt19937& random, Alternative alternative) {
  alternative.least = static_cast<int>(1 + random() % 4);
  alternative.most = alternative.least + static_cast<int>(random() % 3);
  for (int& most : alternative.limit) most = std::min(most, static_cast<int>(random() % 6));
  return alternative;
}

/// Random fleets and queues, part of the jobs running.
QueueView random_view(std::mt19937& random) {
  QueueView view;
  view.now = 1000;
  for (unsigned pool = 0; pool < 1 + random() % 4; ++pool)
    view.pools.push_back({"type-" + std::to_string(pool), static_cast<int>(1 + random() % 9)});
  PoolCounts free;
  for (const Pool& pool : view.pools) free.push_back(pool.devices);
  for (unsigned i = 0; i < random() % 30; ++i) {
    std::vector<double> rates;
    for (size_t pool = 0; pool < view.pools.size(); ++pool)
      rates.push_back(random() % 4 == 0 ? 0 : 1 + static_cast<double>(random() % 50));
    const int least = static_cast<int>(1 + random() % 5);
    JobView job = job_on(i, least, 1 + static_cast<double>(random() % 10000), rates, view.pools);
    job.any_of[0].mix = random() % 2 == 0;
    job.any_of[0].most = least + static_cast<int>(random() % 4);
    if (random() % 3 == 0) add_limits(random, &job.any_of[0]);
    if (random() % 3 == 0) job.any_of.push_back(other_alternative(random, job.any_of[0]));
    job.priority = static_cast<int>(50 + random() % 2);
    job.preemptible = random() % 3 != 0;
    job.switch_seconds = static_cast<double>(random() % 100);
    const size_t pool = random() % view.pools.size();
    if (random() % 2 == 0 && rates[pool] > 0 && free[pool] >= least) {
      free[pool] -= least;
      job.held.assign(view.pools.size(), 0);
      job.held[pool] = least;
    }
    view.jobs.push_back(std::move(job));
  }
  return view;
}

bool is_allowed(const JobView& job, const PoolCounts& devices) {
  if (devices == job.held) return true;
  if (sum_of(devices) == 0) return false;
  return std::any_of(job.any_of.begin(), job.any_of.end(), [&](const Alternative& alternative) {
    const int all = sum_of(devices);
    if (all < alternative.least || all > alternative.most) return false;
    int types = 0;
    for (size_t pool = 0; pool < devices.size(); ++pool) {
      if (devices[pool] > alternative.limit[pool]) return false;
      types += devices[pool] > 0 ? 1 : 0;
    }
    for (const SharedLimit& together : alternative.shared) {
      int taken = 0;
      for (const size_t pool : together.pools) taken += devices[pool];
      if (taken > together.most) return false;
    }
    return alternative.mix || types == 1;
  });
}

TEST(Policies, GiveNoDeviceTwiceAndJobsWhatTheyAskFor) {
  std::mt19937 random(3);
  for (int round = 0; round < 2000; ++round) {
    const QueueView view = random_view(random);
    for (const std::string_view name : policy_names()) {
      const auto policy = make_policy(name);
      const Schedule schedule = motley::schedule(**policy, view);
      PoolCounts used(view.pools.size(), 0);
      std::vector<bool> runs(view.jobs.size());
      for (const Placement& placement : schedule.run) {
        ASSERT_FALSE(runs[placement.job]);
        runs[placement.job] = true;
        ASSERT_TRUE(is_allowed(view.jobs[placement.job], placement.devices)) << name;
        for (size_t pool = 0; pool < used.size(); ++pool) used[pool] += placement.devices[pool];
      }
      for (size_t pool = 0; pool < used.size(); ++pool)
        ASSERT_LE(used[pool], view.pools[pool].devices) << name << ", round " << round;
      for (size_t job = 0; job < runs.size(); ++job)
        if (view.jobs[job].runs() && !view.jobs[job].preemptible) {
          ASSERT_TRUE(runs[job]) << name;
        }
    }
  }
}

/// Every set of devices there is, for a job alone: it starts if, and only if, one of them would do.
TEST(Policies, StartAJobWhereverItsAlternativesCanBeHad) {
  std::mt19937 random(11);
  int possible = 0;
  for (int round = 0; round < 2000; ++round) {
    QueueView view = random_view(random);
    if (view.jobs.empty()) continue;
    view.jobs.resize(1);
    JobView& job = view.jobs[0];
    job.held.clear();
    std::vector<PoolCounts> sets = {PoolCounts()};
    for (size_t pool = 0; pool < view.pools.size(); ++pool) {
      std::vector<PoolCounts> more;
      for (const PoolCounts& set : sets)
        for (int count = 0; count <= view.pools[pool].devices; ++count) {
          more.push_back(set);
          more.back().push_back(count);
        }
      sets = std::move(more);
    }
    const bool would_do = std::any_of(sets.begin(), sets.end(), [&](const PoolCounts& devices) {
      return is_allowed(job, devices);
    });
    possible += would_do ? 1 : 0;
    for (const PoolCounts& devices : sets)
      ASSERT_EQ(is_allowed(job, devices),
                std::any_of(job.any_of.begin(), job.any_of.end(),
                            [&](const Alternative& each) { return each.admits(devices); }));
    for (const std::string_view name : policy_names())
      ASSERT_EQ(motley::schedule(**make_policy(name), view).run.size(), would_do ? 1u : 0u)
          << name << ", round " << round;
  }
  EXPECT_GT(possible, 500);
}

/// With what backfilling starts, who waits longest finds enough devices at the time it was told.
TEST(Policies, BackfillKeepsItsReservation) {
  std::mt19937 random(11);
  int reserved = 0;
  for (int round = 0; round < 2000; ++round) {
    const QueueView view = random_view(random);
    const Schedule schedule = decide("backfill", view);
    if (!schedule.reserved || schedule.reserved->at == kUnknownSeconds) continue;
    ++reserved;
    PoolCounts free;
    for (const Pool& pool : view.pools) free.push_back(pool.devices);
    for (const Placement& placement : schedule.run) {
      const JobView& job = view.jobs[placement.job];
      if (view.now + job.seconds_on(placement.devices) <= schedule.reserved->at) continue;
      for (size_t pool = 0; pool < free.size(); ++pool) free[pool] -= placement.devices[pool];
    }
    for (size_t pool = 0; pool < free.size(); ++pool)
      ASSERT_GE(free[pool], schedule.reserved->devices[pool]) << "round " << round;
  }
  EXPECT_GT(reserved, 100);
}

}  // namespace
}  // namespace motley
