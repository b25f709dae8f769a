#include "tests/contract/coded_reducer_contract.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "comm/reducer.h"

namespace motley::testing {
namespace {

constexpr int64_t kCodedElements = 8'751;

/// An eighth of the usual: several chunks, yet few elements for the sanitizers.
ReductionOptions short_chunks() {
  return {.largest_chunk = Bytes{16 << 10},
          .longest_chunk = Bytes{32 << 10},
          .smallest_chunk = Bytes{4 << 10},
          .smallest_at_home = Bytes{1 << 10},
          .largest_at_home = Bytes{8 << 10}};
}

Islands unlike_links(std::vector<int> of_rank) {
  Islands islands{.of_rank = std::move(of_rank), .bytes_per_second = {}, .latency_seconds = 1e-4};
  const int count = 1 + *std::max_element(islands.of_rank.begin(), islands.of_rank.end());
  for (int i = 0; i < count; ++i) islands.bytes_per_second.push_back(i == 1 ? 25e6 : 125e6);
  return islands;
}

/// Two islands (direct), interleaved, and 3, 2, 1, … (rooted).
std::vector<Islands> coded_shapes(int ranks) {
  if (ranks == 1) return {};
  constexpr int kUneven[] = {0, 0, 0, 1, 1, 2};
  std::vector<int> halves, turns, uneven, each;
  for (int rank = 0; rank < ranks; ++rank) {
    halves.push_back(2 * rank < ranks ? 0 : 1);
    turns.push_back(rank % 2);
    uneven.push_back(kUneven[rank % 6]);
    each.push_back(rank);
  }
  std::vector<Islands> all = {unlike_links(halves), unlike_links(turns), unlike_links(each)};
  if (ranks > 3) all.push_back(unlike_links(uneven));
  return all;
}

const std::vector<CodecSpec>& codecs() {
  static const std::vector<CodecSpec> all = {
      {.kind = CodecKind::kFp16},
      {.kind = CodecKind::kBf16},
      {.kind = CodecKind::kInt8},
      {.kind = CodecKind::kSign},
      {.kind = CodecKind::kTopK, .fraction = 0.05},
      {.kind = CodecKind::kTopK, .fraction = 0.01, .values = CodecValues::kInt8}};
  return all;
}

std::vector<int> everyone(const Communicator& comm) {
  std::vector<int> ranks(static_cast<size_t>(comm.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

/// To all, to one, and between unlike ranks where there are enough.
std::vector<ReductionClass> classes(const Communicator& comm) {
  const std::vector<int> all = everyone(comm);
  const int last = comm.size() - 1;
  std::vector<ReductionClass> some = {{all, all, std::nullopt, kCodedElements},
                                      {all, {last}, last, kCodedElements}};
  if (comm.size() < 3) return some;
  some.push_back({{0, 1}, all, std::nullopt, kCodedElements});
  some.push_back({all, {0, last}, std::nullopt, kCodedElements});
  return some;
}

float coded_element(int rank, int round, int64_t i) {
  const auto mixed = static_cast<uint32_t>((i + 1) * 2654435761LL + rank * 40503LL + round * 977LL);
  return static_cast<float>(static_cast<int32_t>(mixed ^ (mixed >> 15))) * 0x1p-31F;
}

bool is_among(const std::vector<int>& ranks, int rank) {
  return std::find(ranks.begin(), ranks.end(), rank) != ranks.end();
}

/// One rank's part in a class, round by round.
class CodedClass {
 public:
  static Result<CodedClass> open(Communicator& comm, const ReductionClass& one,
                                 const Islands& islands, const CodecSpec& codec) {
    CodedClass coded(comm, one);
    ReductionOptions options = short_chunks();
    options.compression.codec = codec;
    coded.plan_ = plan_reduction({one}, islands, sizeof(float), options);
    MOTLEY_TRY(coded.reducer_, comm.open_reducer(coded.plan_, islands, {coded.runs()}));
    return coded;
  }

  bool takes_part() const { return contributes() || receives(); }
  bool contributes() const { return is_among(class_.contributors, comm_.rank()); }
  bool receives() const { return is_among(class_.receivers, comm_.rank()); }
  const ReductionPlan& plan() const { return plan_; }
  Reducer& reducer() { return *reducer_; }

  std::vector<ElementRun> runs() const {
    if (!takes_part()) return {};
    const int64_t half = kCodedElements / 2;
    return {{.offset = 0, .count = half, .at = 0},
            {.offset = half, .count = kCodedElements - half, .at = half}};
  }

  Result<std::vector<float>> sum(std::vector<float> flat) {
    MOTLEY_TRY_VOID(reducer_->begin(std::as_writable_bytes(std::span(flat)), SumType::kFloat32));
    MOTLEY_TRY_VOID(reducer_->wait());
    return flat;
  }
  Result<std::vector<float>> sum_of_round(int round) {
    std::vector<float> flat(static_cast<size_t>(kCodedElements));
    for (int64_t i = 0; i < kCodedElements && contributes(); ++i)
      flat[static_cast<size_t>(i)] = coded_element(comm_.rank(), round, i);
    return sum(std::move(flat));
  }
  double expected(int round, int64_t i) const {
    double sum = 0;
    for (const int rank : class_.contributors) sum += coded_element(rank, round, i);
    return sum;
  }
  /// Of all ranks.
  Result<std::vector<double>> lost() {
    std::vector<float> mine(static_cast<size_t>(kCodedElements), 0.0F);
    reducer_->gather_residuals(mine);
    std::vector<double> all(mine.begin(), mine.end());
    MOTLEY_TRY_VOID(comm_.all_reduce_sum(std::span(all)));
    return all;
  }

 private:
  CodedClass(Communicator& comm, ReductionClass one) : comm_(comm), class_(std::move(one)) {}

  Communicator& comm_;
  ReductionClass class_;
  ReductionPlan plan_;
  std::unique_ptr<Reducer> reducer_;
};

template <class Body>
Result<Unit> for_all(Communicator& comm, Body body, const std::vector<CodecSpec>& of = codecs()) {
  for (const Islands& islands : coded_shapes(comm.size()))
    for (const ReductionClass& one : classes(comm))
      for (const CodecSpec& codec : of) {
        MOTLEY_TRY(CodedClass coded, CodedClass::open(comm, one, islands, codec));
        MOTLEY_TRY_VOID(body(coded));
      }
  return Unit{};
}

/// What the rounds' sums lack is in the residuals.
Result<Unit> nothing_is_lost(Communicator& comm) {
  constexpr int kRounds = 2;
  return for_all(comm, [&](CodedClass& coded) -> Result<Unit> {
    std::vector<double> had(static_cast<size_t>(kCodedElements), 0.0);
    for (int round = 0; round < kRounds; ++round) {
      MOTLEY_TRY(const std::vector<float> sum, coded.sum_of_round(round));
      for (size_t i = 0; i < sum.size(); ++i) had[i] += static_cast<double>(sum[i]);
    }
    MOTLEY_TRY(const std::vector<double> lost, coded.lost());
    if (!coded.receives()) return Unit{};
    double worst = 0;
    for (int64_t i = 0; i < kCodedElements; ++i) {
      double expected = 0;
      for (int round = 0; round < kRounds; ++round) expected += coded.expected(round, i);
      const auto at = static_cast<size_t>(i);
      worst = std::max(worst, std::abs(had[at] + lost[at] - expected));
    }
    EXPECT_LT(worst, 1e-5 * comm.size());
    return Unit{};
  });
}

Result<Unit> all_receivers_have_the_same_bits(Communicator& comm) {
  return for_all(comm, [&](CodedClass& coded) -> Result<Unit> {
    MOTLEY_TRY_VOID(coded.sum_of_round(0));
    MOTLEY_TRY(const std::vector<float> sum, coded.sum_of_round(1));
    std::string bits;
    if (coded.receives())
      bits.assign(reinterpret_cast<const char*>(sum.data()), sum.size() * sizeof(float));
    MOTLEY_TRY(const std::vector<std::string> all, comm.all_gather(bits));
    for (const std::string& other : all)
      EXPECT_TRUE(bits.empty() || other.empty() || other == bits);
    return Unit{};
  });
}

Result<Unit> as_many_bytes_as_planned(Communicator& comm) {
  for (const Islands& islands : coded_shapes(comm.size()))
    for (const CodecSpec& codec : codecs()) {
      const ReductionClass one{everyone(comm), everyone(comm), std::nullopt, kCodedElements};
      MOTLEY_TRY(CodedClass coded, CodedClass::open(comm, one, islands, codec));
      MOTLEY_TRY_VOID(coded.sum_of_round(0));
      std::vector<int64_t> sent(static_cast<size_t>(islands.count()));
      sent[static_cast<size_t>(islands.of_rank[static_cast<size_t>(comm.rank())])] =
          coded.reducer().bytes_sent();
      MOTLEY_TRY_VOID(comm.all_reduce_sum(std::span(sent)));
      const ReductionPlan plain = plan_reduction({one}, islands, sizeof(float), short_chunks());
      for (int island = 0; island < islands.count(); ++island) {
        EXPECT_EQ(sent[static_cast<size_t>(island)], coded.plan().link_bytes(island).value());
        EXPECT_LT(coded.plan().link_bytes(island), plain.link_bytes(island));
      }
    }
  return Unit{};
}

Result<Unit> residuals_go_to_one_rank_each(Communicator& comm) {
  const auto check = [&](CodedClass& coded) -> Result<Unit> {
    MOTLEY_TRY_VOID(coded.sum_of_round(0));
    MOTLEY_TRY(const std::vector<double> lost, coded.lost());
    std::vector<float> given(lost.begin(), lost.end());
    coded.reducer().restore_residuals(given);
    MOTLEY_TRY(const std::vector<double> again, coded.lost());
    for (size_t i = 0; i < given.size(); ++i)
      if (static_cast<double>(given[i]) != again[i])
        return fail(ErrorCode::kInternal, "another residual at " + std::to_string(i));
    return Unit{};
  };
  return for_all(comm, check, {{.kind = CodecKind::kInt8}, {.kind = CodecKind::kTopK}});
}

/// A sum that is not compressed is whole, and leaves what was kept back as it is.
Result<Unit> codecs_change_between_sums(Communicator& comm) {
  return for_all(comm, [&](CodedClass& coded) -> Result<Unit> {
    CodecSpec codec = coded.plan().parts[0].codec;
    for (int round = 0; round < 4; round += 2) {
      MOTLEY_TRY(const std::vector<double> kept, coded.lost());
      coded.reducer().set_codec({});
      MOTLEY_TRY(const std::vector<float> whole, coded.sum_of_round(round));
      double worst = 0;
      for (int64_t i = 0; i < kCodedElements && coded.receives(); ++i)
        worst = std::max(worst, std::abs(static_cast<double>(whole[static_cast<size_t>(i)]) -
                                         coded.expected(round, i)));
      EXPECT_LT(worst, 1e-6 * comm.size());
      MOTLEY_TRY(const std::vector<double> still_kept, coded.lost());
      EXPECT_EQ(still_kept, kept);
      if (codec.kind == CodecKind::kTopK) codec.fraction = 0.25;
      coded.reducer().set_codec(codec);
      MOTLEY_TRY_VOID(coded.sum_of_round(round + 1));
      MOTLEY_TRY(const std::vector<double> lost, coded.lost());
      EXPECT_NE(lost, kept);
    }
    return Unit{};
  });
}

/// One infinity of one rank: no receiver takes it for a number, and none keeps it.
Result<Unit> what_is_not_finite_is_seen_and_not_kept(Communicator& comm) {
  return for_all(comm, [&](CodedClass& coded) -> Result<Unit> {
    std::vector<float> flat(static_cast<size_t>(kCodedElements), 0.25F);
    if (comm.rank() == 0) flat[4711] = std::numeric_limits<float>::infinity();
    MOTLEY_TRY(const std::vector<float> sum, coded.sum(flat));
    const bool finite =
        std::all_of(sum.begin(), sum.end(), [](float value) { return std::isfinite(value); });
    EXPECT_TRUE(!coded.receives() || !finite);
    MOTLEY_TRY(const std::vector<double> lost, coded.lost());
    EXPECT_TRUE(
        std::all_of(lost.begin(), lost.end(), [](double value) { return std::isfinite(value); }));
    return Unit{};
  });
}

/// One class over fast links alone, one over a slow link: the first is exact to the bit, also for a
/// rank that leads nothing else.
Result<Unit> fast_links_are_left_alone(Communicator& comm) {
  if (comm.size() < 3) return Unit{};
  std::vector<int> of_rank;
  for (int rank = 0; rank < comm.size(); ++rank) of_rank.push_back(std::min(rank, 2));
  const Islands islands{
      .of_rank = of_rank, .bytes_per_second = {1e9, 1e9, 25e6}, .latency_seconds = 1e-4};
  ReductionOptions options = short_chunks();
  options.compression = {.codec = {.kind = CodecKind::kSign}, .below_bytes_per_second = 1e8};
  const ReductionPlan plan = plan_reduction({{{0, 1}, {0, 1}, std::nullopt, kCodedElements},
                                             {{1, 2}, {1, 2}, std::nullopt, kCodedElements}},
                                            islands, sizeof(float), options);
  EXPECT_FALSE(plan.parts[0].compressed());
  EXPECT_TRUE(plan.parts[1].compressed());
  std::vector<std::vector<ElementRun>> runs(2);
  for (size_t part = 0; part < 2; ++part)
    if (plan.parts[part].home_of(comm.rank()) >= 0)
      runs[part] = {{.offset = static_cast<int64_t>(part) * kCodedElements,
                     .count = kCodedElements,
                     .at = 0}};
  MOTLEY_TRY(const auto reducer, comm.open_reducer(plan, islands, runs));
  std::vector<float> flat(static_cast<size_t>(2 * kCodedElements), 0.25F);
  MOTLEY_TRY_VOID(reducer->begin(std::as_writable_bytes(std::span(flat)), SumType::kFloat32));
  MOTLEY_TRY_VOID(reducer->wait());
  if (runs[0].empty()) return Unit{};
  EXPECT_TRUE(std::all_of(flat.begin(), flat.begin() + kCodedElements,
                          [](float value) { return value == 0.5F; }));
  return Unit{};
}

}  // namespace

const std::vector<NamedCheck>& coded_reducer_contract() {
  static const std::vector<NamedCheck> checks = {
      {"CodedReducerLosesNothing", nothing_is_lost},
      {"CodedReducerBits", all_receivers_have_the_same_bits},
      {"CodedReducerLinkBytes", as_many_bytes_as_planned},
      {"CodedReducerResiduals", residuals_go_to_one_rank_each},
      {"CodedReducerOtherCodec", codecs_change_between_sums},
      {"CodedReducerFastLinks", fast_links_are_left_alone},
      {"CodedReducerNotFinite", what_is_not_finite_is_seen_and_not_kept},
  };
  return checks;
}

}  // namespace motley::testing
