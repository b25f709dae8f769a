// Gradients whose matrices are summed as two factors: nothing is lost but what the residuals have,
// all ranks get the same bits, and what cannot be factored is summed as it is.

#include "worker/train/factored_sums.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <set>

#include "core/holdings.h"
#include "tests/unit/worker/engine/foreign_device.h"
#include "worker/train/slice_classes.h"
#include "worker/train/slice_exchange.h"

namespace motley {
namespace {

ModelSpec small_model() {
  return {.type = "gpt", .layers = 1, .heads = 4, .width = 32, .context = 16, .vocab = 70};
}

/// A stage: its layers, and the shares of its ranks.
struct Part {
  int layers = 0;
  std::vector<double> shares = {1.0};
};

/// Ranks in the order of `hosts`.
Plan factored_plan(const std::vector<std::vector<Part>>& replicas, const std::vector<int>& hosts,
                   const CodecSpec& codec) {
  Plan plan;
  plan.compression.codec = codec;
  for (const std::vector<Part>& parts : replicas) {
    ReplicaPlan& replica = plan.replicas.emplace_back();
    LayerIndex layer = 0;
    for (const Part& part : parts) {
      StagePlan& stage = replica.stages.emplace_back();
      stage.first_layer = layer;
      stage.last_layer = (layer += part.layers) - 1;
      stage.shares = part.shares;
      for (size_t i = 0; i < part.shares.size(); ++i) {
        const int rank = plan.world_size();
        stage.ranks.emplace_back(rank);
        const std::string host = "host" + std::to_string(hosts[static_cast<size_t>(rank)]);
        plan.ranks.push_back({std::to_string(rank), host, ""});
      }
    }
  }
  plan.owners = even_ownership(plan, small_model());
  return plan;
}

CodecSpec factors_of_rank(int rank, CodecValues values = CodecValues::kFp32) {
  return {.kind = CodecKind::kPowerSgd, .rank = rank, .values = values};
}

/// Every tensor's elements, in the model's order.
using Tensors = std::map<std::string, std::vector<double>>;

Tensors zeros() {
  Tensors all;
  for (const LogicalTensor& tensor : logical_tensors(small_model()))
    all[tensor.name].resize(static_cast<size_t>(tensor.elements()));
  return all;
}

/// A number of this element's own, around 0.
float some_number(int64_t rank, int64_t step, int64_t number, int64_t index) {
  uint64_t state = static_cast<uint64_t>(((rank * 31 + step) * 31 + number) * 1000003 + index);
  state = (state + 1) * 0x9E3779B97F4A7C15ULL;
  state = (state ^ (state >> 31)) * 0xD6E8FEB86659FD93ULL;
  return static_cast<float>(state >> 40) / static_cast<float>(1 << 23) - 1;
}

using Gradient = std::function<float(int rank, int step, int64_t tensor, int64_t index)>;

/// Calls body(flat tensor, its number, offset in the rank's buffer, index in the tensor) for what a
/// rank holds.
template <class Body>
void each_held(const Plan& plan, int rank, Body body) {
  const ParameterLayout layout = layout_of(plan, small_model(), Rank(rank));
  const std::vector<LogicalTensor> tensors = logical_tensors(small_model());
  for (size_t number = 0; number < tensors.size(); ++number)
    if (const FlatTensor* flat = layout.find(tensors[number].name))
      for (const CopyRun& run : copy_runs(flat->slice, whole(tensors[number].shape)))
        for (int64_t i = 0; i < run.count; ++i)
          body(*flat, static_cast<int64_t>(number), flat->offset + run.from_offset + i,
               run.to_offset + i);
}

/// What the owners have of a buffer, into `all`.
void put_owned(const Plan& plan, int rank, std::span<const float> buffer, Tensors* all) {
  const ParameterLayout layout = layout_of(plan, small_model(), Rank(rank));
  for (const Ownership& owned : plan.owners) {
    if (owned.owner.value() != rank) continue;
    const FlatTensor& flat = *layout.find(owned.tensor);
    std::vector<float> own(static_cast<size_t>(owned.slice.elements()));
    for (const CopyRun& run : copy_runs(flat.slice, owned.slice))
      std::copy_n(buffer.begin() + flat.offset + run.from_offset, run.count,
                  own.begin() + run.to_offset);
    for (const CopyRun& run : copy_runs(owned.slice, whole(flat.tensor.shape)))
      std::copy_n(own.begin() + run.from_offset, run.count,
                  (*all)[owned.tensor].begin() + run.to_offset);
  }
}

/// What some steps of a plan came to.
struct Steps {
  std::vector<Tensors> wanted, sums, lost;  ///< by step; lost: residuals after it
  bool same_bits = true;                    ///< at all who hold an element
  int64_t bytes_sent = 0;
};

Result<Unit> sum_staged(SliceExchange& slices, std::vector<float>& buffer) {
  testing::ForeignDevice device;
  MemoryAccount account;
  const auto bytes = std::as_writable_bytes(std::span(buffer));
  MOTLEY_TRY(SharedMemory memory,
             SharedMemory::allocate(device, Bytes(static_cast<int64_t>(bytes.size())), account));
  MOTLEY_TRY_VOID(memory.have_view());
  MOTLEY_TRY_VOID(device.enqueue_copy_in(memory.device(), bytes));
  StagedView staged(device, memory, sizeof(float));
  std::memset(memory.host().data(), 0xFF, memory.host().size());
  staged.begin();
  MOTLEY_TRY_VOID(
      slices.sum({values<float>(memory.host(), Bytes(0), std::ssize(buffer)), {}, {}, &staged}));
  staged.end();
  return device.copy_out(bytes, memory.device());
}

class SomeSteps {
 public:
  SomeSteps(const Plan& plan, int count, bool staged = false)
      : plan_(plan), count_(count), staged_(staged) {}
  /// Whose GPUs have summed within these islands before, and get their speaker's result after.
  SomeSteps(const Plan& plan, int count, const DeviceIslands& islands)
      : plan_(plan), count_(count), islands_(islands) {}

  Steps sum(const Gradient& gradient) {
    Steps steps;
    buffers_.resize(static_cast<size_t>(plan_.world_size()));
    const auto done = run_inproc(plan_.world_size(), [&](Communicator& world) -> Result<Unit> {
      MemoryAccount account;
      MOTLEY_TRY(const auto slices,
                 SliceExchange::open(plan_, small_model(), world, kFloats, account, islands_));
      EXPECT_EQ(
          account.held(MemoryUse::kExchange),
          slice_exchange_needs(plan_, small_model(), Rank(world.rank()), kFloats, islands_).bytes);
      for (int step = 0; step < count_; ++step)
        MOTLEY_TRY_VOID(one_step(*slices, world, step, gradient, &steps));
      int64_t bytes = slices->bytes_sent();
      MOTLEY_TRY_VOID(world.all_reduce_sum(std::span(&bytes, 1)));
      if (world.rank() == 0) steps.bytes_sent = bytes;
      return Unit{};
    });
    EXPECT_TRUE(done) << done.error().to_string();
    return steps;
  }

 private:
  static constexpr ElementBytes kFloats{sizeof(float), sizeof(float)};

  Result<Unit> one_step(SliceExchange& slices, Communicator& world, int step,
                        const Gradient& gradient, Steps* steps) {
    const int rank = world.rank();
    std::vector<float>& buffer = buffers_[static_cast<size_t>(rank)];
    buffer.resize(static_cast<size_t>(layout_of(plan_, small_model(), Rank(rank)).elements()));
    const std::vector<int>* island = islands_.of(rank);
    each_held(plan_, rank, [&](const FlatTensor&, int64_t number, int64_t at, int64_t index) {
      float& sum = buffer[static_cast<size_t>(at)];
      sum = 0;
      for (const int member : island == nullptr ? std::vector{rank} : *island)
        sum += gradient(member, step, number, index);
    });
    if (slices.has_gradients())
      MOTLEY_TRY_VOID(staged_ ? sum_staged(slices, buffer) : slices.sum({buffer, {}, {}}));
    if (slices.compresses()) MOTLEY_TRY_VOID(slices.gather_residuals());
    MOTLEY_TRY_VOID(world.barrier());
    if (rank == 0) {
      for (const std::vector<int>& members : islands_.all())
        for (const int member : members)
          buffers_[static_cast<size_t>(member)] = buffers_[static_cast<size_t>(members.front())];
      steps->wanted.push_back(wanted(step, gradient));
      steps->sums.push_back(zeros());
      steps->lost.push_back(zeros());
      for (int other = 0; other < world.size(); ++other)
        put_owned(plan_, other, buffers_[static_cast<size_t>(other)], &steps->sums.back());
      steps->same_bits =
          steps->same_bits && (plan_.shard_optimizer || all_hold(steps->sums.back()));
    }
    MOTLEY_TRY_VOID(world.barrier());
    std::fill(buffer.begin(), buffer.end(), 0.0F);
    std::copy(slices.residuals().begin(), slices.residuals().end(), buffer.begin());
    MOTLEY_TRY_VOID(world.barrier());
    if (rank == 0)
      for (int other = 0; other < world.size(); ++other)
        put_owned(plan_, other, buffers_[static_cast<size_t>(other)], &steps->lost.back());
    return world.barrier();
  }

  Tensors wanted(int step, const Gradient& gradient) const {
    Tensors sums = zeros();
    for (int rank = 0; rank < plan_.world_size(); ++rank)
      each_held(plan_, rank, [&](const FlatTensor& flat, int64_t number, int64_t, int64_t index) {
        if (flat.counted)
          sums[flat.tensor.name][static_cast<size_t>(index)] +=
              double{gradient(rank, step, number, index)};
      });
    return sums;
  }

  bool all_hold(const Tensors& sums) const {
    int64_t others = 0;
    for (int rank = 0; rank < plan_.world_size(); ++rank)
      each_held(plan_, rank, [&](const FlatTensor& flat, int64_t, int64_t at, int64_t index) {
        others += double{buffers_[static_cast<size_t>(rank)][static_cast<size_t>(at)]} !=
                  sums.at(flat.tensor.name)[static_cast<size_t>(index)];
      });
    return others == 0;
  }

  const Plan& plan_;
  const int count_;
  const bool staged_ = false;
  const DeviceIslands islands_;
  std::vector<std::vector<float>> buffers_;
};

double largest(const std::vector<double>& values) {
  double most = 0;
  for (const double value : values) most = std::max(most, std::abs(value));
  return most;
}

/// Of `steps`: what came out and what is kept is what went in and what was kept. The names of the
/// tensors of which anything was kept.
std::set<std::string> expect_nothing_lost(const Steps& steps) {
  std::set<std::string> kept;
  Tensors before = zeros();
  for (size_t step = 0; step < steps.sums.size(); ++step) {
    for (const auto& [name, sum] : steps.sums[step]) {
      const std::vector<double>& lost = steps.lost[step].at(name);
      std::vector<double> missing = steps.wanted[step].at(name);
      for (size_t i = 0; i < sum.size(); ++i) missing[i] += before[name][i] - sum[i] - lost[i];
      EXPECT_LE(largest(missing), 1e-4) << name << " in step " << step;
      if (largest(lost) > 1e-4) kept.insert(name);
    }
    before = steps.lost[step];
  }
  EXPECT_TRUE(steps.same_bits);
  return kept;
}

float any_gradient(int rank, int step, int64_t tensor, int64_t index) {
  return some_number(rank, step, tensor, index);
}

const std::vector<std::vector<Part>> kFourWhole = {{{3}}, {{3}}, {{3}}, {{3}}};

TEST(FactoredSums, WhatIsNotSentIsKept) {
  const std::pair<std::vector<int>, CodecValues> cases[] = {{{0, 0, 1, 1}, CodecValues::kFp32},
                                                            {{0, 0, 0, 1}, CodecValues::kFp16},
                                                            {{0, 1, 2, 3}, CodecValues::kFp32},
                                                            {{0, 1, 0, 2}, CodecValues::kBf16}};
  for (const auto& [hosts, values] : cases)
    for (const bool sharded : {false, true}) {
      Plan plan = factored_plan(kFourWhole, hosts, factors_of_rank(2, values));
      plan.shard_optimizer = sharded;
      const std::set<std::string> kept = expect_nothing_lost(SomeSteps(plan, 3).sum(any_gradient));
      EXPECT_EQ(kept, names_of(factored_tensors(plan, small_model())));
      EXPECT_TRUE(kept.contains("block.0.mlp.up.weight"));
      EXPECT_TRUE(kept.contains("embed.token.weight"));
      EXPECT_FALSE(kept.contains("block.0.mlp.up.bias"));
    }
}

TEST(FactoredSums, OfDevicesWithMemoryOfTheirOwn) {
  const Plan plan = factored_plan(kFourWhole, {0, 0, 1, 1}, factors_of_rank(2));
  const Steps at_host = SomeSteps(plan, 2).sum(any_gradient);
  EXPECT_EQ(SomeSteps(plan, 2, true).sum(any_gradient).sums, at_host.sums);
}

TEST(FactoredSums, OfIslandsAreTheirSpeakers) {
  const Plan plan = factored_plan(kFourWhole, {0, 0, 1, 1}, factors_of_rank(2));
  const DeviceIslands two({{0, 1}, {2, 3}});
  for (const FactoredTensor& tensor : factored_tensors(plan, small_model(), two))
    EXPECT_EQ(tensor.ranks, (std::vector{0, 2})) << tensor.name;
  EXPECT_FALSE(expect_nothing_lost(SomeSteps(plan, 2, two).sum(any_gradient)).empty());
}

/// The sum of all is of rank 2, whatever each one has.
TEST(FactoredSums, AreExactWhereTheRankSuffices) {
  const std::vector<LogicalTensor> tensors = logical_tensors(small_model());
  const Gradient gradient = [&](int rank, int step, int64_t tensor, int64_t index) {
    const int64_t columns = tensors[static_cast<size_t>(tensor)].shape.back();
    double sum = 0;
    for (int k = 0; k < 2; ++k)
      sum += double{some_number(k, step, tensor, index / columns)} *
             double{some_number(k + 2, step, tensor, index % columns)};
    const float own = some_number(rank, step, tensor, index);
    const float next = some_number((rank + 1) % 4, step, tensor, index);
    return static_cast<float>(sum / 4) + own - next;
  };
  const Plan plan = factored_plan(kFourWhole, {0, 0, 1, 1}, factors_of_rank(2));
  const Steps steps = SomeSteps(plan, 1).sum(gradient);
  for (const auto& [name, sum] : steps.sums[0]) {
    std::vector<double> error = steps.wanted[0].at(name);
    for (size_t i = 0; i < sum.size(); ++i) error[i] -= sum[i];
    EXPECT_LE(largest(error), 1e-3 * largest(sum)) << name;
  }
}

TEST(FactoredSums, WhatIsCutIsSummedAsItIs) {
  const std::vector<std::vector<Part>> cut = {{{3}}, {{1}, {2}}, {{2, {0.75, 0.25}}, {1}}};
  const Plan plan = factored_plan(cut, {0, 0, 1, 1, 2, 2}, factors_of_rank(1));
  const std::set<std::string> kept = expect_nothing_lost(SomeSteps(plan, 2).sum(any_gradient));
  EXPECT_EQ(kept, names_of(factored_tensors(plan, small_model())));
  EXPECT_FALSE(kept.contains("block.0.mlp.up.weight"));
  const std::vector<std::vector<Part>> stages = {{{3}}, {{1}, {2}}, {{2}, {1}}};
  const Plan uncut = factored_plan(stages, {0, 0, 1, 1, 2}, factors_of_rank(1));
  const std::set<std::string> all = expect_nothing_lost(SomeSteps(uncut, 2).sum(any_gradient));
  EXPECT_TRUE(all.contains("block.0.mlp.up.weight"));
  EXPECT_TRUE(all.contains("embed.token.weight")) << "which two stages hold";
}

TEST(FactoredSums, AreForSlowLinksAlone) {
  Plan plan = factored_plan(kFourWhole, {0, 0, 1, 1}, factors_of_rank(2));
  plan.links = {{{"host0", "host1"}, 1e-4, 1e9}};
  const int64_t shortened = SomeSteps(plan, 1).sum(any_gradient).bytes_sent;
  plan.compression.below_bytes_per_second = 1e8;
  EXPECT_TRUE(factored_tensors(plan, small_model()).empty());
  const Steps fast = SomeSteps(plan, 1).sum(any_gradient);
  EXPECT_TRUE(expect_nothing_lost(fast).empty());
  EXPECT_LT(2 * shortened, fast.bytes_sent);
  const Plan within = factored_plan(kFourWhole, {0, 0, 0, 0}, factors_of_rank(2));
  EXPECT_TRUE(factored_tensors(within, small_model()).empty());
}

}  // namespace
}  // namespace motley
