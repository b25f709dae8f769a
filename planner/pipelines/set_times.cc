#include "planner/pipelines/set_times.h"

#include <algorithm>
#include <numeric>

#include "planner/pipelines/pipeline_space.h"
#include "planner/pipelines/set_cut_search.h"

namespace motley {
namespace {

/// Bytes of all cuts that are kept.
constexpr int64_t kMostKept = 256 << 20;
/// Of more sets, times layers, those are cut that may be used.
constexpr size_t kManySets = 20'000;

/// Of the numbers above `low` up to `high` the one that most searches come by: what is made for one
/// of them serves others.
int roundest(int low, int high) {
  int step = 1;
  while (high / (2 * step) * 2 * step > low) step *= 2;
  return high / step * step;
}

/// Sets of few devices, times layers.
constexpr size_t kManySetsOfFew = 1'000;

/// Of how many grains one may be too many.
constexpr int kNearEnough = 32;

}  // namespace

SetTimes::SetTimes(const PipelineCosts& costs, std::vector<GroupCounts> sets,
                   std::vector<int> micro_batches, bool few)
    : costs_(costs),
      roughly_(few && sets.size() * static_cast<size_t>(costs.layers()) > kManySetsOfFew),
      many_(sets.size() * static_cast<size_t>(costs.layers()) > kManySets),
      lattice_(costs_, std::move(sets)),
      micro_batches_(std::move(micro_batches)),
      known_(micro_batches_.size()) {
  find_forms();
  proved_.resize(count());
  asked_.resize(count(), false);
  costs_.take_least_for_rests();
  costs_.take_quickest_ways();
  for (size_t set = 0; set < count(); ++set)
    per_sample_.push_back(costs_.least_seconds(devices(set), 1));
  find_rates();
  for (const std::vector<double>& rates : rates_) {
    std::vector<size_t>& groups = quickest_first_.emplace_back(rates.size());
    std::iota(groups.begin(), groups.end(), size_t{0});
    std::stable_sort(groups.begin(), groups.end(),
                     [&](size_t a, size_t b) { return rates[a] > rates[b]; });
  }
}

void SetTimes::find_forms() {
  for (size_t set = 0; set < lattice_.count(); ++set) {
    for (int group = 0; group < costs_.groups(); ++group)
      if (lattice_.is(set, group)) forms_.push_back({set, 1, group});
    for (int stages = std::max(2, lattice_.least_stages(set)); stages <= lattice_.size(set);
         ++stages)
      forms_.push_back({set, stages, -1});
  }
}

double SetTimes::cut_seconds(size_t set, size_t size, int samples) {
  std::vector<double>& known = known_[size][samples].seconds;
  known.resize(count(), kUnknown);
  if (known[set] != kUnknown) return known[set];
  const int64_t nanos = least(&cuts(size, samples), set);
  return known[set] = nanos < SetCuts::kTooLong ? seconds_of(Nanos(nanos)) : kNever;
}

int64_t SetTimes::least(SetCuts* cuts, size_t set) {
  const int64_t before = cuts->cut(), bytes = cuts->bytes();
  const int64_t nanos = cuts->least(base(set), stages(set));
  kept_ += cuts->bytes() - bytes;
  nodes_ += cuts->cut() - before;
  return nanos;
}

double SetTimes::rough_seconds(size_t set, int samples) const {
  double least = kNever;
  for (size_t size = 0; size < micro_batches_.size() && micro_batches_[size] <= samples; ++size)
    least = std::min(least, filled_least(size, set, samples));
  // Of a single micro-batch that is not full no more is known.
  const auto whole = std::lower_bound(micro_batches_.begin(), micro_batches_.end(), samples);
  if (whole != micro_batches_.end() && *whole > samples) least = 0;
  return std::max(least, per_sample_[set] * samples);
}

/// Where they are too many to be kept all are made anew.
SetCuts& SetTimes::cuts(size_t size, int samples) {
  std::unique_ptr<SetCuts>& own = known_[size][samples].cuts;
  if (own != nullptr) return *own;
  if (kept_ > kMostKept) {
    for (std::map<int, Known>& of_size : known_)
      for (auto& [count, known] : of_size) known.cuts.reset();
    kept_ = 0;
  }
  own = std::make_unique<SetCuts>(costs_, lattice_, micro_batches_[size], samples);
  kept_ += own->bytes();
  return *own;
}

/// Fewer samples of a last micro-batch may have been measured to take longer.
double SetTimes::whole_seconds(int group, int micro_batch, int samples) const {
  const PipelineStage all{group, 0, costs_.layers() - 1};
  if (!costs_.fits(all, micro_batch, 1)) return kNever;
  double least = kNever;
  const int up_to = (samples + micro_batch - 1) / micro_batch * micro_batch;
  for (int more = samples; more <= up_to; ++more)
    least = std::min(least, costs_.seconds({{all}, micro_batch}, more));
  return least;
}

double SetTimes::least_of_whole(size_t set, int samples) {
  const auto [found, is_new] = of_whole_.try_emplace({set, samples}, kNever);
  if (!is_new) return found->second;
  const int group = forms_[set].group;
  if (!costs_.priced(group)) return kNever;
  for (const int micro_batch : micro_batches_) {
    found->second = std::min(found->second, whole_seconds(group, micro_batch, samples));
    if (micro_batch >= samples) break;
  }
  return found->second;
}

/// Micro-batches that each group computes in a second at most, if all were of layers that it is
/// best at: by prices for the three kinds of layers, which are the times of some group.
void SetTimes::find_rates() {
  if (lattice_.may_share()) return;
  const int last = costs_.layers() - 1;
  int prices = 0;
  while (prices + 1 < costs_.groups() && !costs_.priced(prices)) ++prices;
  for (const int micro_batch : micro_batches_) {
    std::vector<double>& rates = rates_.emplace_back();
    for (int group = 0; group < costs_.groups(); ++group) {
      double work = 0, best = 0;
      for (const int layer : {0, 1, last}) {
        if (!costs_.priced(group)) continue;
        const PassSeconds price = costs_.pass({prices, layer, layer}, micro_batch);
        const PassSeconds own = costs_.pass({group, layer, layer}, micro_batch);
        work += (layer == 1 ? last - 1 : 1) * (price.forward + price.backward);
        best = std::max(best, (price.forward + price.backward) / (own.forward + own.backward));
      }
      rates.push_back(work > 0 ? best / work : 0);
    }
  }
}

/// Each stage works c micro-batches and waits for one of all stages before it, so that of n alike
/// it works 1, 1 - 1/c, (1 - 1/c)², … of what the first does, at most; the quickest come first.
double SetTimes::filled_least(size_t size, size_t set, int samples) const {
  const int full = samples / micro_batches_[size];
  if (full == 0) return 0;
  // How many stages of these devices there are is not known.
  if (lattice_.may_share()) return per_sample_[set] * full * micro_batches_[size];
  double sum = 0, part = 1;
  for (const size_t group : quickest_first_[size])
    for (int i = 0; i < lattice_.sets()[set][group]; ++i) {
      sum += part * rates_[size][group];
      part *= 1 - 1.0 / full;
    }
  return sum > 0 ? full / sum : 0;
}

/// Fewer full micro-batches take no longer; of as many as stages have in flight and more, no less
/// than in proportion, as what comes before and after the work of a stage does not grow with them.
double SetTimes::known_least(size_t size, size_t set, int samples) const {
  const std::map<int, Known>& known = known_[size];
  const int micro_batch = micro_batches_[size];
  const auto seconds = [&](const Known& of) {
    return of.seconds.empty() ? kUnknown : of.seconds[set];
  };
  const auto next = known.lower_bound(samples);
  if (next != known.end() && next->first == samples && seconds(next->second) != kUnknown)
    return seconds(next->second);
  double least = filled_least(size, set, samples);
  if (next != known.begin()) least = std::max(least, seconds(std::prev(next)->second));
  const int full = samples / micro_batch;
  if (next != known.end() && full >= kMostStages) {
    const int more = (next->first + micro_batch - 1) / micro_batch;
    least = std::max(least, seconds(next->second) * full / more);
  }
  return least;
}

const std::vector<std::pair<double, size_t>>& SetTimes::likely(size_t set, int samples,
                                                               double limit) {
  likely_.clear();
  for (size_t size = 0; size < micro_batches_.size(); ++size) {
    const double least = known_least(size, set, samples);
    if (least <= limit) likely_.emplace_back(least, size);
    if (micro_batches_[size] >= samples) break;
  }
  std::sort(likely_.begin(), likely_.end());
  return likely_;
}

/// What was proved of as many samples or fewer.
double SetTimes::proved(size_t set, int samples) const {
  const auto next = proved_[set].upper_bound(samples);
  return next == proved_[set].begin() ? 0 : std::prev(next)->second;
}

double SetTimes::seconds(size_t set, int samples) {
  if (!is_wanted(set)) return kNever;
  if (is_one_stage(set)) return least_of_whole(set, samples);
  if (roughly_) return std::max(rough_seconds(set, samples), proved(set, samples));
  double least = kNever;
  for (const auto& [bound, size] : likely(set, samples, kNever)) {
    if (bound >= least) break;
    least = std::min(least, cut_seconds(set, size, samples));
  }
  return std::max(least, proved(set, samples));
}

bool SetTimes::within(size_t set, int samples, double limit) {
  if (is_one_stage(set)) return least_of_whole(set, samples) <= limit;
  if (proved(set, samples) > limit) return false;
  if (roughly_) return rough_seconds(set, samples) <= limit;
  for (size_t size = 0; size < micro_batches_.size(); ++size) {
    const auto more = known_[size].lower_bound(samples);
    if (more != known_[size].end() && !more->second.seconds.empty() &&
        more->second.seconds[set] != kUnknown && more->second.seconds[set] <= limit)
      return true;
    if (micro_batches_[size] >= samples) break;
  }
  for (const auto& [bound, size] : likely(set, samples, limit))
    if (cut_seconds(set, size, samples) <= limit) return true;
  return false;
}

std::optional<Pipeline> SetTimes::prove(size_t set, int samples, int64_t most_nodes) {
  if (is_one_stage(set) || proved_[set].contains(samples)) return std::nullopt;
  PipelineCut best;
  double unproved = kNever;
  for (const auto& [bound, size] : likely(set, samples, kNever)) {
    if (bound >= best.seconds) break;
    SetCuts& those = cuts(size, samples);
    const double least = seconds_of(Nanos(this->least(&those, set)));
    if (least >= best.seconds) continue;
    PipelineCut cut = best_cut_of_set({costs_, lattice_, those, micro_batches_[size], samples},
                                      base(set), stages(set), best.seconds, most_nodes);
    nodes_ += cut.nodes;
    if (!cut.proved) unproved = std::min(unproved, least);
    if (cut.seconds < best.seconds) best = std::move(cut);
  }
  proved_[set].emplace(samples, std::min(best.seconds, unproved));
  for (auto& [limit, grains] : within_) grains[set].reset();
  if (best.pipeline.stages.empty()) return std::nullopt;
  return std::move(best.pipeline);
}

/// Numbers of replicas that are bounded one after another ask for the same times.
int SetTimes::grains_within(size_t set, const GrainLimit& limit) {
  auto& known = within_[{limit.seconds, limit.missing}];
  known.resize(count());
  if (!known[set]) known[set] = find_grains_within(set, limit);
  asked_[set] = true;
  return *known[set];
}

int SetTimes::grains_at_most(size_t set, const GrainLimit& limit) {
  if (!many_) return grains_within(set, limit);
  const auto known = within_.find({limit.seconds, limit.missing});
  if (known != within_.end() && known->second[set]) return *known->second[set];
  return most_grains(set, limit);
}

/// By what it computes alone.
int SetTimes::most_grains(size_t set, const GrainLimit& limit) const {
  if (stages(set) > costs_.layers() || !is_wanted(set)) return 0;
  if (per_sample_[set] <= 0) return limit.most;
  const double samples = limit.seconds / per_sample_[set] * (1 + 1e-9) + limit.missing;
  return static_cast<int>(std::min<double>(limit.most, samples / limit.grain));
}

int SetTimes::find_grains_within(size_t set, const GrainLimit& limit) {
  int low = 0, high = most_grains(set, limit);  // low is within
  // Of many no more is known than that there are no more: each number costs cuts of all sets.
  while (high - low > high / kNearEnough) {
    const int middle = roundest(low, high);
    if (within(set, middle * limit.grain - limit.missing, limit.seconds))
      low = middle;
    else
      high = middle - 1;
  }
  return high;
}

std::vector<Pipeline> SetTimes::pipelines(size_t set, int samples, double limit) {
  std::vector<Pipeline> pipelines;
  for (size_t size = 0; !is_one_stage(set) && size < micro_batches_.size(); ++size) {
    const auto found = known_[size].find(samples);
    if (found == known_[size].end() || found->second.seconds.empty()) continue;
    const double seconds = found->second.seconds[set];
    if (seconds == kUnknown || seconds > limit || seconds == kNever) continue;
    Pipeline& pipeline = pipelines.emplace_back();
    pipeline.micro_batch = micro_batches_[size];
    int first = 0;
    SetCuts& those = cuts(size, samples);
    least(&those, set);  // it may have been cut before all were made anew
    for (const CutStage& stage : those.stages(base(set))) {
      pipeline.stages.push_back({stage.group, first, first + stage.layers - 1});
      first += stage.layers;
    }
  }
  return pipelines;
}

}  // namespace motley
