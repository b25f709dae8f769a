#pragma once
// Devices and layers as the search for pipelines sees them: tables instead of curves.

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/ids.h"
#include "core/profile.h"
#include "planner/costs/layer_memory.h"
#include "planner/costs/layer_times.h"
#include "planner/pipelines/pipeline_end.h"
#include "planner/pipelines/tensor_set.h"
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

/// Consecutive layers on one device of a group, or on a tensor set: these are numbered after the
/// groups.
struct PipelineStage {
  int group = 0;
  LayerIndex first = 0;
  LayerIndex last = 0;

  bool operator==(const PipelineStage&) const = default;
};

/// A replica.
struct Pipeline {
  std::vector<PipelineStage> stages;
  int micro_batch = 0;

  bool operator==(const Pipeline&) const = default;
};

/// Prices of stages and pipelines by the formulas of predict(), without its plans.
class PipelineCosts {
 public:
  /// Layers at these micro-batches and less; as few blocks of a stage as let it fit compute
  /// `recompute` again in their backward pass. Without a counter nothing may be asked of memory.
  static Result<PipelineCosts> make(const PlanRequest& request,
                                    const std::vector<DeviceGroup>& groups,
                                    const std::vector<int>& micro_batches, const CountLayers& count,
                                    Recompute recompute = Recompute::kNone);

  int groups() const { return static_cast<int>(groups_.size()); }
  /// Those that are devices: all but what add_shared_at_best() has added.
  int device_groups() const;
  /// Of a group that was added, how many devices of each group share its stages; else empty.
  const std::vector<int>& shared_by(int group) const { return groups_[index(group)].shared_by; }
  int layers() const { return layers_; }
  /// Whether the group can be priced: all kinds of its layers were measured.
  bool priced(int group) const { return groups_[index(group)].priced; }
  /// Whether devices of the group may share stages with others of their host: shares of all kinds
  /// of layers were measured, and the job allows it.
  bool may_share(int group) const { return !groups_[index(group)].shared[0].empty(); }
  /// Numbered after the groups and those there are. Their layers are counted.
  Result<Unit> add_tensor_sets(const std::vector<TensorSet>& sets,
                               const std::vector<int>& micro_batches, const CountLayers& count);
  const std::vector<TensorSet>& tensor_sets() const { return tensor_sets_; }
  /// Null where it is a device's.
  const TensorSet* tensor_set(int group) const {
    return group < groups() ? nullptr : &tensor_sets_[index(group - groups())];
  }
  /// Samples through layers of each kind (embedding, block, head), as a device that has this part
  /// of each computes them.
  double part_seconds(int group, const std::array<int, 3>& layers, double part, int samples) const;
  Bytes usable(int group) const { return groups_[index(group)].usable; }

  Recompute recompute() const { return recompute_; }
  /// Whether any device's blocks may compute again.
  bool any_computes_again() const;
  /// By the sum over its layers, how few blocks of a stage have to compute again so that it fits
  /// with so many micro-batches in flight; nothing where it does not, or cannot be priced.
  std::optional<int> computed_again(const PipelineStage& stage, int micro_batch,
                                    int in_flight) const;
  bool fits(const PipelineStage& stage, int micro_batch, int in_flight) const {
    return computed_again(stage, micro_batch, in_flight).has_value();
  }
  /// What the layers of a stage need one by one is from now on taken times so much.
  void scale_layers(double times) { of_layers_ = times; }
  /// From now on no stage holds more than this part of the model's elements.
  void hold_at_most(double part) { most_held_ = part; }
  /// What the rank of a stage that holds most of them holds.
  double held(const PipelineStage& stage) const;
  /// From now on ways are as quick as the quickest link between any hosts of two groups.
  void take_quickest_ways() { ways_ = quickest_ways_; }
  /// Every stage, with so many samples in a step.
  bool fits(const Pipeline& pipeline, int samples) const;
  /// Of a rank that was counted to need more than it was taken to, for copies on their way to
  /// others and to checkpoints.
  struct Counted {
    PipelineStage stage;
    int member = 0;
    int micro_batch = 0, in_flight = 0;
    int again = 0;   ///< blocks of the stage
    Bytes needs{0};  ///< more than is usable
  };
  /// From now on neither this stage fits so nor one of as many layers and more in flight.
  void exclude(const Counted& counted);
  /// From now on stages of the group are taken to need as much more as any that was counted, or as
  /// much in proportion to what is fixed, whichever is less.
  void correct(const Counted& counted);

  /// From now on no micro-batch, and no last one, takes longer than a larger one would: for bounds
  /// that rise with samples, whatever was measured.
  void rise_with_samples();
  /// What a last micro-batch of so many samples takes at least, as a part of what a full one does.
  double least_part_of_rest(int micro_batch, int samples) const;

  /// From now on, for bounds on plans that share stages, every device is as quick as one of these
  /// sets of devices of a host that it is among, has room for all, and updates in no time; what
  /// begins sections takes as long as where that takes least.
  void share_for_free(const std::vector<std::vector<int>>& sharing);

  /// From now on each of these sets of devices of a host is one more group, for bounds on plans
  /// that share stages: as quick as its devices are at best whatever parts of layers each has, with
  /// all their memory, of which a layer needs no less in parts.
  void add_shared_at_best(const std::vector<std::vector<int>>& sharing);

  /// One micro-batch through the layers, computed once; without what begins sections.
  PassSeconds pass(const PipelineStage& stage, int samples) const;
  /// The same of a step's last micro-batch where that is smaller than the others.
  PassSeconds last_pass(const PipelineStage& stage, int samples) const;
  /// Whether the stage's device, or that member of its tensor set, has no room for its state, which
  /// then lies in host memory, with so many of its blocks computed again.
  bool keeps_state_in_host(const PipelineStage& stage, int number, int micro_batch, int in_flight,
                           int again) const;
  /// Of what the stage holds; 0 at least.
  double update_seconds(const PipelineStage& stage, int micro_batch, int in_flight,
                        int again) const;
  /// Of a micro-batch's activations from one device to another, over the slowest link between any
  /// of their hosts.
  Nanos travel(int sender, int receiver, int samples) const;

  /// What stage `number` of `stages` takes for each micro-batch of a step, as
  /// planner/costs/replica_times.h has it; what it sends to others is left at no time.
  AlikePasses passes(const PipelineStage& stage, int number, int stages, int micro_batch,
                     int samples) const;
  /// Of stage `number` of `stages`, how many blocks compute again in a step of so many samples.
  int blocks_again(const PipelineStage& stage, int number, int stages, int micro_batch,
                   int samples) const;
  /// Of a step of so many samples.
  double seconds(const Pipeline& pipeline, int samples) const;

  /// That pass through all blocks in a second on these devices at most, which do nothing else.
  double samples_through_blocks(const std::vector<int>& counts) const;
  /// What a sample's embedding and head take at least, in samples through all blocks for which they
  /// leave no time.
  double ends_in_blocks() const;
  /// No plan, however it is cut, computes a step in less: every device at its best on what it is
  /// best at, all the time, each as often as counts say.
  double least_seconds(const std::vector<int>& counts, int samples) const;
  /// No step costs less, where a second of a device of each group costs so much: every layer and
  /// every update where that is cheapest. 0 where a group was not measured by layers.
  double least_cost(const std::vector<double>& prices, int samples) const;
  /// The same of plans in which these devices of one host, so many of each group, share a stage
  /// and others may; 0 of each: whichever do. Of all that are there it uses `most_devices`.
  double least_seconds_sharing(const std::vector<int>& sharing, const std::vector<int>& counts,
                               int samples,
                               int most_devices = std::numeric_limits<int>::max()) const;

 private:
  static constexpr size_t kKinds = 3;  ///< embedding, block, head
  using LayerCounts = std::array<int, kKinds>;
  struct Excluded {
    LayerCounts layers{};
    int micro_batch = 0;
    int in_flight = 0;
    int again = 0;  ///< with so many blocks that compute again, and fewer
  };
  /// From device to device; what nobody measured takes no time.
  struct Way {
    double latency_seconds = 0;
    double bytes_per_second = LinkProfile::kFree;
    void be_no_quicker_than(double latency, double bandwidth) {
      latency_seconds = std::max(latency_seconds, latency);
      bytes_per_second = std::min(bytes_per_second, bandwidth);
    }
    void be_no_slower_than(double latency, double bandwidth) {
      latency_seconds = std::min(latency_seconds, latency);
      bytes_per_second = std::max(bytes_per_second, bandwidth);
    }
  };
  struct Group {
    const DeviceProfile* profile = nullptr;
    std::vector<int> shared_by;        ///< devices of each group; of one that is a set of them
    std::map<std::string, int> hosts;  ///< and devices on each
    double begins_seconds = 0;         ///< of a section
    double update_seconds = 0;         ///< of all elements
    double host_update_seconds = 0;    ///< the same of state that there is no room for; 0: it stays
    Bytes usable{0};
    Precision precision = Precision::kFp32;
    DeviceKind driven = DeviceKind::kCpu;  ///< what memory is counted of
    double most_besides = 0;               ///< bytes
    double most_besides_of_fixed = 0;      ///< as a share of what is fixed
    bool priced = false;
    std::vector<PassSeconds> passes[kKinds];  ///< by samples, 1 on
    std::vector<PassSeconds> rests[kKinds];   ///< the same of the last micro-batch
    /// More for the backward pass of a block that computes again, by samples; empty: none may.
    std::vector<double> again;
    using Least = std::array<double, kKinds>;
    Least least_per_sample{};                 ///< of whole layers, by kind
    Least least_of_any_per_sample{};          ///< of these and of parts
    std::vector<LayerMemory> memory[kKinds];  ///< by micro-batch; of those that were asked for
    std::vector<LayerMemory> memory_again;    ///< the same of a block that computes again
    std::vector<Excluded> excluded;
    std::vector<SharedLayer> shared[kKinds];  ///< by samples, 1 on; empty: it shares nothing
    GroupSums sums[kKinds];                   ///< of a sample
    Way within;                               ///< the slowest of its hosts
    Way within_quickest;
    std::map<int, std::vector<LayerMemory>> memory_of_heads[kKinds];  ///< as memory
    std::map<int, std::vector<LayerMemory>> memory_again_of_heads;
  };
  /// What of a tensor set's stages falls to a member.
  struct Part {
    double of[kKinds] = {};     ///< layers
    int64_t held[kKinds] = {};  ///< elements
    int64_t tied = 0;
  };
  struct Sharing {
    std::vector<Part> parts;  ///< by member
    Way way;                  ///< from one to another
    std::vector<Excluded> excluded;
  };

  static size_t index(int number) { return static_cast<size_t>(number); }
  /// What fits() looks at.
  struct StageBytes {
    double fixed = 0;
    double passes = 0;  ///< what is in flight, and the largest transient
    double state = 0;   ///< that is counted apart
    double sum() const { return fixed + passes; }
  };
  /// What is held of a device's stage, or of a member's.
  struct Held {
    int group = 0;
    int heads = 0;  ///< of whole layers 0
    LayerCounts layers{};
    int micro_batch = 0, in_flight = 0;
  };
  const LayerMemory& memory(const Held& held, size_t kind) const;
  const LayerMemory& memory_again(const Held& held) const;
  StageBytes bytes(const Held& held, int again) const;
  /// Of the embedding's bytes, the part of what is tied.
  double tied_once(const Held& held, Bytes embedding) const;
  /// For so many bytes of a stage's layers, with what was learnt of the group.
  bool has_room(const Group& group, const StageBytes& stage, double bytes) const;
  bool fits(const Held& held, int again) const;
  bool keeps_state_in_host(const Held& held, int again) const;
  /// Of all elements.
  double update_seconds(const Held& held, int again) const;
  /// From `low` on; `most` + 1 where none up to it do.
  int fewest_again(const Held& held, int low, int most) const;
  /// Whether all devices of the group's stages can.
  bool may_compute_again(int group) const;
  /// A device's group and, of a tensor set's member, heads; else 0.
  TensorSet::Member member(int group, int number) const;
  const std::vector<Excluded>& excluded(int group) const {
    return group < groups() ? groups_[index(group)].excluded
                            : sharing_[index(group - groups())].excluded;
  }
  double begins(int group) const {
    return free_begins_ ? *free_begins_ : groups_[index(group)].begins_seconds;
  }
  bool is_shared_for_free() const { return free_begins_.has_value(); }
  Group shared_at_best(const std::vector<int>& sharing) const;
  void add_ways(const std::vector<std::vector<int>>& sharing, std::vector<Way>* ways) const;
  PassSeconds least_shared(const std::vector<int>& sharing, size_t kind, size_t samples) const;
  double least_again(const std::vector<int>& sharing, size_t samples) const;
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
  Result<Unit> count_memory(const CountLayers& count, const std::vector<int>& micro_batches,
                            Group* group);
  /// By micro-batch.
  static Result<std::vector<LayerMemory>> counted_of(const LayerMemoryTable& table, size_t kind,
                                                     int heads,
                                                     const std::vector<int>& micro_batches);
  void find_travel(const PlanRequest& request);
  static void find_ways_within(const PlanRequest& request, Group* group);
  void measure_shares(const PlanRequest& request, int most_samples, Group* group);
  void be_no_slower_than_shares(Group* group) const;
  Result<Unit> measure_again(const PlanRequest& request, int most_samples, Group* group) const;
  Result<Unit> count_heads(const CountLayers& count, const std::vector<int>& micro_batches,
                           std::vector<int> heads, Group* group);
  Part part_of(const TensorSet& set, int member) const;
  /// What one micro-batch through a tensor set's stage has besides its layers.
  struct SharedSections {
    bool begins_forward = false, begins_backward = false;
    int again = 0;  ///< blocks
  };
  PassSeconds shared_pass(const PipelineStage& stage, int samples,
                          const SharedSections& sections) const;
  /// Of as many ranks, one of group `first` among them.
  double sum_seconds(int first, int ranks, const Way& way, const LayerCounts& layers,
                     int samples) const;
  double least_sum_seconds(const std::vector<int>& sharing, size_t kind, int samples) const;
  /// Of all elements, what the member of a tensor set holds.
  double shared_held(const PipelineStage& stage, int member) const;
  AlikePasses shared_passes(const PipelineStage& stage, int number, int stages, int micro_batch,
                            int samples) const;
  /// In a second, at best, at prices of samples through layers that serve the times of a group.
  double earned_sharing(const std::vector<int>& sharing, const Group& prices) const;
  /// The same of the others, each for itself: the best paid, `most_devices` with those that share.
  double earned_beside(const std::vector<int>& sharing, const std::vector<int>& counts,
                       const Group& prices, int most_devices) const;
  static double best_paid(const Group::Least& own, const Group::Least& prices);
  double wanted(const Group::Least& prices, int samples) const;
  /// The group of a stage's first device.
  int face(int group) const { return member(group, 0).group; }

  std::vector<Group> groups_;
  double of_layers_ = 1;
  int layers_ = 0;
  std::vector<int64_t> held_;  ///< elements of each kind of layer, the head's tied one included
  int64_t tied_ = 0;           ///< elements that embedding and head share
  int64_t elements_ = 0;
  const ModelSpec* model_ = nullptr;
  Recompute recompute_ = Recompute::kNone;  ///< of blocks that compute again
  std::vector<TensorSet> tensor_sets_;
  std::vector<Sharing> sharing_;  ///< of each
  double most_held_ = std::numeric_limits<double>::infinity();
  std::optional<double> free_begins_;  ///< seconds; set where stages are shared for free
  std::vector<Way> quickest_ways_;
  std::vector<Way> ways_;  ///< [from * groups + to]; what nobody measured takes no time
};

}  // namespace motley
