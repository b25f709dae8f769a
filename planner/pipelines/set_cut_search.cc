#include "planner/pipelines/set_cut_search.h"

#include <algorithm>
#include <vector>

namespace motley {
namespace {

class SetCutSearch {
 public:
  SetCutSearch(const SetCutProblem& problem, double cutoff, int64_t most_nodes)
      : costs_(problem.costs),
        sets_(problem.sets),
        cuts_(problem.cuts),
        micro_batch_(problem.micro_batch),
        samples_(problem.samples),
        most_nodes_(most_nodes),
        count_((samples_ + micro_batch_ - 1) / micro_batch_),
        full_(samples_ / micro_batch_) {
    enough_ = cutoff == kNever ? SetCuts::kTooLong : nanos_of_seconds(cutoff).value();
  }

  PipelineCut run(size_t set, int stages) {
    stages_ = stages;
    if (cuts_.least(set, stages) < enough_) extend(static_cast<int>(set), 0, 0, 0);
    if (!best_.pipeline.stages.empty()) best_.seconds = seconds_of(Nanos(enough_));
    return std::move(best_);
  }

 private:
  struct Placed {
    PipelineStage stage;
    AlikePasses passes;
    int64_t start = 0;  ///< no pass of a step begins sooner
    int64_t after = 0;  ///< what follows its last backward pass
    int64_t round = 0;  ///< one micro-batch's passes and the ways from and to the stage before
  };
  struct Choice {
    int64_t bound = 0;
    int group = 0, layers = 0;
  };

  int left() const { return stages_ - static_cast<int>(placed_.size()); }

  /// `begins`: when the first micro-batch arrives.
  void extend(int set, int first, int64_t begins, int64_t after) {
    for (const Choice& choice : choices(set, first, begins + after)) {
      if (choice.bound >= enough_) break;
      if (++best_.nodes > most_nodes_) {
        best_.proved = false;
        return;
      }
      place(choice, first, begins, after);
      if (waits() < enough_) {
        if (left() == 0)
          keep_if_quicker();
        else
          go_on(sets_.without(static_cast<size_t>(set), choice.group), choice, first);
      }
      placed_.pop_back();
      if (!best_.proved) return;
    }
  }

  void go_on(int rest, const Choice& choice, int first) {
    const Placed& last = placed_.back();
    const AlikePasses& passes = last.passes;
    extend(rest, first + choice.layers,
           last.start + (count_ > 1 ? passes.first_forward : passes.last_forward).value(),
           last.after + passes.last_backward.value());
  }

  std::vector<Choice> choices(int set, int first, int64_t around) const {
    std::vector<Choice> choices;
    const auto number = static_cast<size_t>(set);
    for (int group = 0; group < sets_.groups(); ++group) {
      if (!costs_.priced(group) || !leaves_enough(number, group)) continue;
      const StagePrices prices = cuts_.prices(group, left(), first == 0);
      const int room = costs_.layers() - first - (left() - 1);
      const int64_t there = around + way_to(group);
      for (int layers = left() == 1 ? room : 1; layers <= std::min(room, prices.most); ++layers) {
        int64_t bound = there + prices.work[layers];
        if (bound >= enough_) break;
        if (left() > 1)
          bound = std::max(bound, there + prices.once[layers] +
                                      cuts_.after(static_cast<size_t>(sets_.without(number, group)),
                                                  left() - 1, sets_.place(group), first + layers));
        if (bound < enough_) choices.push_back({bound, group, layers});
      }
    }
    std::stable_sort(choices.begin(), choices.end(),
                     [](const Choice& a, const Choice& b) { return a.bound < b.bound; });
    return choices;
  }

  /// Whether what a stage of the group leaves of the set can be as many stages as are left then.
  bool leaves_enough(size_t set, int group) const {
    if (left() == 1) return sets_.is(set, group);
    const int rest = sets_.has(set, group) ? sets_.without(set, group) : SetLattice::kNone;
    if (rest == SetLattice::kNone) return false;
    const auto number = static_cast<size_t>(rest);
    return sets_.least_stages(number) < left() && sets_.size(number) >= left() - 1;
  }

  int64_t way_to(int group) const {
    return placed_.empty() ? 0
                           : cuts_.way(sets_.place(placed_.back().stage.group), sets_.place(group));
  }

  void place(const Choice& choice, int first, int64_t begins, int64_t after) {
    const auto number = static_cast<int>(placed_.size());
    const PipelineStage stage{choice.group, first, first + choice.layers - 1};
    Placed own{.stage = stage,
               .passes = costs_.passes(stage, number, stages_, micro_batch_, samples_)};
    own.round = own.passes.forward.value() + own.passes.backward.value();
    if (number > 0) {
      Placed& before = placed_.back();
      const int carried = std::min(micro_batch_, samples_);
      before.passes.forward_travels = costs_.travel(before.stage.group, choice.group, carried);
      own.passes.backward_travels = costs_.travel(choice.group, before.stage.group, carried);
      begins += before.passes.forward_travels.value();
      after += own.passes.backward_travels.value();
      own.round += way_to(choice.group);
    }
    own.start = std::max(begins, own.passes.ready.value());
    own.after = after;
    placed_.push_back(own);
  }

  /// A stage waits, too, for the ways that a micro-batch goes to a later one and back: after the
  /// forward passes that are under way on the later one, each round over k stages is of every k-th
  /// micro-batch. The latest end by that of the rounds that the last stage placed turns.
  int64_t waits() const {
    const int under_way = left();  // of micro-batches on the last one placed, besides its own
    const size_t last = placed_.size() - 1;
    int64_t end = 0, round = placed_[last].round;
    for (size_t s = last; s-- > 0 && under_way < full_;) {
      const Placed& own = placed_[s];
      const auto stages = static_cast<int>(last - s) + 1;
      const int rounds = (full_ - 1 - under_way) / stages + 1;
      const int alone = full_ - 1 - (rounds - 1) * stages;  // backward passes that are left
      const int64_t over = round + own.passes.forward.value() + own.passes.backward.value();
      end = std::max(end, own.start + under_way * own.passes.first_forward.value() + rounds * over +
                              alone * own.passes.backward.value() +
                              (count_ > full_ ? own.passes.last_backward.value() : 0) + own.after);
      round += own.round;
    }
    return end;
  }

  void keep_if_quicker() {
    std::vector<AlikePasses> all;
    for (const Placed& placed : placed_) all.push_back(placed.passes);
    const int64_t nanos = pipeline_end(all, count_).value();
    if (nanos >= enough_) return;
    enough_ = nanos;
    best_.pipeline = {{}, micro_batch_};
    for (const Placed& placed : placed_) best_.pipeline.stages.push_back(placed.stage);
  }

  const PipelineCosts& costs_;
  const SetLattice& sets_;
  SetCuts& cuts_;
  const int micro_batch_, samples_;
  const int64_t most_nodes_;
  const int count_, full_;  ///< micro-batches, and those that are full
  int stages_ = 0;
  int64_t enough_ = 0;  ///< others must take less
  std::vector<Placed> placed_;
  PipelineCut best_;
};

}  // namespace

PipelineCut best_cut_of_set(const SetCutProblem& problem, size_t set, int stages, double cutoff,
                            int64_t most_nodes) {
  return SetCutSearch(problem, cutoff, most_nodes).run(set, stages);
}

}  // namespace motley
