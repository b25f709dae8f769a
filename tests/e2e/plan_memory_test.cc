// What a plan says its ranks need is what they allocate: counted before anything runs, compared
// with what ranks that have trained and saved have on their accounts; and that account with what
// the system says of the process.

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <mutex>
#include <string>
#include <vector>

#include "core/reducer_memory.h"
#include "core/run_layout.h"
#include "planner/costs/cost_model.h"
#include "tests/e2e/small_run.h"
#include "worker/train/rank_memory.h"
#include "worker/train/rank_parts.h"
#include "worker/train/saver.h"
#include "worker/train/stepper.h"

namespace motley::testing {
namespace {

struct Cut {
  std::string name;
  std::vector<SmallReplica> replicas;
  bool shard_optimizer = false;
  bool host_optimizer = false;
  Numerics numerics = Numerics::kFast;
  Precision precision = Precision::kFp32;
  std::vector<int> hosts = {};
  CodecSpec compress = {};
};

CodecSpec factors_in(CodecValues values) {
  return {.kind = CodecKind::kPowerSgd, .rank = 3, .values = values};
}

std::vector<Recompute> all_of(int layers, Recompute part) {
  return std::vector<Recompute>(static_cast<size_t>(layers), part);
}

std::vector<SmallReplica> replicas(int count) {
  return std::vector<SmallReplica>(static_cast<size_t>(count), {.stages = {{8}}, .grains = 2});
}

/// Of a model with eight layers.
std::vector<Cut> cuts() {
  return {
      {"whole", {{.stages = {{8}}, .grains = 5, .micro_batch_grains = 2}}},
      {"pipeline", {{.stages = {{3}, {3}, {2}}, .grains = 7}}},
      {"pipeline, short last",
       {{.stages = {{5}, {3}}, .grains = 7, .micro_batch_grains = 3}},
       true},
      {"tensor", {{.stages = {{8, {0.75, 0.25}}}, .grains = 4}}},
      {"unlike, sharded",
       {{.stages = {{8}}, .grains = 4}, {.stages = {{2, {0.5, 0.5}}, {6}}, .grains = 3}},
       true},
      {"recomputing, state in host memory",
       {{.stages = {{4, {1}, all_of(4, Recompute::kBlock)}, {4, {1}, all_of(4, Recompute::kMlp)}},
         .grains = 6}},
       false,
       true},
      {"exact", {{.stages = {{4}, {4}}, .grains = 5}}, false, false, Numerics::kExact},
      {"pair", replicas(2)},
      {"three replicas, sharded", replicas(3), true},
      {"four replicas, state in host memory", replicas(4), false, true},
      {"four replicas, exact", replicas(4), false, false, Numerics::kExact},
      {"unlike, exact, sharded, state in host memory",
       {{.stages = {{8}}, .grains = 4}, {.stages = {{2}, {6}}, .grains = 3}},
       true,
       true,
       Numerics::kExact},
      {"a head in unlike parts, bf16",
       {{.stages = {{8}}, .grains = 4}, {.stages = {{7}, {1, {0.3, 0.7}}}, .grains = 3}},
       false,
       false,
       Numerics::kFast,
       Precision::kBf16},
      {"unlike, float64",
       {{.stages = {{8}}, .grains = 4}, {.stages = {{5, {0.25, 0.75}}, {3}}, .grains = 3}},
       false,
       false,
       Numerics::kFast,
       Precision::kFp64},
      {.name = "compressed",
       .replicas = replicas(3),
       .hosts = {0, 1, 1},
       .compress = {.kind = CodecKind::kInt8}},
      {.name = "factors",
       .replicas = replicas(3),
       .hosts = {0, 1, 1},
       .compress = factors_in(CodecValues::kFp32)},
      {.name = "factors in bf16, unlike, sharded",
       .replicas = {{.stages = {{8}}, .grains = 4},
                    {.stages = {{2, {0.5, 0.5}}, {6}}, .grains = 3}},
       .shard_optimizer = true,
       .hosts = {0, 1, 1, 2},
       .compress = factors_in(CodecValues::kBf16)},
  };
}

Attempt attempt_of(const Cut& cut, const std::string& directory) {
  SmallRun run;
  run.model = {.type = "gpt", .layers = 6, .heads = 4, .width = 32, .context = 16, .vocab = 259};
  run.replicas = cut.replicas;
  run.shard_optimizer = cut.shard_optimizer;
  run.host_optimizer = cut.host_optimizer;
  run.numerics = cut.numerics;
  run.precision = cut.precision;
  run.hosts = cut.hosts;
  run.compress = cut.compress;
  return small_attempt(run, directory);
}

/// All by one counter, as `motley-worker estimate` has it.
std::vector<MemoryEstimate> predicted(const Attempt& attempt) {
  RankMemoryCounter counter(attempt.job, attempt.plan, [](const Plan&) { return DeviceIslands(); });
  std::vector<MemoryEstimate> bytes;
  for (int rank = 0; rank < attempt.plan.world_size(); ++rank) {
    const DeviceSpec& device = attempt.fleet.devices[static_cast<size_t>(rank)];
    bytes.push_back(
        counter.count(Rank(rank), traits_driven(attempt.job, device, Precision::kAuto)));
  }
  return bytes;
}

/// What a rank's account says.
struct Counted {
  Bytes limited{0};  ///< at most, of what the device's limit is for
  Bytes exchange{0}, snapshot{0}, host{0};
};

/// A step and a save of this rank.
Result<Unit> step_and_save(const Attempt& attempt, RankParts& parts, Communicator& world) {
  FileSystem& fs = real_file_system();
  MOTLEY_TRY(
      const Storage storage,
      probe_storage(world, fs, checkpoints_directory(attempt.run_dir, attempt.job.checkpoint)));
  MOTLEY_TRY(const auto saver, Saver::create(attempt, parts, world, storage, fs));
  Stepper stepper(attempt, parts, world, [] {});
  parts.sections.open();
  MOTLEY_TRY_VOID(stepper.run(1, {}));
  MOTLEY_TRY_VOID(saver->begin(1));
  saver->wait_for_shard([] {});
  MOTLEY_TRY_VOID(saver->finish());
  return Unit{};
}

/// Of ranks that have trained and saved.
Result<std::vector<Counted>> counted(const Attempt& attempt) {
  std::mutex mutex;
  std::vector<Counted> ranks(attempt.plan.ranks.size());
  const auto train = [&](Communicator& world) -> Result<Unit> {
    MOTLEY_TRY(const auto parts, build_rank(attempt, world));
    const Bytes host = parts->memory.held(MemoryUse::kHost);
    MOTLEY_TRY_VOID(step_and_save(attempt, *parts, world));
    const std::lock_guard lock(mutex);
    // The stepper and the saver have given back what they held; the peak knows it.
    ranks[static_cast<size_t>(world.rank())] = {
        .limited = parts->counted_memory(),
        .exchange = parts->memory.peak_of(MemoryUse::kExchange),
        .snapshot = parts->memory.peak_of(MemoryUse::kSnapshot),
        .host = host};
    return Unit{};
  };
  MOTLEY_TRY_VOID(run_inproc(attempt.plan.world_size(), train));
  return ranks;
}

/// What a process may grow by besides what is counted: buffers that the matrix library keeps for
/// each thread, programs, the allocator's own; and a part of the whole, more under a sanitizer.
constexpr double kFixedGrowth = 64e6;
#if defined(__SANITIZE_ADDRESS__)
constexpr double kMostGrowth = 1.3;
#else
constexpr double kMostGrowth = 1.05;
#endif

class PlanMemory : public ::testing::Test {
 protected:
  TemporaryDirectory scratch_;
};

TEST_F(PlanMemory, IsWhatTheRanksAllocate) {
  for (const Cut& cut : cuts()) {
    SCOPED_TRACE(cut.name);
    Attempt attempt = attempt_of(cut, scratch_.path() + "/" + cut.name);
    const std::vector<MemoryEstimate> expected = predicted(attempt);
    for (size_t rank = 0; rank < expected.size(); ++rank)
      attempt.fleet.devices[rank].memory = expected[rank].total();  // not a byte to spare
    const auto actual = counted(attempt);
    ASSERT_TRUE(actual) << actual.error().to_string();
    for (size_t rank = 0; rank < expected.size(); ++rank) {
      EXPECT_EQ((*actual)[rank].limited, expected[rank].total()) << "rank " << rank;
      EXPECT_EQ((*actual)[rank].exchange, expected[rank].exchange) << "rank " << rank;
      EXPECT_EQ((*actual)[rank].snapshot, expected[rank].snapshot) << "rank " << rank;
      EXPECT_EQ((*actual)[rank].host, expected[rank].host) << "rank " << rank;
    }

    attempt.fleet.devices.back().memory = expected.back().total() - Bytes(1);
    const auto refused = counted(attempt);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kOutOfMemory);
  }
}

TEST_F(PlanMemory, RecomputingAndSharingNeedLess) {
  const auto total = [&](const SmallReplica& replica) {
    return predicted(attempt_of({.name = "", .replicas = {replica}}, scratch_.path()))
        .front()
        .total();
  };
  const SmallReplica two_stages{.stages = {{4}, {4}}, .grains = 6};
  SmallReplica recomputing = two_stages;
  recomputing.stages[0].recompute = all_of(4, Recompute::kBlock);
  SmallReplica shared = two_stages;
  shared.stages[0].shares = {0.5, 0.5};
  EXPECT_LT(total(recomputing), total(two_stages));
  EXPECT_LT(total(shared), total(two_stages));
  EXPECT_LT(total(two_stages), total({.stages = {{8}}, .grains = 6}));
}

TEST_F(PlanMemory, OfPlainReplicasIsWithinTheirSimpleFormula) {
  for (const int count : {2, 3, 4}) {
    const Attempt attempt = attempt_of({.name = "", .replicas = replicas(count)}, scratch_.path());
    const Bytes most = plain_reducer_bytes(parameter_count(attempt.job.model), 4, {count, 1});
    for (const MemoryEstimate& rank : predicted(attempt)) {
      EXPECT_LE(rank.exchange, most);
      EXPECT_GE(rank.exchange * 2, most);
    }
  }
}

/// Of devices whose engines take nothing: what is left is for sums and saving.
Profile profile_without_engines(const FleetSpec& fleet) {
  Profile profile;
  for (const DeviceSpec& spec : fleet.devices) {
    DeviceProfile& device = profile.devices.emplace_back();
    device.device = spec.id;
    device.memory_limit = *spec.memory;
    device.memory = {{1, Bytes(0), Bytes(0)}, {64, Bytes(0), Bytes(0)}};
    LayerCurve& curve = device.curves.emplace_back();
    curve.points = {{1, 0.01, 0.01, 3}, {64, 0.1, 0.01, 3}};
    curve.fit = fit_curve(curve.points);
  }
  return profile;
}

TEST_F(PlanMemory, OfPlainReplicasIsWhatThePlannerCounts) {
  for (const CodecSpec& codec : {CodecSpec{}, CodecSpec{.kind = CodecKind::kInt8},
                                 factors_in(CodecValues::kFp32), factors_in(CodecValues::kFp16)}) {
    SCOPED_TRACE(to_text(codec));
    Attempt attempt =
        attempt_of({.name = "", .replicas = replicas(4), .hosts = {0, 1, 1, 2}, .compress = codec},
                   scratch_.path());
    const PlanRequest request{attempt.job, attempt.fleet, profile_without_engines(attempt.fleet)};
    const auto planned = predict(request, &attempt.plan);
    ASSERT_TRUE(planned) << planned.error().to_string();
    const std::vector<MemoryEstimate> estimates = predicted(attempt);
    for (size_t rank = 0; rank < estimates.size(); ++rank)
      EXPECT_EQ(attempt.plan.prediction.ranks[rank].memory,
                estimates[rank].exchange + estimates[rank].snapshot)
          << "rank " << rank;
  }
}

// --- what the system says

/// A line of /proc/self/status, which is in kB.
Bytes status_of_process(const std::string& name) {
  std::ifstream status("/proc/self/status");
  std::string word;
  int64_t kibibytes = 0;
  while (status >> word)
    if (word == name + ":" && status >> kibibytes) return Bytes(kibibytes * 1024);
  return Bytes(0);
}

/// From now on VmHWM is the largest resident size since now.
void forget_largest_size() { std::ofstream("/proc/self/clear_refs") << "5"; }

/// 40 MB of parameters on three ranks of this process, two replicas: whatever is large and not
/// counted shows.
TEST_F(PlanMemory, IsWhatTheProcessGrowsBy) {
  SmallRun run;
  run.model = {.type = "gpt", .layers = 2, .heads = 4, .width = 512, .context = 8, .vocab = 8192};
  run.grain = 1;
  run.replicas = {{.stages = {{4}}, .grains = 2}, {.stages = {{2}, {2}}, .grains = 1}};
  run.steps = 2;
  run.save_every = 1;
  const Attempt attempt = small_attempt(run, scratch_.path());
  Bytes expected{0};
  for (const MemoryEstimate& rank : predicted(attempt)) expected += rank.total();
  ASSERT_GT(expected, Bytes(400 << 20));

  forget_largest_size();
  const Bytes before = status_of_process("VmRSS");
  Recorder recorder;
  const auto outcome = run_small(attempt, recorder);
  ASSERT_TRUE(outcome) << outcome.error().to_string();
  const Bytes grown = status_of_process("VmHWM") - before;
  std::printf("counted %.1f MB, the process grew by %.1f MB\n",
              static_cast<double>(expected.value()) * 1e-6,
              static_cast<double>(grown.value()) * 1e-6);
  EXPECT_GT(static_cast<double>(grown.value()), 0.9 * static_cast<double>(expected.value()));
  EXPECT_LT(static_cast<double>(grown.value()),
            kMostGrowth * static_cast<double>(expected.value()) + kFixedGrowth);
}

}  // namespace
}  // namespace motley::testing
