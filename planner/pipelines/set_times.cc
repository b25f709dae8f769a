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

/// What is cut may be more samples than are asked for, and take no longer than so many times that.
/// And packings that take just as long as is of no interest are told from those that do not.
constexpr double kWithProportion = 2;

/// Sets of few devices, times layers.
constexpr size_t kManySetsOfFew = 1'000;

/// Numbers of micro-batches: up to as many as stages each, as fewer are in flight then; from there
/// on so many for each power of two.
int next_looked_at(int count, int stages) {
  constexpr int kOfAPower = 2;
  if (count < stages) return count;
  int step = 1;
  while (2 * kOfAPower * step < count) step *= 2;
  return (count + step - 1) / step * step;
}

/// Of how many grains one may be too many.
constexpr int kNearEnough = 32;

}  // namespace

SetTimes::SetTimes(const PipelineCosts& costs, std::vector<GroupCounts> sets,
                   std::vector<int> micro_batches, bool few, double enough)
    : costs_(costs),
      few_(few),
      enough_(few ? kWithProportion * enough : enough),
      many_(sets.size() * static_cast<size_t>(costs.layers()) > (few ? kManySetsOfFew : kManySets)),
      lattice_(costs_, std::move(sets)),
      micro_batches_(std::move(micro_batches)),
      known_(micro_batches_.size()) {
  find_forms();
  proved_.resize(count());
  asked_.resize(count(), false);
  costs_.rise_with_samples();
  costs_.take_quickest_ways();
  for (size_t set = 0; set < count(); ++set)
    per_sample_.push_back(costs_.least_seconds(devices(set), 1));
  find_rates();
  for (const int micro_batch : micro_batches_) {
    std::vector<double>& parts = part_of_rest_.emplace_back(1, 0.0);
    for (int samples = 1; samples < micro_batch; ++samples)
      parts.push_back(costs_.least_part_of_rest(micro_batch, samples));
    parts.push_back(1);
  }
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
  return known[set] = nanos < SetCuts::kTooLong ? seconds_of(Nanos(nanos)) : enough_;
}

/// Of the first numbers of micro-batches that are no smaller, in proportion, and no larger: what is
/// cut for them serves those in between.
double SetTimes::near_seconds(size_t set, size_t size, int samples) {
  const int micro_batch = micro_batches_[size];
  if (samples < micro_batch) return cut_seconds(set, size, samples);  // less is sent, too
  const int more = next_looked_at(micro_batches_in(size, samples), stages(set));
  double least = cut_seconds(set, size, more * micro_batch) *
                 micro_batches_at_least(set, size, samples) / more;
  int fewer = samples / micro_batch;
  while (fewer > 0 && next_looked_at(fewer, stages(set)) != fewer) --fewer;
  if (fewer > stages(set) && fewer != more)
    least = std::max(least, cut_seconds(set, size, fewer * micro_batch));
  return least;
}

int SetTimes::micro_batches_in(size_t size, int samples) const {
  return (samples + micro_batches_[size] - 1) / micro_batches_[size];
}

/// A last micro-batch that were full would take its way through all stages longer; that is no more
/// than as many times what the slowest takes, which takes as much for each of all micro-batches.
double SetTimes::micro_batches_at_least(size_t set, size_t size, int samples) const {
  const int count = micro_batches_in(size, samples);
  const int rest = samples - (count - 1) * micro_batches_[size];
  const double saved = 1 - part_of_rest_[size][static_cast<size_t>(rest)];
  return count * (1 - saved * std::min(1.0, 1.0 * stages(set) / count));
}

/// From `limit` on of no interest.
double SetTimes::seconds_of_size(size_t set, size_t size, int samples, double limit) {
  if (!is_near_enough()) return cut_seconds(set, size, samples);
  const double near = near_seconds(set, size, samples);
  if (near > limit || samples % micro_batches_[size] == 0) return near;
  return std::max(near, cut_seconds(set, size, samples));
}

int64_t SetTimes::least(SetCuts* cuts, size_t set) {
  const int64_t before = cuts->cut(), bytes = cuts->bytes();
  const int64_t nanos = cuts->least(base(set), stages(set));
  kept_ += cuts->bytes() - bytes;
  nodes_ += cuts->cut() - before;
  return nanos;
}

double SetTimes::seconds_at_least(size_t set, int samples) {
  if (!is_wanted(set)) return kNever;
  if (is_one_stage(set)) return least_of_whole(set, samples);
  double least = kNever;
  for (size_t size = 0; size < micro_batches_.size() && micro_batches_[size] <= samples; ++size)
    least = std::min(least, filled_least(size, set, samples));
  // Of a single micro-batch that is not full no more is known.
  const auto whole = std::lower_bound(micro_batches_.begin(), micro_batches_.end(), samples);
  if (whole != micro_batches_.end() && *whole > samples) least = 0;
  return std::max({least, per_sample_[set] * samples, proved(set, samples)});
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
  const int64_t enough =
      enough_ < kNobodyWaits ? nanos_of_seconds(enough_).value() + 1 : SetCuts::kTooLong;
  own = std::make_unique<SetCuts>(costs_, lattice_, micro_batches_[size], samples, enough);
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
std::vector<double> SetTimes::rates_of_groups(int micro_batch) const {
  const int last = costs_.layers() - 1;
  int prices = 0;
  while (prices + 1 < costs_.groups() && !costs_.priced(prices)) ++prices;
  std::vector<double> rates;
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
  return rates;
}

/// Of devices, so that those that share a stage have no less together than the stage has.
void SetTimes::find_rates() {
  const auto devices = static_cast<size_t>(costs_.device_groups());
  for (const int micro_batch : micro_batches_) {
    const std::vector<double> of_groups = rates_of_groups(micro_batch);
    std::vector<double>& rates = rates_.emplace_back(of_groups);
    rates.resize(devices);
    for (size_t group = devices; group < of_groups.size(); ++group) {
      const std::vector<int>& sharing = costs_.shared_by(static_cast<int>(group));
      const double alone =
          std::inner_product(sharing.begin(), sharing.end(), of_groups.begin(), 0.0);
      for (size_t device = 0; device < devices && alone > 0; ++device)
        if (sharing[device] > 0)
          rates[device] = std::max(rates[device], of_groups[device] * of_groups[group] / alone);
    }
  }
}

/// Each stage works c micro-batches and waits for one of all stages before it, so that of n alike
/// it works 1, 1 - 1/c, (1 - 1/c)², … of what the first does, at most. The quickest devices come
/// first, and with them those that there are besides one of each stage.
double SetTimes::filled_least(size_t size, size_t set, int samples) const {
  const int full = samples / micro_batches_[size];
  if (full == 0) return 0;
  const GroupCounts& devices = this->devices(set);
  const std::vector<double>& rates = rates_[size];
  const double decay = 1 - 1.0 / full;
  double sum = 0, part = 1;
  int shared = this->size(set) - stages(set);
  for (const size_t group : quickest_first_[size])
    for (int i = 0; i < devices[group]; ++i) {
      sum += part * rates[group];
      if (--shared < 0) part *= decay;
    }
  return sum > 0 ? full / sum : 0;
}

/// Where there are more micro-batches than stages have in flight, fewer take no longer, and as many
/// no less than in proportion, as what comes before and after the work of a stage does not grow
/// with them.
double SetTimes::known_least(size_t size, size_t set, int samples) const {
  const std::map<int, Known>& known = known_[size];
  const auto seconds = [&](const Known& of) {
    return of.seconds.empty() ? kUnknown : of.seconds[set];
  };
  const auto next = known.lower_bound(samples);
  if (next != known.end() && next->first == samples && seconds(next->second) != kUnknown)
    return seconds(next->second);
  double least = filled_least(size, set, samples);
  if (micro_batches_in(size, samples) < stages(set)) return least;
  if (next != known.begin() && micro_batches_in(size, std::prev(next)->first) > stages(set))
    least = std::max(least, seconds(std::prev(next)->second));
  if (next != known.end())
    least = std::max(least, seconds(next->second) * micro_batches_at_least(set, size, samples) /
                                micro_batches_in(size, next->first));
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
  double least = kNever;
  for (const auto& [bound, size] : likely(set, samples, kNever)) {
    if (bound >= least) break;
    least = std::min(least, seconds_of_size(set, size, samples, least));
  }
  return std::max(least, proved(set, samples));
}

bool SetTimes::within(size_t set, int samples, double limit) {
  if (is_one_stage(set)) return least_of_whole(set, samples) <= limit;
  if (proved(set, samples) > limit) return false;
  for (size_t size = 0; size < micro_batches_.size(); ++size) {
    const auto more = known_[size].lower_bound(samples);
    if (more != known_[size].end() && !more->second.seconds.empty() &&
        more->second.seconds[set] != kUnknown && more->second.seconds[set] <= limit)
      return true;
    if (micro_batches_[size] >= samples) break;
  }
  for (const auto& [bound, size] : likely(set, samples, limit))
    if (seconds_of_size(set, size, samples, limit) <= limit) return true;
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
  proved_[set].emplace(samples, std::min({best.seconds, unproved, enough_}));
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
  int low = 0, high = most_grains(set, limit);
  while (few_ && low < high) {
    const int middle = low + (high - low + 1) / 2;
    if (seconds_at_least(set, middle * limit.grain - limit.missing) <= limit.seconds)
      low = middle;
    else
      high = middle - 1;
  }
  return high;
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
    const bool is_full = samples % micro_batches_[size] == 0;
    const int cut =
        is_near_enough() && is_full
            ? next_looked_at(samples / micro_batches_[size], stages(set)) * micro_batches_[size]
            : samples;
    const auto found = known_[size].find(cut);
    if (found == known_[size].end() || found->second.seconds.empty()) continue;
    const double seconds = found->second.seconds[set];
    if (seconds == kUnknown || seconds >= enough_ || known_least(size, set, samples) > limit)
      continue;
    Pipeline& pipeline = pipelines.emplace_back();
    pipeline.micro_batch = micro_batches_[size];
    int first = 0;
    SetCuts& those = cuts(size, cut);
    least(&those, set);  // it may have been cut before all were made anew
    for (const CutStage& stage : those.stages(base(set))) {
      pipeline.stages.push_back({stage.group, first, first + stage.layers - 1});
      first += stage.layers;
    }
  }
  return pipelines;
}

}  // namespace motley
