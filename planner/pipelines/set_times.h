#pragma once
// How long replicas over sets of devices take at least: the bounds of planner/pipelines/set_cuts.h,
// of all micro-batches, made as they are asked for.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "planner/pipelines/replica_packing.h"
#include "planner/pipelines/set_cuts.h"

namespace motley {

class SetTimes : public ReplicaSets {
 public:
  /// Bounds by `costs` as they are now; micro-batches rising. Of few devices which make very many
  /// sets not all numbers of micro-batches are cut: those near them serve as bounds.
  /// What takes `enough` seconds or longer is of no interest.
  SetTimes(const PipelineCosts& costs, std::vector<GroupCounts> sets,
           std::vector<int> micro_batches, bool few, double enough = kNever);

  /// From now on only sets of so many devices are replicas.
  void want_stages(std::optional<int> stages) { stages_ = stages; }

  /// A set whose devices may share stages is there once for each number of stages.
  size_t count() const override { return forms_.size(); }
  const GroupCounts& devices(size_t set) const override { return lattice_.sets()[base(set)]; }
  int stages(size_t set) const override { return forms_[set].stages; }
  /// No pipeline of the set computes so many samples in less; kNever where none fits, or as long as
  /// is of no interest.
  double seconds(size_t set, int samples) override;
  double seconds_at_least(size_t set, int samples) override;
  /// However many they are.
  double seconds_per_sample(size_t set) const { return per_sample_[set]; }
  /// Of more than 32 perhaps one in 32 too many, never too few.
  int grains_within(size_t set, const GrainLimit& limit) override;
  /// Of very many sets by what they compute alone, of few devices with what they wait for each
  /// other, until grains_within() is asked.
  int grains_at_most(size_t set, const GrainLimit& limit) override;
  /// Whether there are so many sets that only those are cut that bounds may rest on.
  bool are_many() const { return many_; }
  /// Whether a bound may rest on the set: of very many those whose grains were asked for.
  bool may_be_used(size_t set) const { return !many_ || asked_[set]; }
  /// The pipelines behind the bounds that are known and below `limit`, none for a whole replica. Of
  /// devices that share nothing.
  std::vector<Pipeline> pipelines(size_t set, int samples, double limit);
  /// Looks for the quickest of the set, so that its bound is no longer below it, if so many nodes
  /// are enough. Nothing where that was done before, or none fits.
  std::optional<Pipeline> prove(size_t set, int samples, int64_t most_nodes);
  int64_t nodes() const { return nodes_; }

 private:
  static constexpr double kUnknown = -1;
  struct Known {
    std::vector<double> seconds;    ///< by set; kUnknown: not asked for yet
    std::unique_ptr<SetCuts> cuts;  ///< null: not kept
  };
  double cut_seconds(size_t set, size_t size, int samples);
  /// Whether not all numbers of samples are cut.
  bool is_near_enough() const { return few_ && many_; }
  int micro_batches_in(size_t size, int samples) const;
  /// Full ones that take no longer, where samples are enough for one, and there are no fewer of
  /// them than stages.
  double micro_batches_at_least(size_t set, size_t size, int samples) const;
  double near_seconds(size_t set, size_t size, int samples);
  double seconds_of_size(size_t set, size_t size, int samples, double limit);
  SetCuts& cuts(size_t size, int samples);
  /// Nanoseconds; counts what is cut for it.
  int64_t least(SetCuts* cuts, size_t set);
  double least_of_whole(size_t set, int samples);
  /// A set of the lattice in a number of stages.
  struct Form {
    size_t set = 0;
    int stages = 0;
    int group = -1;  ///< that the only stage is of
  };
  size_t base(size_t set) const { return forms_[set].set; }
  bool is_one_stage(size_t set) const { return stages(set) == 1; }
  void find_forms();
  bool is_wanted(size_t set) const { return stages_.value_or(size(set)) == size(set); }
  int size(size_t set) const { return lattice_.size(base(set)); }
  double whole_seconds(int group, int micro_batch, int samples) const;
  double proved(size_t set, int samples) const;
  bool within(size_t set, int samples, double limit);
  int find_grains_within(size_t set, const GrainLimit& limit);
  /// Micro-batches that may be quickest, by number, the likely first, with bounds on their times
  /// from those of other samples, none above `limit`. Of those that one micro-batch is enough for
  /// the first only. Valid until it is asked again.
  const std::vector<std::pair<double, size_t>>& likely(size_t set, int samples, double limit);
  double known_least(size_t size, size_t set, int samples) const;
  int most_grains(size_t set, const GrainLimit& limit) const;
  double filled_least(size_t size, size_t set, int samples) const;
  std::vector<double> rates_of_groups(int micro_batch) const;
  void find_rates();

  PipelineCosts costs_;
  bool few_;  ///< devices
  double enough_;
  bool many_;  ///< sets, times layers: not all are cut
  std::optional<int> stages_;
  SetLattice lattice_;
  std::vector<Form> forms_;
  std::vector<int> micro_batches_;
  std::vector<std::map<int, Known>> known_;            ///< by micro-batch, then samples
  std::map<std::pair<size_t, int>, double> of_whole_;  ///< sets of one, by samples
  std::vector<std::map<int, double>> proved_;          ///< seconds of each set, by samples
  std::vector<std::vector<double>>
      rates_;  ///< by micro-batch: of devices' groups, of the work in it a second
  std::vector<std::vector<double>> part_of_rest_;    ///< by micro-batch, then its samples
  std::vector<std::vector<size_t>> quickest_first_;  ///< groups, by micro-batch
  std::vector<double> per_sample_;                   ///< of each set, at least
  /// Grains within seconds, of which one lacks samples; by set, of those that were asked for.
  std::map<std::pair<double, int>, std::vector<std::optional<int>>> within_;
  std::vector<bool> asked_;  ///< by set
  std::vector<std::pair<double, size_t>> likely_;
  int64_t kept_ = 0;   ///< bytes of all cuts that are
  int64_t nodes_ = 0;  ///< sets that were cut, and stages placed
};

}  // namespace motley
