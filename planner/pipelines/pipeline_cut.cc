#include "planner/pipelines/pipeline_cut.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace motley {
namespace {

/// Where nodes are few they are not spent on cuts that are hardly quicker; nothing is proved then.
constexpr int64_t kMany = 5000;
constexpr double kClearlyLess = 0.997;
/// Nanoseconds of what does not fit; twice that is still a number.
constexpr int64_t kTooLong = std::numeric_limits<int64_t>::max() / 4;

class CutSearch {
 public:
  CutSearch(StageCosts* known, const std::vector<int>& order, double cutoff, int64_t most_nodes)
      : known_(*known),
        costs_(known->costs()),
        order_(order),
        stages_(static_cast<int>(order.size())),
        layers_(costs_.layers()),
        micro_batch_(known->micro_batch()),
        samples_(known->samples()),
        most_nodes_(most_nodes),
        worth_(most_nodes < kMany ? kClearlyLess : 1),
        count_(known->micro_batches()),
        cutoff_(cutoff) {
    set_best(cutoff < seconds_of(Nanos(kTooLong)) ? nanos_of_seconds(cutoff).value() : kTooLong);
    current_.micro_batch = micro_batch_;
  }

  PipelineCut run() {
    if (stages_ == 1) {
      try_whole();
    } else if (may_be_quicker()) {
      find_travels();
      find_stages();
      find_least_busy();
      if (least_busy(0, 0) < enough_) {
        try_least_busy();
        extend(0, 0, 0, 0);
      }
      if (found_) best_.seconds = seconds_of(Nanos(nanos_));
    }
    best_.proved = best_.proved && worth_ == 1;
    if (best_.pipeline.stages.empty()) best_.seconds = kNever;
    return std::move(best_);
  }

 private:
  int group(int stage) const { return order_[static_cast<size_t>(stage)]; }
  const StageCost& cost(int stage, int first, int last) const {
    static constexpr StageCost kDoesNotFit{.work = kTooLong};
    const StageCosts::ByLayers& own = *by_layers_[static_cast<size_t>(stage)];
    const auto layers = static_cast<size_t>(last - first);
    return layers < own.size() ? own[layers].cost : kDoesNotFit;
  }
  int64_t& least_busy(int stage, int first) {
    return least_busy_[static_cast<size_t>(stage * (layers_ + 1) + first)];
  }
  /// Stages from `stage` on need a layer each.
  int last_possible(int stage) const { return layers_ - 1 - (stages_ - 1 - stage); }

  void set_best(int64_t nanos) {
    nanos_ = nanos;
    enough_ = worth_ == 1 ? nanos : static_cast<int64_t>(worth_ * static_cast<double>(nanos));
  }

  /// Passes are rounded to whole nanoseconds.
  bool may_be_quicker() {
    const double least = known_.least_of_busiest(order_);
    return least == 0 || nanos_of_seconds(least).value() - 2 * count_ < enough_;
  }

  /// The bounds are of layers measured one by one, a whole replica may be priced as measured whole.
  void try_whole() {
    current_.stages = {{group(0), 0, layers_ - 1}};
    if (!costs_.fits(current_.stages.front(), micro_batch_, 1)) return;
    const double seconds = costs_.seconds(current_, samples_);
    if (seconds >= cutoff_) return;
    best_.seconds = seconds;
    best_.pipeline = current_;
  }

  void find_travels() {
    const int carried = std::min(micro_batch_, samples_);
    forward_travels_.resize(static_cast<size_t>(stages_));
    backward_travels_.resize(static_cast<size_t>(stages_));
    for (int s = 0; s + 1 < stages_; ++s) {
      forward_travels_[static_cast<size_t>(s)] = costs_.travel(group(s), group(s + 1), carried);
      backward_travels_[static_cast<size_t>(s) + 1] =
          costs_.travel(group(s + 1), group(s), carried);
    }
  }

  void find_stages() {
    for (int s = 0; s < stages_; ++s) by_layers_.push_back(&known_.of(group(s), s, stages_));
  }

  /// least_busy(s, first): of stages s to the last, cut as is best, from layer `first` on. With
  /// more layers a stage is busier, and those after it are less so.
  void find_least_busy() {
    least_busy_.assign(static_cast<size_t>((stages_ + 1) * (layers_ + 1)), kTooLong);
    const int last_stage = stages_ - 1;
    for (int first = last_stage; first < layers_; ++first)
      least_busy(last_stage, first) = cost(last_stage, first, layers_ - 1).work;
    for (int s = last_stage; s-- > 0;)
      for (int first = s; first <= last_possible(s); ++first) {
        const int last = balanced(s, first);
        least_busy(s, first) = busiest(s, first, last);
        if (last > first)
          least_busy(s, first) = std::min(least_busy(s, first), busiest(s, first, last - 1));
      }
  }

  int64_t busiest(int stage, int first, int last) {
    return std::max(cost(stage, first, last).work, least_busy(stage + 1, last + 1));
  }

  /// Where to end a stage so that it is the first to be busier than the later ones.
  int balanced(int stage, int first) {
    int low = first, high = last_possible(stage);
    while (low < high) {
      const int middle = low + (high - low) / 2;
      if (cost(stage, first, middle).work >= least_busy(stage + 1, middle + 1))
        high = middle;
      else
        low = middle + 1;
    }
    return low;
  }

  /// The last stage takes what is left.
  std::pair<int, int> ends_of(int stage, int first) const {
    return {stage + 1 < stages_ ? first : layers_ - 1, last_possible(stage)};
  }

  void try_least_busy() {
    int64_t begins = 0, after = 0, bound = 0;
    int first = 0;
    for (int s = 0; s < stages_; ++s) {
      int chosen = layers_ - 1;
      if (s + 1 < stages_) {
        chosen = balanced(s, first);
        if (chosen > first && busiest(s, first, chosen - 1) < busiest(s, first, chosen)) --chosen;
      }
      const StageCost& own = cost(s, first, chosen);
      begins = std::max(begins, own.ready);
      bound = std::max(bound, begins + own.work + after);
      begins += own.first_forward;
      after += own.last_backward;
      push(s, first, chosen);
      first = chosen + 1;
    }
    if (bound < enough_) keep_if_quicker();
    current_.stages.clear();
    passes_.clear();
  }

  void push(int stage, int first, int last) {
    current_.stages.push_back({group(stage), first, last});
    passes_.push_back(
        (*by_layers_[static_cast<size_t>(stage)])[static_cast<size_t>(last - first)].passes);
    passes_.back().forward_travels = forward_travels_[static_cast<size_t>(stage)];
    passes_.back().backward_travels = backward_travels_[static_cast<size_t>(stage)];
  }

  void keep_if_quicker() {
    const int64_t nanos = pipeline_end(passes_, count_).value();
    if (nanos >= nanos_) return;
    set_best(nanos);
    found_ = true;
    best_.pipeline = current_;
  }

  /// `begins`: when the first micro-batch arrives; `after`: what follows the last backward pass.
  void extend(int stage, int first, int64_t begins, int64_t after) {
    if (stage == stages_) return keep_if_quicker();
    const auto [earliest, latest] = ends_of(stage, first);
    for (int last = earliest; last <= latest; ++last) {
      const StageCost& own = cost(stage, first, last);
      const int64_t start = std::max(begins, own.ready);
      if (start + own.work + after >= enough_) return;  // so are those of more layers
      if (++best_.nodes > most_nodes_) {
        best_.proved = false;
        return;
      }
      int64_t next = start + own.first_forward, next_after = after + own.last_backward;
      if (stage + 1 < stages_) {
        next += forward_travels_[static_cast<size_t>(stage)].value();
        next_after += backward_travels_[static_cast<size_t>(stage) + 1].value();
        if (next + least_busy(stage + 1, last + 1) + next_after >= enough_) continue;
      }
      push(stage, first, last);
      extend(stage + 1, last + 1, next, next_after);
      current_.stages.pop_back();
      passes_.pop_back();
    }
  }

  StageCosts& known_;
  const PipelineCosts& costs_;
  const std::vector<int>& order_;
  const int stages_, layers_, micro_batch_, samples_;
  const int64_t most_nodes_;
  const double worth_;
  const int count_;  ///< micro-batches
  const double cutoff_;
  std::vector<Nanos> forward_travels_, backward_travels_;  ///< by sender
  std::vector<const StageCosts::ByLayers*> by_layers_;     ///< by stage
  std::vector<int64_t> least_busy_;
  Pipeline current_;
  std::vector<AlikePasses> passes_;  ///< of the current one's stages
  PipelineCut best_;
  int64_t nanos_ = 0;   ///< of the best
  int64_t enough_ = 0;  ///< what others must take less than
  bool found_ = false;
};

}  // namespace

PipelineCut best_cut(StageCosts* known, const std::vector<int>& order, double cutoff,
                     int64_t most_nodes) {
  if (static_cast<int>(order.size()) > known->costs().layers()) return {};
  return CutSearch(known, order, cutoff, most_nodes).run();
}

Pipeline quickest_cut(const PipelineCosts& costs, const std::vector<int>& order,
                      const std::vector<int>& micro_batches, int most_micro_batch, int samples,
                      int64_t most_nodes) {
  PipelineCut best;
  for (const int micro_batch : micro_batches) {
    if (!best.pipeline.stages.empty() && micro_batch > most_micro_batch) break;
    StageCosts known(costs, micro_batch, samples);
    PipelineCut cut = best_cut(&known, order, best.seconds, most_nodes);
    if (cut.seconds < best.seconds) best = std::move(cut);
  }
  return std::move(best.pipeline);
}

}  // namespace motley
