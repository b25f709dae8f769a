// A run resumes on any other cut: what every rank of the new plan then holds is what the old plan's
// ranks had, tensor by tensor, over all pairs of plans, and little is read that nobody needs.

#include <gtest/gtest.h>

#include <cstring>
#include <mutex>

#include "core/spec/precisions.h"
#include "tests/e2e/small_run.h"
#include "worker/checkpoint/store.h"
#include "worker/train/engine_state.h"
#include "worker/train/saver.h"
#include "worker/train/stepper.h"
#include "worker/train/world.h"

namespace motley::testing {
namespace {

constexpr int kSteps = 2;

SmallRun base_run() {
  SmallRun run;
  run.model = {.type = "gpt", .layers = 4, .heads = 8, .width = 128, .context = 8, .vocab = 512};
  run.steps = kSteps;
  return run;
}

/// A run of each of these cuts, and one more with sharded state of those it makes a difference for.
std::vector<SmallRun> with_sharded_state(const SmallRun& base,
                                         const std::vector<std::vector<SmallReplica>>& cuts) {
  std::vector<SmallRun> runs;
  for (const auto& replicas : cuts) {
    SmallRun run = base;
    run.replicas = replicas;
    runs.push_back(run);
    run.shard_optimizer = true;
    run.host_optimizer = runs.size() % 4 == 0;
    if (run.replicas.size() > 1 || run.replicas[0].stages.size() > 1) runs.push_back(run);
  }
  return runs;
}

std::vector<SmallRun> plans() {
  const std::vector<std::vector<SmallReplica>> cuts = {
      {{.stages = {{6}}, .grains = 4}},
      {{.stages = {{6}}, .grains = 2}, {.stages = {{6}}, .grains = 2}},
      {{.stages = {{2}, {4}}, .grains = 4}},
      {{.stages = {{3}, {1}, {2}}, .grains = 4}},
      {{.stages = {{6, {0.5, 0.5}}}, .grains = 4}},
      {{.stages = {{6, {0.75, 0.25}}}, .grains = 4}},
      {{.stages = {{3, {0.25, 0.75}}, {3, {0.5, 0.5}}}, .grains = 4}},
      {{.stages = {{6}}, .grains = 1}, {.stages = {{3}, {3}}, .grains = 3}},
  };
  return with_sharded_state(base_run(), cuts);
}

/// Many sharded replicas and shares that divide nothing evenly, of a model of one wide block.
std::vector<SmallRun> misaligned_plans() {
  SmallRun base = base_run();
  base.model = {.type = "gpt", .layers = 1, .heads = 5, .width = 240, .context = 8, .vocab = 259};
  const SmallReplica whole_model{.stages = {{3}}};
  return with_sharded_state(
      base, {
                {whole_model},
                std::vector<SmallReplica>(4, whole_model),
                std::vector<SmallReplica>(8, whole_model),
                {{.stages = {{3, {0.6, 0.4}}}, .grains = 4}},
                {{.stages = {{3, {0.35, 0.45, 0.2}}}}, {.stages = {{1}, {2, {0.55, 0.45}}}}},
                {{.stages = {{3, {0.21, 0.19, 0.2, 0.22, 0.18}}}, .grains = 4}},
            });
}

/// Whole tensors of every kind of state, by name.
class State {
 public:
  void put(const StateView& view, const Slice& slice) {
    const std::lock_guard lock(mutex_);
    std::vector<float>& all = tensors_[view.name];
    all.resize(static_cast<size_t>(whole(view.shape).elements()));
    copy(view, slice, [&](const float* here, size_t there) { all[there] = *here; });
  }
  /// Elements of the view that differ.
  int64_t differences(const StateView& view) const {
    int64_t count = 0;
    const std::vector<float>& all = tensors_.at(view.name);
    copy(view, view.slice, [&](const float* here, size_t there) { count += all[there] != *here; });
    return count;
  }
  size_t size() const { return tensors_.size(); }

 private:
  template <class Each>
  static void copy(const StateView& view, const Slice& slice, Each each) {
    std::vector<float> values(static_cast<size_t>(view.slice.elements()));
    ASSERT_TRUE(view.read(0, std::as_writable_bytes(std::span(values))));
    const float* const data = values.data();
    for (const CopyRun& run : copy_runs(view.slice, whole(view.shape), slice))
      for (int64_t i = 0; i < run.count; ++i)
        each(data + run.from_offset + i, static_cast<size_t>(run.to_offset + i));
  }

  std::mutex mutex_;
  std::map<std::string, std::vector<float>> tensors_;
};

/// Trains and saves; `state` becomes what the owners had.
Result<Unit> save_rank(const Attempt& attempt, Communicator& world, State* state) {
  FileSystem& fs = real_file_system();
  const std::string directory = attempt.run_dir + "/checkpoints";
  MOTLEY_TRY(const auto parts, build_rank(attempt, world));
  MOTLEY_TRY(const Storage storage, probe_storage(world, fs, directory));
  MOTLEY_TRY(const auto saver, Saver::create(attempt, *parts, world, storage, fs));
  Stepper stepper(attempt, *parts, world, [] {});
  for (int step = 1; step <= kSteps; ++step) MOTLEY_TRY_VOID(stepper.run(step, {}));
  MOTLEY_TRY_VOID(saver->begin(kSteps));
  saver->wait_for_shard([] {});
  MOTLEY_TRY(const SaveOutcome saved, saver->finish());
  EXPECT_TRUE(saved.committed) << saved.error;
  MOTLEY_TRY(const auto views, all_state_views(*parts->engine));
  for (const Ownership& owned : attempt.plan.owners)
    for (const StateView& view : views)
      if (owned.owner == Rank(world.rank()) && view.name.ends_with("/" + owned.tensor) &&
          contains(view.slice, owned.slice))
        state->put(view, owned.slice);
  return Unit{};
}

/// Every rank gets what the owners had and reads at most 1.1 of the bytes it needs.
void load_all(const Attempt& attempt, const std::string& from, const State& state) {
  FileSystem& fs = real_file_system();
  const auto found = *find_checkpoints(fs, from, nullptr);
  EXPECT_EQ(found.size(), 1U);
  for (int rank = 0; rank < attempt.plan.world_size(); ++rank) {
    const auto device = open_device_for(attempt.job, attempt.fleet.devices[0],
                                        precision_computed(attempt.job, attempt.fleet.devices[0]));
    const auto engine =
        Engine::create(**device, engine_options(attempt.job, attempt.plan, Rank(rank)));
    const auto views = *all_state_views(**engine);
    int64_t read = 0;
    const auto loaded = load(fs, from, found[0], views, &read);
    EXPECT_TRUE(loaded) << (loaded ? "" : loaded.error().to_string());
    int64_t needed = 0;
    for (const StateView& view : views) {
      needed += view.bytes();
      EXPECT_EQ(state.differences(view), 0) << view.name << " on rank " << rank;
    }
    EXPECT_LE(static_cast<double>(read), 1.1 * static_cast<double>(needed)) << "rank " << rank;
  }
}

void hand_on_between_every_pair(const std::vector<SmallRun>& all) {
  const TemporaryDirectory scratch;
  for (size_t from = 0; from < all.size(); ++from) {
    const std::string directory = scratch.path() + "/" + std::to_string(from);
    const Attempt attempt = small_attempt(all[from], directory);
    State state;
    const auto saved = run_inproc(attempt.plan.world_size(), [&](Communicator& world) {
      return save_rank(attempt, world, &state);
    });
    ASSERT_TRUE(saved) << saved.error().to_string();
    ASSERT_EQ(state.size(), 3 * logical_tensors(attempt.job.model).size());
    for (size_t to = 0; to < all.size(); ++to) {
      SCOPED_TRACE("plan " + std::to_string(from) + " to plan " + std::to_string(to));
      load_all(small_attempt(all[to], directory), directory + "/checkpoints", state);
    }
  }
}

TEST(Resharding, EveryPairOfPlansHandsTheStateOn) {
  const std::vector<SmallRun> all = plans();
  ASSERT_GE(all.size(), 12U);
  hand_on_between_every_pair(all);
}

TEST(Resharding, SoDoesEveryPairOfMisalignedOnes) {
  hand_on_between_every_pair(misaligned_plans());
}

}  // namespace
}  // namespace motley::testing
