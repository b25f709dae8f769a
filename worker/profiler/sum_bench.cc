#include "worker/profiler/sum_bench.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <functional>
#include <set>

#include "comm/link_probe.h"
#include "core/median.h"

namespace motley {
namespace {

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// The ranks of this rank's group at a level; empty: it has no part in it.
std::vector<int> ranks_at(const std::string& level, const std::vector<std::string>& hosts,
                          int rank) {
  std::vector<int> ranks;
  std::set<std::string> seen;
  for (size_t other = 0; other < hosts.size(); ++other) {
    const bool first = seen.insert(hosts[other]).second;
    const bool same = hosts[other] == hosts[static_cast<size_t>(rank)];
    if (level == "world" || (level == "host" && same) || (level == "across" && first))
      ranks.push_back(static_cast<int>(other));
  }
  if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) ranks.clear();
  return ranks;
}

std::vector<std::string> levels_of(const std::vector<std::string>& hosts) {
  const std::set<std::string> different(hosts.begin(), hosts.end());
  if (hosts.size() == 1) return {};
  if (different.size() == 1 || different.size() == hosts.size()) return {"world"};
  return {"host", "across", "world"};
}

/// Small integers: their sums are exact in any order.
float element_of(int rank, size_t i) {
  return static_cast<float>((i + static_cast<size_t>(rank)) % 17);
}

class SumBench {
 public:
  /// `clock` paces all groups alike: those of a level begin together.
  static Result<SumBench> open(Communicator& world, std::unique_ptr<Communicator> group,
                               const std::vector<std::string>& hosts,
                               const std::vector<LinkProfile>& links, int64_t bytes,
                               const CodecSpec& codec) {
    SumBench bench(world, std::move(group), bytes);
    if (bench.group_ == nullptr) return bench;
    const std::vector<int> all = bench.all_ranks();
    const Islands islands = islands_of(hosts, links);
    ReductionOptions options;
    options.compression.codec = codec;
    const ReductionPlan plan =
        plan_reduction({{all, all, std::nullopt, bench.count()}}, islands, sizeof(float), options);
    if (plan.compressed()) bench.received_.resize(bench.values_.size());
    MOTLEY_TRY(bench.reducer_,
               bench.group_->open_reducer(plan, islands,
                                          {{{.offset = 0, .count = bench.count(), .at = 0}}}));
    return bench;
  }

  Result<double> sum_once() {
    const int rank = group_ ? group_->rank() : 0;
    for (size_t i = 0; i < values_.size(); ++i) values_[i] = element_of(rank, i);
    MOTLEY_TRY_VOID(world_.barrier());
    const double start = seconds_now();
    if (group_) {
      MOTLEY_TRY_VOID(
          reducer_->begin(std::as_writable_bytes(std::span(values_)), SumType::kFloat32));
      MOTLEY_TRY_VOID(reducer_->wait());
    }
    auto nanoseconds = static_cast<int64_t>((seconds_now() - start) * 1e9);
    MOTLEY_TRY_VOID(world_.all_reduce_max(std::span(&nanoseconds, 1)));
    check();  // when all have theirs: ranks may share cores
    return static_cast<double>(nanoseconds) * 1e-9;
  }

  /// After the last sum. Collective in the group.
  Result<int64_t> errors() {
    if (group_ && !received_.empty()) MOTLEY_TRY_VOID(check_what_was_kept_back());
    return errors_;
  }

 private:
  SumBench(Communicator& world, std::unique_ptr<Communicator> group, int64_t bytes)
      : world_(world),
        group_(std::move(group)),
        values_(std::max<size_t>(1, static_cast<size_t>(bytes) / sizeof(float))) {}

  int64_t count() const { return static_cast<int64_t>(values_.size()); }
  std::vector<int> all_ranks() const {
    std::vector<int> ranks;
    for (int rank = 0; rank < group_->size(); ++rank) ranks.push_back(rank);
    return ranks;
  }
  void check() {
    if (!group_) return;
    const std::array<float, 17> wanted = wanted_sums();
    ++sums_;
    if (!received_.empty()) {
      for (size_t i = 0; i < values_.size(); ++i) received_[i] += static_cast<double>(values_[i]);
      return;
    }
    for (size_t i = 0; i < values_.size(); ++i)
      if (values_[i] != wanted[i % wanted.size()]) ++errors_;
  }
  /// Compressed sums are not exact one by one, but together with what is left of them.
  Result<Unit> check_what_was_kept_back() {
    constexpr double kRounding = 1e-4;  // relative: residuals are rounded to float
    std::fill(values_.begin(), values_.end(), 0.0F);
    reducer_->gather_residuals(values_);
    MOTLEY_TRY_VOID(group_->all_reduce_sum(std::span(values_)));
    const std::array<float, 17> wanted = wanted_sums();
    for (size_t i = 0; i < values_.size(); ++i) {
      const double expected = sums_ * static_cast<double>(wanted[i % wanted.size()]);
      const double found = received_[i] + static_cast<double>(values_[i]);
      if (!(std::abs(found - expected) <= kRounding * (1 + expected))) ++errors_;
    }
    return Unit{};
  }
  std::array<float, 17> wanted_sums() const {
    std::array<float, 17> wanted{};
    for (size_t i = 0; i < wanted.size(); ++i)
      for (int rank = 0; rank < group_->size(); ++rank) wanted[i] += element_of(rank, i);
    return wanted;
  }

  Communicator& world_;
  std::unique_ptr<Communicator> group_;  ///< null: this rank has no part in the level
  std::unique_ptr<Reducer> reducer_;
  std::vector<float> values_;
  std::vector<double> received_;  ///< of all sums; empty: they are not compressed
  int sums_ = 0;
  int64_t errors_ = 0;
};

/// Enough for a steady median, in about a second.
int repetitions_for(double once) {
  return std::clamp(static_cast<int>(1.0 / std::max(once, 1e-6)), 5, 200);
}

Result<SumTimes> bench_size(Communicator& world, const std::string& level,
                            const std::vector<std::string>& hosts,
                            const std::vector<LinkProfile>& links, int64_t bytes,
                            const SumBenchOptions& options) {
  const std::vector<int> ranks = ranks_at(level, hosts, world.rank());
  std::vector<std::string> own_hosts;
  for (const int rank : ranks) own_hosts.push_back(hosts[static_cast<size_t>(rank)]);
  auto group = ranks.empty() ? nullptr : world.group(ranks);
  MOTLEY_TRY(SumBench bench,
             SumBench::open(world, std::move(group), own_hosts, links, bytes, options.codec));
  double once = 0;
  for (int i = 0; i < 2; ++i) {
    MOTLEY_TRY(once, bench.sum_once());  // the same on all ranks
  }
  std::vector<double> seconds;
  const int repetitions = options.repetitions == 0 ? repetitions_for(once) : options.repetitions;
  for (int i = 0; i < repetitions; ++i) {
    MOTLEY_TRY(const double this_time, bench.sum_once());
    seconds.push_back(this_time);
  }
  std::array<int64_t, 2> most = {static_cast<int64_t>(ranks.size()), 0};
  MOTLEY_TRY_VOID(world.all_reduce_max(most));
  MOTLEY_TRY(int64_t errors, bench.errors());
  MOTLEY_TRY_VOID(world.all_reduce_sum(std::span(&errors, 1)));
  return SumTimes{level, static_cast<int>(most[0]), Bytes(bytes), *median(seconds), errors};
}

}  // namespace

Result<std::vector<SumTimes>> bench_sums(Communicator& world, const std::vector<std::string>& hosts,
                                         const SumBenchOptions& options) {
  MOTLEY_TRY(const auto links, probe_links(world, hosts, seconds_now));
  std::vector<SumTimes> rows;
  for (const std::string& level : levels_of(hosts)) {
    if (!options.level.empty() && options.level != level) continue;
    for (const int64_t bytes : options.sizes) {
      MOTLEY_TRY(SumTimes row, bench_size(world, level, hosts, links, bytes, options));
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

}  // namespace motley
