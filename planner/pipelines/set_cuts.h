#pragma once
// The quickest cuts of all sets of devices at once, in all orders.
//
// Of a pipeline in 1F1B every stage waits for what comes before its first forward pass, does its
// own work and leaves to the stages before it what follows its last backward pass. So the end is
// no sooner than what a stage takes for all micro-batches, nor than what it and the ways from and
// to the next take once and the stages after it for the rest. The least of that over all ways to
// go on obeys a recurrence over the devices and layers that are left (dynamic programming; Bellman
// 1957): what a stage holds depends on how many follow it alone. A simulation adds waits in the
// middle of a step, so this is a bound, and its cuts are near the quickest.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory_resource>
#include <vector>

#include "planner/pipelines/pipeline_costs.h"
#include "planner/pipelines/replica_designs.h"

namespace motley {

/// Sets of devices of which every part is one, too, by rising size, and their parts. Of groups that
/// are shared (PipelineCosts::add_shared_at_best()) a stage takes all devices that share it.
class SetLattice {
 public:
  static constexpr int kNone = -1;

  SetLattice(const PipelineCosts& costs, std::vector<GroupCounts> sets);

  const std::vector<GroupCounts>& sets() const { return sets_; }
  size_t count() const { return sets_.size(); }
  int groups() const { return groups_; }
  int size(size_t set) const { return sizes_[set]; }
  /// Whether a stage of the group can be of its devices.
  bool has(size_t set, int group) const;
  /// Groups that it has stages of.
  const std::vector<int>& groups_in(size_t set) const { return groups_in_[set]; }
  /// Whether a stage of the group takes all of its devices.
  bool is(size_t set, int group) const {
    return has(set, group) && size(set) == taken_[static_cast<size_t>(group)];
  }
  /// Whether any group is shared.
  bool may_share() const { return groups_ > devices_; }
  /// Of its devices: as many as they are, but where some may share.
  int least_stages(size_t set) const { return least_stages_[set]; }
  /// The set without those of a stage of a group that it has; kNone where no other is.
  int without(size_t set, int group) const {
    return without_[set * static_cast<size_t>(groups_) + static_cast<size_t>(group)];
  }
  /// Whether a stage of its devices can be at the place.
  bool has_place(size_t set, int place) const {
    return has_place_[set * example_.size() + static_cast<size_t>(place)];
  }
  /// Groups that everything takes the same ways from and to are of one place.
  int place(int group) const { return place_[static_cast<size_t>(group)]; }
  int places() const { return static_cast<int>(example_.size()); }
  int example(int place) const { return example_[static_cast<size_t>(place)]; }

 private:
  void find_places(const PipelineCosts& costs);
  void find_parts();
  void find_least_stages();

  int groups_, devices_;            ///< groups, and how many of them are devices
  std::vector<GroupCounts> takes_;  ///< devices of a stage, by group
  std::vector<int> taken_;          ///< how many
  std::vector<int> least_stages_;
  std::vector<GroupCounts> sets_;
  std::vector<int> sizes_;
  std::vector<int> without_;
  std::vector<std::vector<int>> groups_in_;
  std::vector<int> place_;
  std::vector<int> example_;     ///< a group of each place
  std::vector<bool> has_place_;  ///< [set * places + place]
};

/// Stages of a group, all of the same number of stages to the end, by how many layers they have.
struct StagePrices {
  const int64_t* work;  ///< nanoseconds for all micro-batches; the update of the first stage
  const int64_t* once;  ///< of one micro-batch's two passes
  int most;             ///< layers that fit
};

/// What is placed: one stage.
struct CutStage {
  uint16_t group = 0, layers = 0;
};

/// Of all sets, each when it is asked for, in one micro-batch and number of samples. Whole replicas
/// are not among them.
class SetCuts {
 public:
  static constexpr int64_t kTooLong = std::numeric_limits<int64_t>::max() / 8;

  /// Those that take `enough` nanoseconds or longer are of no interest.
  SetCuts(const PipelineCosts& costs, const SetLattice& sets, int micro_batch, int samples,
          int64_t enough = kTooLong);

  /// Nanoseconds that no pipeline of the set in so many stages is below; kTooLong where none fits
  /// or all are of no interest.
  /// The set and its parts are cut from then on.
  int64_t least(size_t set, int stages);
  /// Of a set that is cut, of devices that share nothing, the stages of one that is not above it
  /// but for waits.
  std::vector<CutStage> stages(size_t set) const;
  /// How many sets are, each in as many numbers of stages.
  int64_t cut() const { return cut_; }
  /// Of memory, about.
  int64_t bytes() const {
    return static_cast<int64_t>(rows_.size() * sizeof(Row) +
                                states_ * (sizeof(State) + sizeof(int64_t)));
  }

  /// Of a stage with `depth` - 1 after it. Valid until more are cut.
  StagePrices prices(int group, int depth, bool begins) const {
    const Priced& own = begins       ? firsts_[priced_at(group, depth)]
                        : depth == 1 ? lasts_[static_cast<size_t>(group)]
                                     : middles_[middle_at(group, depth)];
    const int most = begins || depth == 1 ? own.most : most_in_middle_[priced_at(group, depth)];
    return {own.work.data(), own.once.data(), most};
  }
  /// Of so many stages after one at `place` that are left these devices, which are cut, and the
  /// layers from `first` on: at least, with the ways there and back.
  int64_t after(size_t set, int stages, int place, int first) const {
    return row(set, stages).arrives[state(place, first)];
  }
  /// A micro-batch's ways there and back.
  int64_t way(int from_place, int to_place) const {
    return ways_[static_cast<size_t>(from_place) * places() + static_cast<size_t>(to_place)];
  }

 private:
  size_t places() const { return static_cast<size_t>(sets_.places()); }
  bool can_be(int set, int stages) const {
    return set != SetLattice::kNone && stages >= sets_.least_stages(static_cast<size_t>(set)) &&
           stages <= std::min(sets_.size(static_cast<size_t>(set)), layers_);
  }
  /// Of a set of devices left in a number of stages, with a place and the first layer left.
  struct State {
    /// Nanoseconds of these alone where a device of the place comes next.
    int64_t left = kTooLong;
    CutStage chosen;
  };
  struct Row {  ///< in memory_; null: not cut
    State* states = nullptr;
    int64_t* arrives = nullptr;  ///< with the ways from a device of the place to the best
  };
  size_t row_of(size_t set, int stages) const {
    if (!sets_.may_share()) return set;
    return set * static_cast<size_t>(most_stages_) + static_cast<size_t>(stages - 1);
  }
  Row& row(size_t set, int stages) { return rows_[row_of(set, stages)]; }
  const Row& row(size_t set, int stages) const { return rows_[row_of(set, stages)]; }
  size_t state(int place, int first) const { return static_cast<size_t>(place * layers_ + first); }
  struct Priced {  ///< what StagePrices shows
    std::vector<int64_t> work, once;
    std::vector<int64_t> ahead;  ///< more work for each micro-batch begun before the first ends
    int most = 0;
  };
  size_t priced_at(int group, int depth) const {
    return static_cast<size_t>(group * (most_stages_ + 1) + depth);
  }
  /// What a stage takes that is not the first depends on its depth where more in flight makes
  /// blocks compute again.
  size_t middle_at(int group, int depth) const {
    return again_ ? priced_at(group, depth) : static_cast<size_t>(group);
  }
  void cut(size_t set, int stages);
  void find_ways();
  void price(int group, int up_to);
  PipelineStage stage_of(int group, int depth, bool begins, int layers) const;
  int most_of(int group, int depth, bool begins, int most) const;
  Priced prices_of(int group, int depth, bool begins) const;
  Priced with_one_more_ahead(int group, int depth) const;
  static void offer(State* state, int64_t nanos, int group, int layers);
  void be_last(int group, Row* row);
  void go_on(size_t set, int stages, int group);
  /// What the rest takes: `after`, by the first of its layers.
  struct Rest {
    int stages = 0;
    const int64_t* after = nullptr;
    int crosses = 0;  ///< layers with which its work came to be more, of the call before
  };
  void choose(int group, int first, Rest* rest, State* state);
  void add_ways(size_t set, Row* row) const;
  int best_place(const Row& left, int from, int first) const;

  const PipelineCosts& costs_;
  const SetLattice& sets_;
  int layers_, micro_batch_, samples_;
  int count_;  ///< micro-batches
  int64_t enough_;
  int most_stages_;
  bool again_;                       ///< blocks may compute again
  std::vector<int> priced_;          ///< depths of each group
  std::vector<int64_t> ways_;        ///< there and back, [from * places + to]
  std::vector<Priced> firsts_;       ///< by group and depth
  std::vector<Priced> middles_;      ///< by middle_at()
  std::vector<Priced> lasts_;        ///< by group
  std::vector<int> most_in_middle_;  ///< layers that fit, by group and depth
  std::vector<Row> rows_;            ///< by set and number of stages
  std::pmr::monotonic_buffer_resource memory_;
  int64_t cut_ = 0;
  size_t states_ = 0;  ///< of all rows that are cut
};

}  // namespace motley
