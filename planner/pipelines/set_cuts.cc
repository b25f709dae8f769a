#include "planner/pipelines/set_cuts.h"

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <utility>

#include "core/pipeline.h"

namespace motley {

SetLattice::SetLattice(const PipelineCosts& costs, std::vector<GroupCounts> sets)
    : groups_(costs.groups()), devices_(costs.device_groups()), sets_(std::move(sets)) {
  const auto size_of = [](const GroupCounts& set) {
    return std::accumulate(set.begin(), set.end(), 0);
  };
  for (int group = 0; group < groups_; ++group) {
    GroupCounts& takes = takes_.emplace_back(costs.shared_by(group));
    if (takes.empty()) {
      takes.assign(static_cast<size_t>(devices_), 0);
      takes[static_cast<size_t>(group)] = 1;
    }
    taken_.push_back(size_of(takes));
  }
  std::stable_sort(sets_.begin(), sets_.end(), [&](const GroupCounts& a, const GroupCounts& b) {
    return size_of(a) < size_of(b);
  });
  for (const GroupCounts& set : sets_) sizes_.push_back(size_of(set));
  find_parts();
  find_least_stages();
  find_places(costs);
}

bool SetLattice::has(size_t set, int group) const {
  const GroupCounts& takes = takes_[static_cast<size_t>(group)];
  return std::equal(takes.begin(), takes.end(), sets_[set].begin(), std::less_equal<>());
}

void SetLattice::find_parts() {
  std::map<GroupCounts, int> numbers;
  for (size_t set = 0; set < sets_.size(); ++set) {
    numbers.emplace(sets_[set], static_cast<int>(set));
    groups_in_.emplace_back();
    for (int group = 0; group < groups_; ++group) {
      auto found = numbers.end();
      if (has(set, group)) {
        groups_in_.back().push_back(group);
        GroupCounts part = sets_[set];
        for (size_t i = 0; i < part.size(); ++i) part[i] -= takes_[static_cast<size_t>(group)][i];
        found = numbers.find(part);
      }
      without_.push_back(found == numbers.end() ? kNone : found->second);
    }
  }
}

/// After those of its parts.
void SetLattice::find_least_stages() {
  for (size_t set = 0; set < sets_.size(); ++set) {
    int least = sizes_[set];
    for (int group = devices_; group < groups_; ++group) {
      if (is(set, group)) least = 1;
      const int rest = without(set, group);
      if (rest != kNone) least = std::min(least, least_stages_[static_cast<size_t>(rest)] + 1);
    }
    least_stages_.push_back(least);
  }
}

void SetLattice::find_places(const PipelineCosts& costs) {
  constexpr int kMany = 1 << 10;
  const auto same_way = [&](int a, int b, int c, int d) {
    return costs.travel(a, b, 1) == costs.travel(c, d, 1) &&
           costs.travel(a, b, kMany) == costs.travel(c, d, kMany);
  };
  const auto alike = [&](int a, int b) {
    bool same = same_way(a, a, b, b) && same_way(a, a, a, b) && same_way(a, a, b, a);
    for (int other = 0; other < groups_ && same; ++other)
      if (other != a && other != b)
        same = same_way(a, other, b, other) && same_way(other, a, other, b);
    return same;
  };
  for (int group = 0; group < groups_; ++group) {
    int place = 0;
    while (place < places() && !alike(example(place), group)) ++place;
    if (place == places()) example_.push_back(group);
    place_.push_back(place);
  }
  has_place_.resize(sets_.size() * example_.size());
  for (size_t set = 0; set < sets_.size(); ++set)
    for (int group = 0; group < groups_; ++group)
      if (has(set, group))
        has_place_[set * example_.size() + static_cast<size_t>(this->place(group))] = true;
}

SetCuts::SetCuts(const PipelineCosts& costs, const SetLattice& sets, int micro_batch, int samples,
                 int64_t enough)
    : costs_(costs),
      sets_(sets),
      layers_(costs.layers()),
      micro_batch_(micro_batch),
      samples_(samples),
      count_((samples + micro_batch - 1) / micro_batch),
      enough_(enough),
      most_stages_(sets.size(sets.count() - 1)),
      again_(costs.any_computes_again()) {
  find_ways();
  const auto groups = static_cast<size_t>(sets_.groups());
  firsts_.resize(groups * static_cast<size_t>(most_stages_ + 1));
  most_in_middle_.resize(firsts_.size());
  middles_.resize(again_ ? firsts_.size() : groups);
  lasts_.resize(groups);
  priced_.resize(groups, 0);
  rows_.resize(sets_.count() * (sets_.may_share() ? static_cast<size_t>(most_stages_) : 1));
}

/// After its parts.
void SetCuts::cut(size_t set, int stages) {
  Row& row = this->row(set, stages);
  if (row.states != nullptr) return;
  ++cut_;
  const size_t states = places() * static_cast<size_t>(layers_);
  states_ += states;
  std::pmr::polymorphic_allocator<> memory(&memory_);
  row.states = memory.allocate_object<State>(states);
  row.arrives = memory.allocate_object<int64_t>(states);
  std::uninitialized_fill_n(row.states, states, State{});
  std::uninitialized_fill_n(row.arrives, states, kTooLong);
  for (const int group : sets_.groups_in(set)) {
    if (!costs_.priced(group)) continue;
    const int rest = sets_.without(set, group);
    if (stages == 1 ? !sets_.is(set, group) : !can_be(rest, stages - 1)) continue;
    price(group, stages);
    if (stages == 1) {
      be_last(group, &row);
    } else {
      cut(static_cast<size_t>(rest), stages - 1);
      go_on(set, stages, group);
    }
  }
  add_ways(set, &row);
}

void SetCuts::find_ways() {
  const int carried = std::min(micro_batch_, samples_);
  for (int from = 0; from < sets_.places(); ++from)
    for (int to = 0; to < sets_.places(); ++to)
      ways_.push_back(costs_.travel(sets_.example(from), sets_.example(to), carried).value() +
                      costs_.travel(sets_.example(to), sets_.example(from), carried).value());
}

/// After smaller ones.
void SetCuts::price(int group, int up_to) {
  int& priced = priced_[static_cast<size_t>(group)];
  while (priced < up_to) {
    const int depth = ++priced;
    if (depth == 1) {
      lasts_[static_cast<size_t>(group)] = prices_of(group, 1, false);
      continue;
    }
    const size_t at = priced_at(group, depth);
    firsts_[at] = again_ || depth == 2 || depth >= count_ ? prices_of(group, depth, true)
                                                          : with_one_more_ahead(group, depth);
    Priced& middle = middles_[middle_at(group, depth)];
    if (again_ || depth == 2) middle = prices_of(group, depth, false);
    most_in_middle_[at] =
        most_of(group, depth, false, again_ || depth == 2 ? middle.most : most_in_middle_[at - 1]);
  }
}

PipelineStage SetCuts::stage_of(int group, int depth, bool begins, int layers) const {
  const int first = begins ? 0 : depth == 1 ? layers_ - layers : 1;
  return {group, first, first + layers - 1};
}

/// How many layers fit, of `most` and so that others have one each.
int SetCuts::most_of(int group, int depth, bool begins, int most) const {
  int low = 0, high = std::min(most, layers_ - (depth - 1) - (begins ? 0 : 1));
  while (low < high) {
    const int middle = low + (high - low + 1) / 2;
    if (costs_.fits(stage_of(group, depth, begins, middle), micro_batch_,
                    most_in_flight(depth, 0, count_)))
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

SetCuts::Priced SetCuts::prices_of(int group, int depth, bool begins) const {
  Priced prices;
  prices.most = most_of(group, depth, begins, layers_);
  prices.work.resize(static_cast<size_t>(prices.most) + 1);
  prices.once.resize(prices.work.size());
  prices.ahead.resize(prices.work.size());
  const int before = begins ? 0 : 1;
  for (int layers = 1; layers <= prices.most; ++layers) {
    const StageCost cost = stage_cost(costs_, stage_of(group, depth, begins, layers), before,
                                      depth + before, micro_batch_, samples_);
    const int64_t ready = begins ? cost.ready : 0;
    prices.work[static_cast<size_t>(layers)] = ready + cost.work;
    prices.once[static_cast<size_t>(layers)] = ready + cost.first_forward + cost.last_backward;
    prices.ahead[static_cast<size_t>(layers)] = cost.ahead;
    if (ready + cost.work >= enough_) prices.most = layers - 1;
  }
  return prices;
}

/// Of a first stage, from one with a stage fewer after it, where there are more micro-batches than
/// begin before the first ends.
SetCuts::Priced SetCuts::with_one_more_ahead(int group, int depth) const {
  Priced prices = firsts_[priced_at(group, depth - 1)];
  prices.most = most_of(group, depth, true, prices.most);
  for (size_t layers = 1; layers < prices.work.size(); ++layers)
    prices.work[layers] += prices.ahead[layers];
  while (prices.most > 0 && prices.work[static_cast<size_t>(prices.most)] >= enough_) --prices.most;
  return prices;
}

void SetCuts::offer(State* state, int64_t nanos, int group, int layers) {
  if (nanos < state->left)
    *state = {nanos, {static_cast<uint16_t>(group), static_cast<uint16_t>(layers)}};
}

void SetCuts::be_last(int group, Row* row) {
  const StagePrices own = prices(group, 1, false);
  for (int layers = 1; layers <= own.most; ++layers)
    offer(&row->states[state(sets_.place(group), layers_ - layers)], own.work[layers], group,
          layers);
}

void SetCuts::go_on(size_t set, int stages, int group) {
  const auto rest = static_cast<size_t>(sets_.without(set, group));
  const int place = sets_.place(group);
  const int64_t* const after = &row(rest, stages - 1).arrives[state(place, 0)];
  State* const states = &row(set, stages).states[state(place, 0)];
  Rest left{stages - 1, after, layers_};
  if (sets_.size(set) < most_stages_)
    for (int first = 1; first < layers_ - left.stages; ++first) {
      left.after = after + first;
      choose(group, first, &left, states + first);
    }
  left = {stages - 1, after, layers_};
  choose(group, 0, &left, states);
}

/// What comes after the stage falls with its layers, and its work rises: where they cross is the
/// best, or, as what it takes once rises, just before. The fewer layers are left, the sooner.
void SetCuts::choose(int group, int first, Rest* rest, State* state) {
  const StagePrices prices = this->prices(group, rest->stages + 1, first == 0);
  const int64_t* const after = rest->after;
  const int64_t* const work = prices.work;
  const int64_t* const once = prices.once;
  const int most = std::min(prices.most, layers_ - first - rest->stages);
  if (most < 1 || once[1] + after[most] >= enough_) return;
  const auto is_busier = [&](int layers) { return work[layers] >= once[layers] + after[layers]; };
  int low = std::min(rest->crosses, most + 1);
  while (low > 1 && is_busier(low - 1)) --low;
  while (low <= most && !is_busier(low)) ++low;
  rest->crosses = low;
  int64_t best = enough_;
  int chosen = 0;
  if (low <= most && work[low] < best) best = work[low], chosen = low;
  for (int layers = std::min(low - 1, most); layers > 0; --layers) {
    if (once[1] + after[layers] >= best) break;
    const int64_t nanos = once[layers] + after[layers];
    if (nanos < best) best = nanos, chosen = layers;
  }
  if (chosen > 0) offer(state, best, group, chosen);
}

/// The least of all places to go to, with the ways there and back.
void SetCuts::add_ways(size_t set, Row* row) const {
  for (int from = 0; from < sets_.places(); ++from)
    for (int to = 0; to < sets_.places(); ++to) {
      if (!sets_.has_place(set, to)) continue;
      const int64_t there = way(from, to);
      const State* const left = &row->states[state(to, 0)];
      int64_t* const arrives = &row->arrives[state(from, 0)];
      for (int first = 1; first < layers_; ++first)
        arrives[first] = std::min(arrives[first], there + left[first].left);
    }
}

/// From a place, or where nothing comes before from nowhere, below 0.
int SetCuts::best_place(const Row& left, int from, int first) const {
  int place = 0;
  const auto nanos = [&](int to) {
    return (from < 0 ? 0 : way(from, to)) + left.states[state(to, first)].left;
  };
  for (int other = 1; other < sets_.places(); ++other)
    if (nanos(other) < nanos(place)) place = other;
  return place;
}

int64_t SetCuts::least(size_t set, int stages) {
  if (stages < 2 || !can_be(static_cast<int>(set), stages)) return kTooLong;
  cut(set, stages);
  const Row& own = row(set, stages);
  return own.states[state(best_place(own, -1, 0), 0)].left;
}

std::vector<CutStage> SetCuts::stages(size_t set) const {
  std::vector<CutStage> stages;
  int left = sets_.size(set), first = 0;
  const auto chosen = [&](int place) {
    const Row& own = row(set, left);
    return own.states[state(best_place(own, place, first), first)];
  };
  if (chosen(-1).left >= kTooLong) return stages;
  for (int place = -1; left > 0; --left) {
    stages.push_back(chosen(place).chosen);
    first += stages.back().layers;
    place = sets_.place(stages.back().group);
    if (left > 1) set = static_cast<size_t>(sets_.without(set, stages.back().group));
  }
  return stages;
}

}  // namespace motley
