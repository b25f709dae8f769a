// Trainings whose hosts average every so many steps (core/sync_groups.h) instead of summing their
// gradients in each.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <mutex>
#include <numeric>

#include "core/run_layout.h"
#include "core/spec/precisions.h"
#include "tests/e2e/small_run.h"
#include "worker/checkpoint/store.h"
#include "worker/data/corpus.h"
#include "worker/optimizer/schedule.h"
#include "worker/train/engine_state.h"
#include "worker/train/rank_memory.h"
#include "worker/train/rank_share.h"
#include "worker/train/stepper.h"
#include "worker/train/world.h"

namespace motley::testing {
namespace {

constexpr Engine::State kStates[] = {Engine::State::kWeight, Engine::State::kAdamM,
                                     Engine::State::kAdamV};

/// Each rank on a device of its own, should they be GPUs.
Attempt attempt_of(const SmallRun& run, const std::string& run_dir) {
  Attempt attempt = small_attempt(run, run_dir);
  for (size_t i = 0; i < attempt.fleet.devices.size(); ++i)
    attempt.fleet.devices[i].uuid = "GPU-00000000-0000-0000-0000-00000000000" + std::to_string(i);
  return attempt;
}

SmallRun run_on_two_hosts(int across) {
  SmallRun run;
  run.grains = {1, 3};
  run.hosts = {0, 1};
  run.across = across;
  run.steps = 8;
  return run;
}

class LocalAverages : public ::testing::Test {
 protected:
  std::string directory_of(const std::string& name) const { return scratch_.path() + "/" + name; }

  /// Goes on where a run of that name has stopped.
  TrainOutcome train(const SmallRun& run, const std::string& name, int64_t stop_at = 0) {
    const auto outcome =
        run_small(attempt_of(run, directory_of(name)), recorder_,
                  [&](int rank, int64_t step, ControlWishes& wishes) -> Result<Unit> {
                    if (step == stop_at && rank == 1) wishes.stop = true;
                    return Unit{};
                  });
    EXPECT_TRUE(outcome) << name << ": " << (outcome ? "" : outcome.error().to_string());
    return outcome ? *outcome : TrainOutcome{};
  }

  Recorder recorder_;
  const TemporaryDirectory scratch_;
};

// --- the same by hand

/// Replicas that know nothing of each other, and whose states the test averages.
class ByHand {
 public:
  explicit ByHand(const Attempt& attempt) : attempt_(attempt), corpus_(load_corpus(attempt)) {
    const DeviceSpec& spec = attempt.fleet.devices[0];
    for (size_t i = 0; i < attempt.plan.replicas.size(); ++i) {
      devices_.push_back(
          open_device_for(attempt.job, spec, precision_computed(attempt.job, spec)).value());
      EngineOptions options;
      options.model = attempt.job.model;
      options.micro_batches = {attempt.plan.grain};
      options.optimizer = attempt.job.train.optimizer;
      options.seed = attempt.job.train.seed;
      options.account = &account_;
      engines_.push_back(Engine::create(*devices_.back(), options).value());
    }
  }

  void train() {
    for (int64_t step = 1; step <= attempt_.job.train.steps; ++step) {
      int first = 0;
      for (size_t i = 0; i < engines_.size(); ++i) {
        const int samples = attempt_.plan.replicas[i].grains * attempt_.plan.grain;
        one_step(*engines_[i], step, first, samples);
        first += samples;
      }
      if (step % attempt_.plan.sync.across == 0) average();
    }
  }

  Engine& engine() { return *engines_[0]; }

  static std::vector<float> values(Engine& engine, Engine::State which) {
    const auto bytes = engine.state(which).value();
    std::vector<float> floats(bytes.size() / sizeof(float));
    std::memcpy(floats.data(), bytes.data(), bytes.size());
    return floats;
  }

 private:
  static Corpus load_corpus(const Attempt& attempt) {
    return Corpus::load(attempt.job.data, attempt.job.model.context).value();
  }

  void one_step(Engine& engine, int64_t step, int first, int samples) {
    const TrainSpec& train = attempt_.job.train;
    const int grain = attempt_.plan.grain;
    std::vector<int32_t> tokens(static_cast<size_t>(grain * (attempt_.job.model.context + 1)));
    engine.begin_step();
    for (int done = 0; done < samples; done += grain) {
      corpus_.train_samples(train.seed, (step - 1) * train.global_batch + first + done, grain,
                            tokens);
      ASSERT_TRUE(run_micro_batch(engine, tokens, grain));
    }
    const int64_t count = engine.sums().value().tokens;
    const auto alone = solo_communicator();
    const double norm = engine.gradient_norm(count, *alone).value();
    ASSERT_TRUE(engine.update(step,
                              learning_rate(train.optimizer, train.schedule, step, train.steps),
                              count, clip_factor(train.optimizer.clip, norm)));
  }

  void average() {
    for (const auto which : kStates) {
      std::vector<double> mean(values(engine(), which).size(), 0.0);
      for (size_t i = 0; i < engines_.size(); ++i) {
        const std::vector<float> mine = values(*engines_[i], which);
        const double share =
            static_cast<double>(attempt_.plan.replicas[i].grains) / attempt_.plan.grain_count();
        for (size_t j = 0; j < mean.size(); ++j) mean[j] += share * static_cast<double>(mine[j]);
      }
      const std::vector<float> rounded(mean.begin(), mean.end());
      for (const auto& engine : engines_) {
        const auto bytes = engine->state(which).value();
        std::memcpy(bytes.data(), rounded.data(), bytes.size());
        ASSERT_TRUE(engine->state_written(which));
      }
    }
  }

  const Attempt& attempt_;
  const Corpus corpus_;
  MemoryAccount account_;
  std::vector<std::unique_ptr<Device>> devices_;
  std::vector<std::unique_ptr<Engine>> engines_;
};

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i)
    largest = std::max(largest, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  return largest;
}

TEST_F(LocalAverages, AreWhatSeparateTrainingsAveragedByHandGive) {
  const SmallRun run = run_on_two_hosts(4);
  const Attempt attempt = attempt_of(run, directory_of("run"));
  train(run, "run");
  ByHand by_hand(attempt);
  by_hand.train();

  ByHand trained(attempt);  // for what the checkpoint holds
  FileSystem& fs = real_file_system();
  const std::string from = checkpoints_directory(attempt.run_dir, attempt.job.checkpoint);
  const auto found = find_checkpoints(fs, from, nullptr).value();
  ASSERT_FALSE(found.empty());
  ASSERT_TRUE(load(fs, from, found[0], all_state_views(trained.engine()).value(), nullptr));
  ASSERT_TRUE(state_written(trained.engine()));
  for (const auto which : kStates)
    EXPECT_LT(largest_difference(ByHand::values(trained.engine(), which),
                                 ByHand::values(by_hand.engine(), which)),
              1e-6);
}

// --- step by step

/// What one rank has after some steps.
struct Seen {
  std::vector<std::vector<float>> states;  ///< in the order of kStates
  int64_t gradient_bytes = 0, average_bytes = 0, world_bytes = 0;
  Bytes counted{0}, estimated{0};
};

/// Of ranks that hold whole models, after `steps` steps without the first ones' traffic.
std::vector<Seen> after_steps(const Attempt& attempt, int64_t steps) {
  std::mutex mutex;
  std::vector<Seen> ranks(attempt.plan.ranks.size());
  const auto body = [&](Communicator& world) -> Result<Unit> {
    MOTLEY_TRY(const auto parts, build_rank(attempt, world));
    Stepper stepper(attempt, *parts, world, [] {});
    parts->sections.open();
    const int64_t before = world.bytes_sent();
    for (int64_t step = 1; step <= steps; ++step) MOTLEY_TRY_VOID(stepper.run(step, {}));
    Seen seen;
    for (const auto which : kStates) {
      MOTLEY_TRY(const auto bytes, parts->engine->state(which));
      const auto* floats = reinterpret_cast<const float*>(bytes.data());
      seen.states.emplace_back(floats, floats + bytes.size() / sizeof(float));
    }
    seen.world_bytes = world.bytes_sent() - before;
    seen.gradient_bytes = parts->slices->bytes_sent();
    if (parts->average) seen.average_bytes = parts->average->bytes_sent();
    seen.counted = parts->memory.peak_of(MemoryUse::kExchange);
    const std::lock_guard lock(mutex);
    ranks[static_cast<size_t>(world.rank())] = std::move(seen);
    return Unit{};
  };
  const auto ran = run_inproc(attempt.plan.world_size(), body);
  EXPECT_TRUE(ran) << (ran ? "" : ran.error().to_string());
  // All by one counter, the groups in turn.
  RankMemoryCounter counter(attempt.job, attempt.plan, [](const Plan&) { return DeviceIslands(); });
  for (size_t rank = ranks.size(); rank-- > 0;)
    ranks[rank].estimated =
        counter
            .count(Rank(static_cast<int>(rank)),
                   traits_driven(attempt.job, attempt.fleet.devices[rank],
                                 precision_computed(attempt.job, attempt.fleet.devices[rank])))
            .exchange;
  return ranks;
}

TEST_F(LocalAverages, GiveAllRanksTheSameBits) {
  for (const Precision precision : {Precision::kFp32, Precision::kFp16}) {
    SmallRun run = run_on_two_hosts(3);
    run.grains = {1, 2, 1, 2};
    run.hosts = {0, 0, 1, 2};
    run.precision = precision;
    const Attempt attempt = attempt_of(run, directory_of("bits"));
    const auto averaged = after_steps(attempt, 6);
    for (const Seen& rank : averaged) EXPECT_EQ(rank.states, averaged[0].states);
    const auto apart = after_steps(attempt, 5);
    EXPECT_EQ(apart[1].states, apart[0].states);  // on one host
    EXPECT_NE(apart[2].states, apart[0].states);
    EXPECT_NE(apart[3].states, apart[2].states);
  }
}

TEST_F(LocalAverages, AloneCrossLinks) {
  SmallRun run = run_on_two_hosts(4);
  run.grains = {1, 1, 2, 2};
  run.hosts = {0, 0, 1, 1};
  const auto sum_of = [](const std::vector<Seen>& ranks, int64_t Seen::*bytes) {
    return std::accumulate(ranks.begin(), ranks.end(), int64_t{0},
                           [&](int64_t sum, const Seen& rank) { return sum + rank.*bytes; });
  };
  const auto apart = after_steps(attempt_of(run, directory_of("apart")), 8);
  const auto until_an_average = after_steps(attempt_of(run, directory_of("apart")), 3);
  run.across = 1;
  const auto together = after_steps(attempt_of(run, directory_of("together")), 8);
  const int64_t model = sum_of(together, &Seen::gradient_bytes) / 8;
  EXPECT_GT(model, 0);
  EXPECT_EQ(sum_of(apart, &Seen::gradient_bytes), 0);
  // Weights and two moments.
  EXPECT_EQ(sum_of(apart, &Seen::average_bytes), 3 * model * 8 / 4);
  EXPECT_EQ(sum_of(until_an_average, &Seen::average_bytes), 0);
  EXPECT_EQ(sum_of(until_an_average, &Seen::world_bytes), 0);
}

TEST_F(LocalAverages, NeedTheMemoryThatIsEstimated) {
  SmallRun run = run_on_two_hosts(2);
  run.replicas = {{.stages = {{4}}, .grains = 2},
                  {.stages = {{2}, {2, {0.5, 0.5}}}, .grains = 1},
                  {.stages = {{1}, {3}}, .grains = 1}};
  run.hosts = {0, 0, 1, 1, 2, 2};  // the second replica joins the first two
  const Attempt attempt = attempt_of(run, directory_of("memory"));
  for (const Seen& rank : after_steps(attempt, 2)) EXPECT_EQ(rank.counted, rank.estimated);
}

// --- whole runs

TEST_F(LocalAverages, LearnLikeSumsInEachStep) {
  SmallRun run = run_on_two_hosts(1);
  run.grains = {2, 1, 2};
  run.hosts = {0, 0, 1};
  run.steps = 60;
  const double together = train(run, "together").loss;
  run.steps = 1;
  const double at_first = train(run, "first").loss;
  run.steps = 60;
  for (const int across : {2, 8}) {
    run.across = across;
    const double apart = train(run, "every " + std::to_string(across)).loss;
    EXPECT_LT(apart, 0.8 * at_first) << across;
    EXPECT_NEAR(apart, together, 0.1 * together) << across;
  }
}

TEST_F(LocalAverages, ComeBeforeSavesEvaluationsAndStops) {
  SmallRun run = run_on_two_hosts(4);
  run.steps = 12;
  const TrainOutcome at_once = train(run, "at once");
  const TrainOutcome stopped = train(run, "in two", 5);
  EXPECT_TRUE(stopped.stopped);
  EXPECT_EQ(stopped.step, 8);
  EXPECT_EQ(train(run, "in two").weights_xxh3, at_once.weights_xxh3);

  run.save_every = 6;
  run.eval = {.every = 5, .samples = 8};
  train(run, "saved");
  std::vector<int64_t> saved;
  for (const SavedReport& report : recorder_.account(0).saved) saved.push_back(report.step);
  EXPECT_NE(std::find(saved.begin(), saved.end(), 6), saved.end());
  // The average is what is saved: from there the run goes on to the same weights.
  const std::string whole = train(run, "saved again").weights_xxh3;
  train(run, "saved until 6", 6);
  EXPECT_EQ(train(run, "saved until 6").weights_xxh3, whole);
}

/// Who dies before the next average does not lose what the last one saved.
TEST_F(LocalAverages, AreCommittedBeforeTheNextOne) {
  SmallRun run = run_on_two_hosts(4);
  run.save_every = 4;
  std::string newest;
  const auto outcome = run_small(
      attempt_of(run, directory_of("run")), recorder_,
      [&](int rank, int64_t step, ControlWishes&) -> Result<Unit> {
        if (rank != 0 || step != 6) return Unit{};
        MOTLEY_TRY(
            const auto found,
            find_checkpoints(real_file_system(), directory_of("run") + "/checkpoints", nullptr));
        if (!found.empty()) newest = found.front().directory;
        return Unit{};
      });
  ASSERT_TRUE(outcome) << outcome.error().to_string();
  EXPECT_EQ(newest.substr(0, 13), "step-00000004");
}

TEST_F(LocalAverages, GoOnUnderAnotherCut) {
  SmallRun run = run_on_two_hosts(4);
  run.steps = 40;
  const double at_once = train(run, "at once").loss;
  for (const int across : {1, 4}) {
    const std::string name = "to another, every " + std::to_string(across);
    train(run, name, 15);
    SmallRun then = run;
    then.replicas = {{.stages = {{4}}, .grains = 1}, {.stages = {{2}, {2}}, .grains = 3}};
    then.hosts = {0, 1, 1};
    then.across = across;
    EXPECT_NEAR(train(then, name).loss, at_once, 0.05 * at_once) << name;
  }
}

TEST_F(LocalAverages, LeaveTheFasterGroupWaitingOnlyThere) {
  SmallRun run = run_on_two_hosts(4);
  run.grains = {2, 2};
  run.speeds = {1, 0.5};
  train(run, "waits");
  const auto& steps = recorder_.account(0).steps;
  for (const int64_t step : {2, 3, 4, 6, 7, 8}) EXPECT_EQ(steps.at(step).wait_seconds, 0) << step;
  EXPECT_GT(steps.at(5).wait_seconds, 3 * steps.at(2).compute_seconds);  // after the average
}

TEST_F(LocalAverages, LossesAreOfTheGroupUntilAllMeet) {
  SmallRun run = run_on_two_hosts(1);
  run.steps = 1;  // all begin with the same weights
  train(run, "together");
  const double all = recorder_.account(0).steps.at(1).loss;
  run.across = 4;
  train(run, "meets");
  EXPECT_NEAR(recorder_.account(0).steps.at(1).loss, all, 1e-6);
  run.steps = 2;
  train(run, "apart");
  EXPECT_NE(recorder_.account(0).steps.at(1).loss, all);
}

TEST_F(LocalAverages, OfOneHostAreNone) {
  SmallRun run = run_on_two_hosts(1);
  run.hosts = {0, 0};
  const std::string weights = train(run, "one").weights_xxh3;
  run.across = 4;
  EXPECT_EQ(train(run, "four").weights_xxh3, weights);
}

}  // namespace
}  // namespace motley::testing
