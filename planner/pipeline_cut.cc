#include "planner/pipeline_cut.h"

#include <algorithm>

namespace motley {
namespace {

/// Where nodes are few they are not spent on cuts that are hardly quicker; nothing is proved then.
constexpr int64_t kMany = 5000;
constexpr double kClearlyLess = 0.997;

/// Of a stage in a step.
struct StageCost {
  double work = kNever;  ///< kNever: it does not fit
  double first_forward = 0;
  double last_backward = 0;
  double ready = 0;
};

class CutSearch {
 public:
  CutSearch(const PipelineCosts& costs, const std::vector<int>& order, int micro_batch, int samples,
            double cutoff, int64_t most_nodes)
      : costs_(costs),
        order_(order),
        stages_(static_cast<int>(order.size())),
        layers_(costs.layers()),
        micro_batch_(micro_batch),
        samples_(samples),
        most_nodes_(most_nodes),
        worth_(most_nodes < kMany ? kClearlyLess : 1),
        count_((samples + micro_batch_ - 1) / micro_batch_) {
    best_.seconds = cutoff;
    current_.micro_batch = micro_batch_;
    const int carried = std::min(micro_batch, samples);
    for (int s = 0; s + 1 < stages_; ++s) {
      forward_travels_.push_back(seconds_of(costs.travel(group(s), group(s + 1), carried)));
      backward_travels_.push_back(seconds_of(costs.travel(group(s + 1), group(s), carried)));
    }
  }

  PipelineCut run() {
    if (stages_ == 1) {
      try_whole();
    } else {
      price_stages();
      find_least_busy();
      if (least_busy(0, 0) < worth_ * best_.seconds) {
        try_least_busy();
        extend(0, 0, 0, 0);
      }
    }
    best_.proved = best_.proved && worth_ == 1;
    if (best_.pipeline.stages.empty()) best_.seconds = kNever;
    return std::move(best_);
  }

 private:
  int group(int stage) const { return order_[static_cast<size_t>(stage)]; }
  /// Only the first stage has the embedding and only the last the head: what a stage costs depends
  /// on how many layers it has.
  StageCost& cost(int stage, int first, int last) {
    return priced_[static_cast<size_t>(stage * layers_ + last - first)];
  }
  double& least_busy(int stage, int first) {
    return least_busy_[static_cast<size_t>(stage * (layers_ + 1) + first)];
  }
  /// Stages from `stage` on need a layer each.
  int last_possible(int stage) const { return layers_ - 1 - (stages_ - 1 - stage); }
  bool is_end(int stage, int last) const {
    return stage + 1 < stages_ ? last <= last_possible(stage) : last == layers_ - 1;
  }

  /// The bounds are of layers measured one by one, a whole replica may be priced as measured whole.
  void try_whole() {
    current_.stages = {{group(0), 0, layers_ - 1}};
    if (costs_.fits(current_.stages.front(), micro_batch_, 1)) keep_if_quicker();
  }

  void price_stages() {
    priced_.resize(static_cast<size_t>(stages_ * layers_));
    for (int s = 0; s < stages_; ++s)
      for (int count = 1; count <= layers_ - stages_ + 1; ++count) {
        const int first = s == 0 ? 0 : s + 1 == stages_ ? layers_ - count : 1;
        cost(s, first, first + count - 1) = cost_of(s, {group(s), first, first + count - 1});
      }
  }

  StageCost cost_of(int number, const PipelineStage& stage) const {
    const int in_flight = std::min(stages_ - number, count_);
    if (!costs_.fits(stage, micro_batch_, in_flight)) return {};
    const int last = samples_ - (count_ - 1) * micro_batch_;
    const PassSeconds full = costs_.pass(stage, micro_batch_);
    const PassSeconds rest = last == micro_batch_ ? full : costs_.pass(stage, last);
    const double begins = costs_.overhead(stage.group);
    const int begun = stages_ > 1 ? std::min(stages_, count_) : 1;
    StageCost cost;
    cost.work = (count_ - 1) * (full.forward + full.backward) + rest.forward + rest.backward +
                begins * ((number > 0 ? count_ : begun) + (number + 1 < stages_ ? count_ : 0));
    cost.first_forward = (count_ > 1 ? full : rest).forward + begins;
    cost.last_backward = rest.backward + (number + 1 < stages_ ? begins : 0);
    cost.ready = costs_.update_seconds(stage);
    return cost;
  }

  /// least_busy(s, first): of stages s to the last, cut as is best, from layer `first` on.
  void find_least_busy() {
    least_busy_.assign(static_cast<size_t>((stages_ + 1) * (layers_ + 1)), kNever);
    least_busy(stages_, layers_) = 0;
    for (int s = stages_; s-- > 0;)
      for (int first = s; first <= last_possible(s); ++first)
        for (int last = first; last <= last_possible(s); ++last)
          if (is_end(s, last))
            least_busy(s, first) =
                std::min(least_busy(s, first),
                         std::max(cost(s, first, last).work, least_busy(s + 1, last + 1)));
  }

  void try_least_busy() {
    double begins = 0, after = 0, bound = 0;
    int first = 0;
    for (int s = 0; s < stages_; ++s) {
      int chosen = first;
      for (int last = first; last <= last_possible(s); ++last)
        if (is_end(s, last) && std::max(cost(s, first, last).work, least_busy(s + 1, last + 1)) ==
                                   least_busy(s, first))
          chosen = last;
      const StageCost& own = cost(s, first, chosen);
      begins = std::max(begins, own.ready);
      bound = std::max(bound, begins + own.work + after);
      begins += own.first_forward;
      after += own.last_backward;
      current_.stages.push_back({group(s), first, chosen});
      first = chosen + 1;
    }
    if (bound < worth_ * best_.seconds) keep_if_quicker();
    current_.stages.clear();
  }

  void keep_if_quicker() {
    const double seconds = costs_.seconds(current_, samples_);
    if (seconds >= best_.seconds) return;
    best_.seconds = seconds;
    best_.pipeline = current_;
  }

  /// `begins`: when the first micro-batch arrives; `after`: what follows the last backward pass.
  void extend(int stage, int first, double begins, double after) {
    if (stage == stages_) return keep_if_quicker();
    for (int last = first; last <= last_possible(stage); ++last) {
      if (!is_end(stage, last)) continue;
      const StageCost& own = cost(stage, first, last);
      const double start = std::max(begins, own.ready);
      if (start + own.work + after >= worth_ * best_.seconds)
        return;  // so are those of more layers
      if (++best_.nodes > most_nodes_) {
        best_.proved = false;
        return;
      }
      double next = start + own.first_forward, next_after = after + own.last_backward;
      if (stage + 1 < stages_) {
        next += forward_travels_[static_cast<size_t>(stage)];
        next_after += backward_travels_[static_cast<size_t>(stage)];
        if (next + least_busy(stage + 1, last + 1) + next_after >= worth_ * best_.seconds) continue;
      }
      current_.stages.push_back({group(stage), first, last});
      extend(stage + 1, last + 1, next, next_after);
      current_.stages.pop_back();
    }
  }

  const PipelineCosts& costs_;
  const std::vector<int>& order_;
  const int stages_, layers_, micro_batch_, samples_;
  const int64_t most_nodes_;
  const double worth_;
  const int count_;  ///< micro-batches
  std::vector<double> forward_travels_, backward_travels_;
  std::vector<StageCost> priced_;
  std::vector<double> least_busy_;
  Pipeline current_;
  PipelineCut best_;
};

}  // namespace

PipelineCut best_cut(const PipelineCosts& costs, const std::vector<int>& order, int micro_batch,
                     int samples, double cutoff, int64_t most_nodes) {
  if (static_cast<int>(order.size()) > costs.layers()) return {};
  return CutSearch(costs, order, micro_batch, samples, cutoff, most_nodes).run();
}

}  // namespace motley
