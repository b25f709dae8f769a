// The pipeline's own code (worker/train/pipeline.h) with stages that compute nothing, over sends
// that are complete only when they have been received: inproc copies from the sender's memory when
// the receiver calls. What a rank calls, and in which order, does not depend on time, and messages
// match by sender and order; so if such a step ends once, it ends whoever is quicker.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "core/holdings.h"
#include "tests/e2e/small_run.h"
#include "tests/support/checked_posts.h"
#include "tests/support/new_seeds.h"
#include "tests/support/random_cases.h"
#include "worker/train/pipeline.h"

namespace motley::testing {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kFixedSeeds = random_cases(60);
constexpr int kNewSeeds = 6;
constexpr int kContext = 4;
constexpr CommunicatorOptions kImpatient{.timeout = Nanos(20'000'000'000)};

/// What a message of a micro-batch says: who sent it, for which pass.
struct Word {
  int stage = 0;
  int backward = 0;
  int64_t step = 0;
  int64_t first_sample = 0;

  bool operator==(const Word&) const = default;
};
constexpr int kWordsOfASample = 3;

/// A stage that says what passes through it and checks what its neighbours say. Boundaries lie in
/// memory as those of a StageEngine: the gradient arrives where the output was.
class TalkingStage final : public Engine {
 public:
  TalkingStage(int stage, int stages, const RankShare& share)
      : stage_(stage), stages_(stages), slots_(static_cast<size_t>(share.in_flight)) {
    for (Slot& slot : slots_)
      for (auto* boundary : {&slot.input, &slot.output, &slot.d_input})
        boundary->resize(static_cast<size_t>(share.largest() * kWordsOfASample));
  }

  int most_in_use() const { return most_in_use_; }

  void begin_step() override { ended_ = false; }
  Result<Unit> put_samples(int slot, const MicroBatchInput& input) override {
    Slot& here = at(slot);
    if (here.in_use && input.step > 0) return wrong("put samples into a slot in use");
    here.in_use = input.step > 0;
    here.of = {stage_, 0, input.step, input.first_sample};
    const auto in_use =
        std::count_if(slots_.begin(), slots_.end(), [](const Slot& one) { return one.in_use; });
    most_in_use_ = std::max(most_in_use_, static_cast<int>(in_use));
    return Unit{};
  }
  Result<Unit> forward(int slot, int samples) override {
    Slot& here = at(slot);
    MOTLEY_TRY_VOID(expect_from(stage_ - 1, 0, here, here.input, samples));
    return say(0, here, &here.output, samples);
  }
  Result<Unit> forward_first(int slot, int samples, const WeightsNeeded& before_use) override {
    MOTLEY_TRY_VOID(before_use({0, stage_ + 1}));
    return forward(slot, samples);
  }
  Result<Unit> backward(int slot, int samples) override {
    Slot& here = at(slot);
    MOTLEY_TRY_VOID(expect_from(stage_ + 1, 1, here, here.output, samples));
    if (ended_) return wrong("a backward pass after the last");
    here.in_use = false;
    return say(1, here, &here.d_input, samples);
  }
  Result<Unit> backward_last(int slot, int samples, const GradientsFinal& on_final) override {
    MOTLEY_TRY_VOID(backward(slot, samples));
    ended_ = true;
    on_final({0, stage_ + 1});
    return Unit{};
  }
  Result<Unit> evaluate(int samples) override { return forward(0, samples); }

  Result<std::span<std::byte>> pull(int slot, Boundary boundary, int samples) override {
    return view(slot, boundary, samples);
  }
  std::span<std::byte> view(int slot, Boundary boundary, int samples) override {
    Slot& here = at(slot);
    std::vector<Word>& words = boundary == Boundary::kInput           ? here.input
                               : boundary == Boundary::kInputGradient ? here.d_input
                                                                      : here.output;
    return std::as_writable_bytes(
        std::span(words).first(static_cast<size_t>(samples * kWordsOfASample)));
  }
  Result<Unit> push(int, Boundary, int) override { return Unit{}; }

  Result<std::vector<float>> logits(std::span<const int32_t>, int) override { return {}; }
  Result<LossSums> sums() override { return LossSums{}; }
  Result<GradientSpans> gradients(std::span<const ParameterRange>) override {
    return GradientSpans{};
  }
  Result<GradientSpans> staged_gradients() override { return GradientSpans{}; }
  int64_t held_elements() const override { return 0; }
  Result<DeviceArray> device_gradients() override { return DeviceArray{}; }
  Result<double> gradient_norm(int64_t, Communicator&) override { return 0; }
  Result<Unit> update(int64_t, double, int64_t, double) override { return Unit{}; }
  void hold_second_moment_after(int64_t) override {}
  int64_t steps_held() const override { return 0; }
  void set_steps_held(int64_t) override {}
  int64_t updated_elements() const override { return 0; }
  int exact_exponent() const override { return 0; }
  void set_exact_exponent(int) override {}
  int next_exact_exponent(bool) const override { return 0; }
  const std::vector<FlatTensor>& tensors(State) const override { return none_; }
  Result<std::span<std::byte>> state(State) override { return std::span<std::byte>(); }
  Result<Unit> read_state(State, Bytes, std::span<std::byte>) override { return Unit{}; }
  Result<Unit> write_state(State, Bytes, std::span<const std::byte>) override { return Unit{}; }
  Result<Unit> state_written(State) override { return Unit{}; }
  bool state_in_reach(State) const override { return true; }
  void set_loss_scale_exponent(int) override {}
  Precision precision() const override { return Precision::kFp32; }
  Work flops(int) const override { return {}; }
  double evaluation_flops() const override { return 0; }
  MemoryPoint memory() const override { return {}; }

 private:
  struct Slot {
    std::vector<Word> input, output, d_input;
    Word of;
    bool in_use = false;
  };

  Slot& at(int slot) { return slots_.at(static_cast<size_t>(slot)); }
  Result<Unit> wrong(const std::string& what) const {
    return fail(ErrorCode::kInternal, "stage " + std::to_string(stage_) + ": " + what);
  }
  Result<Unit> expect_from(int stage, int backward, const Slot& here, const std::vector<Word>& said,
                           int samples) const {
    if (stage < 0 || stage == stages_) return Unit{};
    const Word wanted{stage, backward, here.of.step, here.of.first_sample};
    const auto end = said.begin() + samples * kWordsOfASample;
    return std::count(said.begin(), end, wanted) == end - said.begin()
               ? Result<Unit>(Unit{})
               : wrong("the neighbour's message is another or has changed");
  }
  Result<Unit> say(int backward, const Slot& here, std::vector<Word>* words, int samples) const {
    std::fill_n(words->begin(), samples * kWordsOfASample,
                Word{stage_, backward, here.of.step, here.of.first_sample});
    return Unit{};
  }

  const int stage_;
  const int stages_;
  std::vector<Slot> slots_;
  std::vector<FlatTensor> none_;
  int most_in_use_ = 0;
  bool ended_ = false;  ///< the step's last backward pass, so it was called
};

/// Any replicas side by side: 1 to 7 stages of 1 to 3 ranks, 1 to 20 micro-batches, the last
/// perhaps smaller.
Attempt any_attempt(uint32_t seed) {
  std::mt19937 random(seed);
  const auto draw = [&](int low, int high) {
    return std::uniform_int_distribution(low, high)(random);
  };
  Attempt attempt;
  attempt.job.model = {"gpt", 5, 4, 8, kContext, 256};
  attempt.trace = draw(0, 1) > 0;
  attempt.fleet.clock = draw(0, 1) > 0 ? PaceClock::kVirtual : PaceClock::kSleep;
  Plan& plan = attempt.plan;
  plan.grain = draw(1, 3);
  for (int replicas = draw(1, 3); replicas > 0; --replicas) {
    ReplicaPlan replica;
    for (int stages = draw(1, 7); stages > 0; --stages) {
      StagePlan stage;
      for (int ranks = std::max(1, draw(-3, 3)); ranks > 0; --ranks) {
        stage.ranks.emplace_back(plan.world_size());
        plan.ranks.emplace_back();
      }
      replica.stages.push_back(stage);
    }
    const int grains_of_micro_batch = draw(1, 3);
    replica.micro_batch = plan.grain * grains_of_micro_batch;
    replica.grains = draw(1, 20 * grains_of_micro_batch);
    plan.global_batch += replica.grains * plan.grain;
    plan.replicas.push_back(replica);
  }
  plan.global_batch -= draw(0, plan.grain - 1);
  return attempt;
}

/// Two steps, an evaluation, another step of one rank.
Result<Unit> run_rank(const Attempt& attempt, const Corpus& corpus, Communicator& inner,
                      Posts posts) {
  size_t most_open = 0;
  const auto world = checked_posts(inner, &most_open, posts);
  const Role role = role_of(attempt.plan, Rank(world->rank()));
  const auto& stages = attempt.plan.replicas[static_cast<size_t>(role.replica)].stages;
  const auto count = static_cast<int>(stages.size());
  RankParts parts(DeviceSpec{}, share_of(attempt.plan, Rank(world->rank()), 7), attempt);
  parts.corpus = corpus;
  auto made = std::make_unique<TalkingStage>(role.stage, count, parts.share);
  const TalkingStage& engine = *made;
  parts.engine = std::move(made);
  Pipeline pipeline(attempt, parts, *world, [] {});
  parts.sections.open();
  int64_t reported = 0;
  const auto on_final = [&](const ParameterRange& range) { reported += range.count; };
  MOTLEY_TRY_VOID(pipeline.train(1));
  MOTLEY_TRY_VOID(pipeline.train(2, {.on_final = on_final}));
  EXPECT_EQ(reported, role.stage + 1) << "once, of the last backward pass";
  MOTLEY_TRY_VOID(pipeline.evaluate());
  MOTLEY_TRY_VOID(pipeline.train(3));
  EXPECT_EQ(reported, role.stage + 1);

  const auto micro_batches = static_cast<int>(parts.share.micro_batches.size());
  EXPECT_EQ(engine.most_in_use(), most_in_flight(count, role.stage, micro_batches));
  size_t neighbours = 0;  // that one rank sends to, at most
  for (const StagePlan& stage : stages) neighbours = std::max(neighbours, stage.ranks.size());
  const size_t of_a_slot = 2 * 2 * neighbours;  // output and gradient, each with a stamp
  EXPECT_LE(most_open, of_a_slot * static_cast<size_t>(parts.share.in_flight));
  return Unit{};
}

class PipelineOrder : public ::testing::Test {
 protected:
  PipelineOrder() {
    const std::string path = scratch_.path() + "/text";
    std::ofstream(path) << std::string(400, 'a');
    DataSpec data;
    data.files = {path};
    corpus_ = Corpus::load(data, kContext).value();
  }

  Result<Unit> run(const Attempt& attempt, Posts posts = Posts::kPosted,
                   const CommunicatorOptions& options = kImpatient) {
    return run_inproc(
        attempt.plan.world_size(),
        [&](Communicator& world) { return run_rank(attempt, corpus_, world, posts); }, options);
  }
  void expect_to_end(uint32_t seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const auto ended = run(any_attempt(seed));
    EXPECT_TRUE(ended) << ended.error().to_string();
  }

  TemporaryDirectory scratch_;
  Corpus corpus_;
};

TEST_F(PipelineOrder, NeitherWaitsForEverNorOverwritesWhatIsOnItsWay) {
  for (uint32_t seed = 1; seed <= kFixedSeeds; ++seed) expect_to_end(seed);
}

TEST_F(PipelineOrder, AlsoWithNewSeeds) {
  for_new_seeds(kNewSeeds, [&](uint32_t seed) { expect_to_end(seed); });
}

/// Why sends are posted: two neighbours would wait for each other to receive.
TEST_F(PipelineOrder, WouldWaitForEverIfSendsBlocked) {
  Attempt attempt;
  attempt.job.model = {"gpt", 5, 4, 8, kContext, 256};
  attempt.plan.grain = 1;
  attempt.plan.global_batch = 3;
  attempt.plan.ranks.resize(2);
  attempt.plan.replicas = {{.stages = {StagePlan{.ranks = {Rank(0)}, .shares = {1}},
                                       StagePlan{.ranks = {Rank(1)}, .shares = {1}}},
                            .micro_batch = 1,
                            .grains = 3}};
  EXPECT_TRUE(run(attempt));
  const auto ended = run(attempt, Posts::kBlocking, {.timeout = Nanos(200'000'000)});
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error().code, ErrorCode::kPeerLost);
  EXPECT_THAT(ended.error().message, HasSubstr("did not answer in send"));
}

}  // namespace
}  // namespace motley::testing
