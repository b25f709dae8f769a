#pragma once
// Devices and layers as the search for pipelines sees them: tables instead of curves.

#include <array>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "core/ids.h"
#include "core/profile.h"
#include "planner/costs/layer_memory.h"
#include "planner/costs/layer_times.h"
#include "planner/pipelines/pipeline_end.h"
#include "planner/request.h"

namespace motley {

/// Devices of which everything measured is equal.
struct DeviceGroup {
  std::vector<const DeviceSpec*> devices;  ///< in fleet order
  const DeviceProfile* profile = nullptr;  ///< of the first
  Precision precision = Precision::kFp32;  ///< it computes in

  int count() const { return static_cast<int>(devices.size()); }
};

/// Whether devices on different hosts are different.
enum class GroupBy { kHost, kType };

/// The admitted devices by group, groups in the order of their first devices. kInvalidSpec where
/// the profile lacks one.
Result<std::vector<DeviceGroup>> group_devices(const PlanRequest& request, GroupBy by);

/// Consecutive layers on one device of a group.
struct PipelineStage {
  int group = 0;
  LayerIndex first = 0;
  LayerIndex last = 0;

  bool operator==(const PipelineStage&) const = default;
};

/// A replica of single-device stages.
struct Pipeline {
  std::vector<PipelineStage> stages;
  int micro_batch = 0;

  bool operator==(const Pipeline&) const = default;
};

/// Prices of stages and pipelines by the formulas of predict(), without its plans.
class PipelineCosts {
 public:
  /// Layers at these micro-batches and less; of blocks, `recompute` in every backward pass. Without
  /// a counter nothing may be asked of memory.
  static Result<PipelineCosts> make(const PlanRequest& request,
                                    const std::vector<DeviceGroup>& groups,
                                    const std::vector<int>& micro_batches, const CountLayers& count,
                                    Recompute recompute = Recompute::kNone);

  int groups() const { return static_cast<int>(groups_.size()); }
  int layers() const { return layers_; }
  /// Whether the group can be priced: all kinds of its layers were measured.
  bool priced(int group) const { return groups_[index(group)].priced; }
  /// Whether, by the sum over its layers, a device holds them with so many micro-batches in flight.
  bool fits(const PipelineStage& stage, int micro_batch, int in_flight) const;
  /// What the layers of a stage need one by one is from now on taken times so much.
  void take_layers_for_less(double times) { of_layers_ = times; }
  /// From now on no stage holds more than this part of the model's elements.
  void hold_at_most(double part) { most_held_ = part; }
  /// What a stage holds of them.
  double held(const PipelineStage& stage) const;
  /// From now on ways are as quick as the quickest link between any hosts of two groups.
  void take_quickest_ways() { ways_ = quickest_ways_; }
  /// From now on neither this stage fits nor one of as many layers and more in flight.
  void exclude(const PipelineStage& stage, int micro_batch, int in_flight);
  /// Every stage, with so many samples in a step.
  bool fits(const Pipeline& pipeline, int samples) const;
  /// The stage was counted to need more than it was taken to, for copies on their way to others and
  /// to checkpoints. From now on stages of the group are taken to need as much more as any that was
  /// counted, or as much in proportion to what is fixed, whichever is less.
  void correct(const PipelineStage& stage, int micro_batch, int in_flight, Bytes needs);

  /// From now on the last micro-batch takes no longer than a larger one would: for bounds that
  /// rise with samples, whatever was measured.
  void take_least_for_rests();

  /// One micro-batch through the layers; without what begins sections.
  PassSeconds pass(const PipelineStage& stage, int samples) const;
  double overhead(int group) const { return groups_[index(group)].profile->step_overhead_seconds; }
  /// Of what the stage holds; 0 at least.
  double update_seconds(const PipelineStage& stage) const;
  /// Of a micro-batch's activations from one device to another, over the slowest link between any
  /// of their hosts.
  Nanos travel(int from, int to, int samples) const;

  /// What stage `number` of `stages` takes for each micro-batch of a step, as
  /// planner/costs/replica_times.h has it; what it sends to others is left at no time.
  AlikePasses passes(const PipelineStage& stage, int number, int stages, int micro_batch,
                     int samples) const;
  /// Of a step of so many samples.
  double seconds(const Pipeline& pipeline, int samples) const;

  /// No plan, however it is cut, computes a step in less: every device at its best on what it is
  /// best at, all the time, each as often as counts say.
  double least_seconds(const std::vector<int>& counts, int samples) const;

 private:
  static constexpr size_t kKinds = 3;  ///< embedding, block, head
  using LayerCounts = std::array<int, kKinds>;
  struct Excluded {
    LayerCounts layers{};
    int micro_batch = 0;
    int in_flight = 0;
  };
  struct Group {
    const DeviceProfile* profile = nullptr;
    std::set<std::string> hosts;
    Bytes usable{0};
    Precision precision = Precision::kFp32;
    double most_besides = 0;           ///< bytes
    double most_besides_of_fixed = 0;  ///< as a share of what is fixed
    bool priced = false;
    std::vector<PassSeconds> passes[kKinds];  ///< by samples, 1 on
    std::vector<PassSeconds> rests[kKinds];   ///< the same of the last micro-batch
    double least_per_sample[kKinds] = {};
    std::vector<LayerMemory> memory[kKinds];  ///< by micro-batch; of those that were asked for
    std::vector<Excluded> excluded;
  };

  static size_t index(int number) { return static_cast<size_t>(number); }
  /// What fits() looks at.
  struct StageBytes {
    double fixed = 0;
    double passes = 0;  ///< what is in flight, and the largest transient
    double sum() const { return fixed + passes; }
  };
  StageBytes bytes(const PipelineStage& stage, int micro_batch, int in_flight) const;
  PassSeconds last_pass(const PipelineStage& stage, int samples) const;
  static PassSeconds pass_of(const LayerCounts& layers, const std::vector<PassSeconds>* by_samples,
                             int samples);
  size_t kind_of(LayerIndex layer) const;
  /// Layers of each kind.
  LayerCounts counts_of(const PipelineStage& stage) const {
    const int embedding = stage.first == 0 ? 1 : 0;
    const int head = stage.last + 1 == layers_ ? 1 : 0;
    return {embedding, stage.last - stage.first + 1 - embedding - head, head};
  }
  Result<Unit> measure(const PlanRequest& request, int most_samples, Group* group);
  void be_no_slower_than_whole(int most_samples, Group* group) const;
  Result<Unit> count_memory(const CountLayers& count, DeviceKind kind,
                            const std::vector<int>& micro_batches, Group* group);
  void find_travel(const PlanRequest& request);

  std::vector<Group> groups_;
  double of_layers_ = 1;
  int layers_ = 0;
  std::vector<int64_t> held_;  ///< elements of each kind of layer, the head's tied one included
  int64_t tied_ = 0;           ///< elements that embedding and head share
  int64_t elements_ = 0;
  const ModelSpec* model_ = nullptr;
  Recompute recompute_ = Recompute::kNone;
  struct Way {
    double latency_seconds = 0;
    double bytes_per_second = LinkProfile::kFree;
  };
  double most_held_ = std::numeric_limits<double>::infinity();
  std::vector<Way> quickest_ways_;
  std::vector<Way> ways_;  ///< [from * groups + to]; what nobody measured takes no time
};

}  // namespace motley
