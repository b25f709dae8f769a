// Slices longer than a message, however the replicas are cut: the sums are those of adding up all
// counted copies in the documented order, to the bit.

#include "worker/train/slice_exchange.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <map>

#include "core/holdings.h"
#include "tests/unit/worker/engine/foreign_device.h"
#include "worker/program/parameters.h"
#include "worker/train/slice_classes.h"

namespace motley {
namespace {

/// A replica's stages: how many layers, and the shares of the ranks of each.
struct Cut {
  int layers = 0;
  std::vector<double> shares = {1.0};
};
using Replicas = std::vector<std::vector<Cut>>;

ModelSpec model() {
  return {.type = "gpt", .layers = 1, .heads = 4, .width = 256, .context = 8, .vocab = 6001};
}

/// On so many hosts, in turn.
Plan plan_of(const Replicas& replicas, int hosts) {
  Plan plan;
  for (const std::vector<Cut>& cuts : replicas) {
    ReplicaPlan& replica = plan.replicas.emplace_back();
    LayerIndex layer = 0;
    for (const Cut& cut : cuts) {
      StagePlan& stage = replica.stages.emplace_back();
      stage.first_layer = layer;
      stage.last_layer = (layer += cut.layers) - 1;
      stage.shares = cut.shares;
      for (size_t i = 0; i < cut.shares.size(); ++i) {
        stage.ranks.emplace_back(plan.world_size());
        const int rank = plan.world_size();
        plan.ranks.push_back({std::to_string(rank), "host" + std::to_string(rank % hosts), ""});
      }
    }
  }
  plan.owners = even_ownership(plan, model());
  return plan;
}

/// Some number of a rank's own; sums of several depend on their order.
float term(int rank, int64_t tensor, int64_t index) {
  uint64_t state = static_cast<uint64_t>(rank + 1) * 0x9E3779B97F4A7C15ULL +
                   static_cast<uint64_t>(tensor) * 0xBF58476D1CE4E5B9ULL +
                   static_cast<uint64_t>(index) * 0x94D049BB133111EBULL;
  state ^= state >> 31;
  state *= 0xD6E8FEB86659FD93ULL;
  return static_cast<float>(state >> 40) / 4096.0F - 2048.0F;
}
template <class T>
T term_as(int rank, int64_t tensor, int64_t index) {
  return static_cast<T>(term(rank, tensor, index));
}

/// What a rank holds, by where it lies in the logical tensors.
class Held {
 public:
  Held(const Plan& plan, int rank) : layout_(holdings(plan, rank)) {}

  int64_t elements() const { return layout_.elements(); }
  /// body(flat tensor, its number in the model, offset in the buffer, index in the tensor)
  template <class Body>
  void each(Body body) const {
    const auto tensors = logical_tensors(model());
    for (size_t number = 0; number < tensors.size(); ++number) {
      const FlatTensor* flat = layout_.find(tensors[number].name);
      if (flat == nullptr) continue;
      for (const CopyRun& run : copy_runs(flat->slice, whole(tensors[number].shape)))
        for (int64_t i = 0; i < run.count; ++i)
          body(*flat, static_cast<int64_t>(number), flat->offset + run.from_offset + i,
               run.to_offset + i);
    }
  }

 private:
  static std::vector<Holding> holdings(const Plan& plan, int rank) {
    const Role role = role_of(plan, Rank(rank));
    return holdings_of(model(), stage_of(plan, role), role.member);
  }
  ParameterLayout layout_;
};

/// Host by host, in each by rising rank; only counted copies.
template <class T>
std::vector<std::vector<T>> expected_sums(const Plan& plan) {
  std::map<std::string, std::vector<int>> ranks_of;  // hosts are named in the order of their ranks
  for (int rank = 0; rank < plan.world_size(); ++rank)
    ranks_of[plan.ranks[static_cast<size_t>(rank)].host].push_back(rank);
  std::vector<std::vector<T>> sums;
  for (const LogicalTensor& tensor : logical_tensors(model()))
    sums.emplace_back(static_cast<size_t>(tensor.elements()), T{});
  for (const auto& [host, ranks] : ranks_of) {
    std::vector<std::vector<T>> here;
    for (const auto& tensor : sums) here.emplace_back(tensor.size(), T{});
    for (const int rank : ranks)
      Held(plan, rank).each([&](const FlatTensor& flat, int64_t tensor, int64_t, int64_t index) {
        if (flat.counted)
          here[static_cast<size_t>(tensor)][static_cast<size_t>(index)] +=
              term_as<T>(rank, tensor, index);
      });
    for (size_t t = 0; t < sums.size(); ++t)
      for (size_t i = 0; i < sums[t].size(); ++i) sums[t][i] += here[t][i];
  }
  return sums;
}

/// What the ranks of an island have once its GPUs are through.
std::vector<int64_t> sums_of_islands(const Plan& plan, const DeviceIslands& islands, int rank) {
  const std::vector<int>* island = islands.of(rank);
  std::vector<int64_t> sums(static_cast<size_t>(Held(plan, rank).elements()));
  for (const int other : island == nullptr ? std::vector<int>{rank} : *island)
    Held(plan, other).each([&](const FlatTensor&, int64_t tensor, int64_t offset, int64_t index) {
      sums[static_cast<size_t>(offset)] += term_as<int64_t>(other, tensor, index);
    });
  return sums;
}

GradientSpans spans_of(std::span<float> buffer) { return {buffer, {}, {}}; }
GradientSpans spans_of(std::span<int64_t> buffer) { return {{}, {}, buffer}; }

/// Through a device with memory of its own: `buffer` is what it has before and afterwards, and what
/// nobody brings to the host is NaN there.
template <class T>
Result<Unit> exchange_staged(SliceExchange& slices, std::vector<T>& buffer) {
  testing::ForeignDevice device;
  MemoryAccount account;
  const auto bytes = std::as_writable_bytes(std::span(buffer));
  MOTLEY_TRY(SharedMemory memory,
             SharedMemory::allocate(device, Bytes(static_cast<int64_t>(bytes.size())), account));
  MOTLEY_TRY_VOID(memory.have_view());
  MOTLEY_TRY_VOID(device.enqueue_copy_in(memory.device(), bytes));
  StagedView staged(device, memory, sizeof(T));
  for (int step = 0; step < 2; ++step) {
    std::memset(memory.host().data(), 0xFF, memory.host().size());
    GradientSpans spans = spans_of(values<T>(memory.host(), Bytes(0), std::ssize(buffer)));
    spans.staged = &staged;
    if (step > 0) MOTLEY_TRY_VOID(device.copy_in(memory.device(), bytes));
    staged.begin();
    MOTLEY_TRY_VOID(slices.sum(spans));
    staged.end();
  }
  return device.copy_out(bytes, memory.device());
}

template <class T>
void expect_sums(const Replicas& replicas, int hosts, bool staged) {
  const Plan plan = plan_of(replicas, hosts);
  const auto expected = expected_sums<T>(plan);
  const auto done = run_inproc(plan.world_size(), [&](Communicator& world) -> Result<Unit> {
    const Held held(plan, world.rank());
    std::vector<T> buffer(static_cast<size_t>(held.elements()));
    held.each([&](const FlatTensor&, int64_t tensor, int64_t offset, int64_t index) {
      buffer[static_cast<size_t>(offset)] = term_as<T>(world.rank(), tensor, index);
    });
    MemoryAccount account;
    MOTLEY_TRY(const auto slices,
               SliceExchange::open(plan, model(), world, {sizeof(T), sizeof(float)}, account));
    if (staged)
      MOTLEY_TRY_VOID(exchange_staged(*slices, buffer));
    else
      MOTLEY_TRY_VOID(slices->sum(spans_of(std::span(buffer))));
    int64_t wrong = 0;
    held.each([&](const FlatTensor&, int64_t tensor, int64_t offset, int64_t index) {
      const T& sum = expected[static_cast<size_t>(tensor)][static_cast<size_t>(index)];
      wrong += std::memcmp(&sum, &buffer[static_cast<size_t>(offset)], sizeof(T)) != 0 ? 1 : 0;
    });
    EXPECT_EQ(wrong, 0) << "of rank " << world.rank();
    const Bytes needed =
        slice_exchange_needs(plan, model(), Rank(world.rank()), {sizeof(T), sizeof(float)}).bytes;
    EXPECT_EQ(account.held(MemoryUse::kExchange), needed);
    EXPECT_LE(needed, Bytes(16 << 20)) << "though slices are longer than that";
    return Unit{};
  });
  EXPECT_TRUE(done) << done.error().to_string();
}

template <class T>
void expect_sums(const Replicas& replicas) {
  const std::pair<int, bool> hosts_and_staged[] = {{1, true}, {2, false}, {3, true}};
  for (const auto& [hosts, staged] : hosts_and_staged) expect_sums<T>(replicas, hosts, staged);
}

/// What all ranks' residuals come to, tensor by tensor in the model's order, as the owners have
/// them.
Result<std::vector<double>> lost_in_all(SliceExchange& slices, const Plan& plan,
                                        Communicator& world) {
  MOTLEY_TRY_VOID(slices.gather_residuals());
  const Role role = role_of(plan, Rank(world.rank()));
  const ParameterLayout layout(holdings_of(model(), stage_of(plan, role), role.member));
  std::vector<double> lost;
  for (const LogicalTensor& tensor : logical_tensors(model())) {
    const auto first = std::ssize(lost);
    lost.resize(lost.size() + static_cast<size_t>(tensor.elements()), 0.0);
    for (const Ownership& owned : plan.owners) {
      if (owned.tensor != tensor.name || owned.owner != Rank(world.rank())) continue;
      const FlatTensor& flat = *layout.find(tensor.name);
      std::vector<float> own(static_cast<size_t>(owned.slice.elements()));
      for (const CopyRun& run : copy_runs(flat.slice, owned.slice))
        std::copy_n(slices.residuals().begin() + flat.offset + run.from_offset, run.count,
                    own.begin() + run.to_offset);
      for (const CopyRun& run : copy_runs(owned.slice, whole(tensor.shape)))
        std::copy_n(own.begin() + run.from_offset, run.count, lost.begin() + first + run.to_offset);
    }
  }
  MOTLEY_TRY_VOID(world.all_reduce_sum(std::span(lost)));
  return lost;
}

/// Two steps compressed under one cut; the owners' copies of what was lost, given to another.
void expect_residuals_kept(const Replicas& before, const Replicas& after, bool sharded,
                           CodecKind kind = CodecKind::kTopK, CodecKind then = CodecKind::kInt8) {
  Plan one = plan_of(before, 2);
  one.compression.codec = {.kind = kind};
  one.shard_optimizer = sharded;
  Plan other = plan_of(after, 3);
  other.compression.codec = {.kind = then};
  std::vector<double> lost;
  const auto steps = run_inproc(one.world_size(), [&](Communicator& world) -> Result<Unit> {
    const Held held(one, world.rank());
    std::vector<float> buffer(static_cast<size_t>(held.elements()));
    MemoryAccount account;
    MOTLEY_TRY(const auto slices,
               SliceExchange::open(one, model(), world, {sizeof(float), sizeof(float)}, account));
    for (int step = 0; step < 2; ++step) {
      held.each([&](const FlatTensor&, int64_t tensor, int64_t offset, int64_t index) {
        buffer[static_cast<size_t>(offset)] = term(world.rank(), tensor, index);
      });
      MOTLEY_TRY_VOID(slices->sum(spans_of(std::span(buffer))));
    }
    EXPECT_TRUE(slices->compresses());
    const auto needs =
        slice_exchange_needs(one, model(), Rank(world.rank()), {sizeof(float), sizeof(float)});
    EXPECT_EQ(account.held(MemoryUse::kExchange), needs.bytes);
    MOTLEY_TRY(const auto all, lost_in_all(*slices, one, world));
    if (world.rank() == 0) lost = all;
    return Unit{};
  });
  ASSERT_TRUE(steps) << steps.error().to_string();
  EXPECT_GT(std::count_if(lost.begin(), lost.end(), [](double value) { return value != 0; }),
            std::ssize(lost) / 2);
  const auto given = run_inproc(other.world_size(), [&](Communicator& world) -> Result<Unit> {
    MemoryAccount account;
    MOTLEY_TRY(const auto slices,
               SliceExchange::open(other, model(), world, {sizeof(float), sizeof(float)}, account));
    std::vector<int64_t> firsts = {0};
    for (const LogicalTensor& tensor : logical_tensors(model()))
      firsts.push_back(firsts.back() + tensor.elements());
    Held(other, world.rank())
        .each([&](const FlatTensor&, int64_t tensor, int64_t offset, int64_t index) {
          const auto at = static_cast<size_t>(firsts[static_cast<size_t>(tensor)] + index);
          slices->residuals()[static_cast<size_t>(offset)] = static_cast<float>(lost[at]);
        });
    EXPECT_EQ(slices->restore_residuals(), 0);
    MOTLEY_TRY(const auto all, lost_in_all(*slices, other, world));
    EXPECT_EQ(all, lost);
    return Unit{};
  });
  ASSERT_TRUE(given) << given.error().to_string();
}

TEST(SliceExchange, WhatCompressionHasLostGoesToAnyOtherCut) {
  const Replicas whole = {{{3}}, {{3}}};
  const Replicas unlike = {{{3}}, {{1}, {2}}, {{2, {0.75, 0.25}}, {1}}};
  expect_residuals_kept(whole, unlike, false);
  expect_residuals_kept(whole, {{{3}}, {{3}}, {{3}}}, true);
  expect_residuals_kept({{{3}}, {{3}}, {{3}}, {{3}}}, whole, false);
  const CodecKind factors = CodecKind::kPowerSgd;
  expect_residuals_kept(whole, {{{3}}, {{1}, {2}}}, false, factors, factors);
  expect_residuals_kept({{{3}}, {{3}}, {{3}}, {{3}}}, unlike, true, factors);
}

TEST(SliceExchange, OfLikeReplicas) {
  expect_sums<float>({{{3}}, {{3}}});
  expect_sums<float>({{{3}}, {{3}}, {{3}}, {{3}}});
  expect_sums<int64_t>({{{3}}, {{3}}, {{3}}});
}

TEST(SliceExchange, OfUnlikeReplicas) {
  const Replicas replicas = {{{3}}, {{1}, {2}}, {{2, {0.75, 0.25}}, {1, {0.5, 0.5}}}};
  expect_sums<float>(replicas);
  expect_sums<int64_t>(replicas);
}

/// Sums over hosts of what each island's speaker has; how many elements of those asked about are
/// not the sums of all, and bytes on links between hosts.
struct IslandsSummed {
  std::atomic<int64_t> wrong{0}, checked{0}, bytes_sent{0};
};
void sum_islands(const Plan& plan, const DeviceIslands& islands,
                 const std::function<bool(int, const std::string&, int64_t)>& is_due,
                 IslandsSummed* summed) {
  const auto expected = expected_sums<int64_t>(plan);
  const auto done = run_inproc(plan.world_size(), [&](Communicator& world) -> Result<Unit> {
    std::vector<int64_t> buffer = sums_of_islands(plan, islands, world.rank());
    MemoryAccount account;
    MOTLEY_TRY(const auto slices,
               SliceExchange::open(plan, model(), world, {sizeof(int64_t), sizeof(float)}, account,
                                   islands));
    if (slices->has_gradients()) MOTLEY_TRY_VOID(slices->sum(spans_of(std::span(buffer))));
    Held(plan, world.rank())
        .each([&](const FlatTensor& flat, int64_t tensor, int64_t offset, int64_t index) {
          if (!is_due(world.rank(), flat.tensor.name, index)) return;
          ++summed->checked;
          summed->wrong += buffer[static_cast<size_t>(offset)] !=
                           expected[static_cast<size_t>(tensor)][static_cast<size_t>(index)];
        });
    summed->bytes_sent += slices->bytes_sent();
    EXPECT_EQ(account.held(MemoryUse::kExchange),
              slice_exchange_needs(plan, model(), Rank(world.rank()),
                                   {sizeof(int64_t), sizeof(float)}, islands)
                  .bytes);
    return Unit{};
  });
  EXPECT_TRUE(done) << done.error().to_string();
}

/// Four GPUs on two hosts that hold the model each, and two on a third that hold it together.
const Replicas kHybrid = {{{3}}, {{3}}, {{3}}, {{3}}, {{1}, {2}}};
Plan hybrid() {
  Plan plan = plan_of(kHybrid, 1);
  for (int rank = 0; rank < 6; ++rank)
    plan.ranks[static_cast<size_t>(rank)].host = "host" + std::to_string(rank / 2);
  return plan;
}
const DeviceIslands kFourGpus({{0, 1, 2, 3}});

TEST(SliceExchange, OfIslandsTakesOneContributionOfEach) {
  std::vector<bool> speaks;
  for (int rank = 0; rank < hybrid().world_size(); ++rank)
    speaks.push_back(kFourGpus.speakers({rank}) == std::vector<int>{rank});
  const auto at_speakers = [&](int rank, const std::string&, int64_t) {
    return speaks[static_cast<size_t>(rank)];
  };
  IslandsSummed with, without;
  sum_islands(hybrid(), kFourGpus, at_speakers, &with);
  EXPECT_GT(with.checked, 2 * parameter_count(model())) << "of the speaker and the two others";
  EXPECT_EQ(with.wrong, 0);
  sum_islands(hybrid(), {}, at_speakers, &without);
  EXPECT_EQ(without.wrong, 0);
  // One copy to and from the two that hold the model together; and what both of these hold, which
  // counts twice, is the word embedding.
  EXPECT_EQ(with.bytes_sent, 2 * 8 * parameter_count(model()));
  EXPECT_GT(without.bytes_sent, with.bytes_sent + with.bytes_sent / 2) << "three hosts, not two";
}

TEST(SliceExchange, OfIslandsReachesTheOwners) {
  Plan plan = hybrid();
  plan.shard_optimizer = true;
  // By rank, tensor and element.
  std::vector<std::map<std::string, std::vector<bool>>> owned(plan.ranks.size());
  for (const LogicalTensor& tensor : logical_tensors(model()))
    for (const Ownership& owner : plan.owners) {
      if (owner.tensor != tensor.name) continue;
      std::vector<bool>& elements = owned[static_cast<size_t>(owner.owner.value())][tensor.name];
      elements.resize(static_cast<size_t>(tensor.elements()), false);
      for (const CopyRun& run : copy_runs(owner.slice, whole(tensor.shape)))
        std::fill_n(elements.begin() + run.to_offset, run.count, true);
    }
  const auto owns = [&](int rank, const std::string& tensor, int64_t index) {
    const auto& own = owned[static_cast<size_t>(rank)];
    const auto found = own.find(tensor);
    return found != own.end() && found->second[static_cast<size_t>(index)];
  };
  IslandsSummed summed;
  sum_islands(plan, kFourGpus, owns, &summed);
  EXPECT_EQ(summed.checked, parameter_count(model())) << "each has one owner";
  EXPECT_EQ(summed.wrong, 0);
}

TEST(SliceExchange, HasNothingToDoForAnIslandOfAll) {
  for (const bool sharded : {false, true}) {
    Plan plan = plan_of({{{3}}, {{3}}, {{3}}}, 2);
    plan.shard_optimizer = sharded;
    const DeviceIslands all({{0, 1, 2}});
    EXPECT_TRUE(slice_classes(plan, model(), Rank(0), gradient_use(plan), all).classes.empty());
  }
}

TEST(SliceExchange, OfOneReplicaWhoseRanksShareALayer) { expect_sums<float>({{{3, {0.5, 0.5}}}}); }

}  // namespace
}  // namespace motley
