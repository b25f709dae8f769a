#pragma once
// How the devices of one replica are best put in a row: for each set of devices a few designs, of
// which one is quick for few samples and another for many.

#include <limits>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "planner/pipelines/pipeline_cut.h"
#include "planner/pipelines/shared_rows.h"

namespace motley {

/// How many devices of each group a replica has.
using GroupCounts = std::vector<int>;

/// Devices of all groups.
inline int number_of(const GroupCounts& set) { return std::accumulate(set.begin(), set.end(), 0); }

/// How hard they are looked for.
struct DesignEffort {
  size_t most_orders = 2;
  int64_t most_nodes = 100;  ///< of each cut
  /// Micro-batches by which as many samples take so many times the least are passed over.
  double much_slower = 1;
  int most_in_vain = std::numeric_limits<int>::max();  ///< micro-batches that bring nothing
};

/// A set of devices as a replica, and how long it computes for any number of samples.
class ReplicaDesigns {
 public:
  /// The quickest for each of `samples` in each of `micro_batches`, over all orders of the devices,
  /// or where these are more over so many of them; each cut within so many nodes.
  ReplicaDesigns(const PipelineCosts& costs, GroupCounts devices,
                 const std::vector<int>& micro_batches, const std::vector<int>& samples,
                 const DesignEffort& effort);

  /// These, all of the devices.
  ReplicaDesigns(const PipelineCosts& costs, GroupCounts devices,
                 const std::vector<Pipeline>& pipelines);

  /// None yet, and none with a device a stage is possible.
  ReplicaDesigns(const PipelineCosts& costs, GroupCounts devices)
      : costs_(&costs), devices_(std::move(devices)) {}

  /// One more.
  void take(Pipeline pipeline) { keep(std::move(pipeline)); }
  /// From now on by these costs, of which those known until now are a part.
  void price_by(const PipelineCosts& costs) { costs_ = &costs; }
  /// Rows of stages some of which are shared, too, in each of `micro_batches` for each of
  /// `samples`. Where these are more than `most_orders` and there is a design, only its row is
  /// tried with stages put together. Whether any design is new.
  bool share(const std::vector<int>& micro_batches, const std::vector<int>& samples,
             const RowsWanted& wanted, const DesignEffort& effort);
  /// Looks for a quicker one for so many samples, from the quickest known: neighbouring
  /// micro-batches, then other places for two stages, stages shared and other shares, as long as
  /// that helps.
  void improve(const std::vector<int>& micro_batches, int samples, int64_t most_nodes);

  const GroupCounts& devices() const { return devices_; }
  bool possible() const { return !designs_.empty(); }
  /// Whether for each of the samples no pipeline of these devices is quicker.
  bool proved() const { return proved_; }
  /// Whether all pipelines still fit with what was learnt of memory.
  bool still_fits(int samples) const;
  /// What is known of times, where by what was learnt more blocks may have to compute again.
  void forget_times() {
    if (costs_->recompute() != Recompute::kNone) known_.clear();
  }
  /// Seconds of a step, the update before it included; kNever where no design fits.
  double seconds(int samples);
  /// Of these seconds.
  const Pipeline& quickest(int samples);
  /// Of each number of stages the quickest that fits, with its seconds.
  std::vector<std::pair<double, Pipeline>> quickest_by_length(int samples) const;
  /// The most grains within a limit, of `most`, if one of them lacks `missing` samples; 0 where not
  /// one is. Takes seconds to rise with samples.
  int grains_within(double limit, int grain, int missing, int most);
  int64_t nodes() const { return nodes_; }

 private:
  struct Design {
    Pipeline pipeline;
    double busiest = 0;  ///< seconds of a full micro-batch on the stage that takes longest
  };
  struct Quickest {
    double seconds = kNever;
    size_t design = 0;
  };
  const Quickest& find(int samples);
  void be_quickest_of(size_t design, int samples, Quickest* quickest) const;
  /// Seconds of what is found; `cutoff` where nothing is quicker.
  double add(const std::vector<std::vector<int>>& orders, int micro_batch, int samples,
             double cutoff, int64_t most_nodes);
  void share_whole(const std::vector<int>& micro_batches, int samples);
  void share_some(const std::vector<int>& micro_batches, int samples, const DesignEffort& effort);
  double least_seconds_of(const StageRow& row, int samples) const;
  void keep(Pipeline pipeline);
  static StageRow row_of(const Pipeline& pipeline);

  const PipelineCosts* costs_;
  GroupCounts devices_;
  RowsWanted wanted_;
  std::vector<Design> designs_;
  std::map<int, Quickest> known_;  ///< by samples
  int64_t nodes_ = 0;
  bool proved_ = true;
};

}  // namespace motley
