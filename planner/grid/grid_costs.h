#pragma once
// Plans of equal pipelines, and what a search needs to know to price them: a grid of stages by
// replicas, in which each stage has the same layers in every replica, and as many devices of one
// type, unless a few replicas are of others. The form for fleets of many like devices, where only
// how often a type is there matters.
//
// The step is  (passes - 1)·max busy + sum of paths + max update + max reduction  over the stages.
// Of a stage each time is that of the slowest replica. Which sends count into what is the cost
// model's own; this is the seam behind which models stand.

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace motley {

/// The devices of a stage in one replica: so many of a type, each with a share of every tensor.
struct GridConfig {
  int type = 0;
  int degree = 1;

  bool operator==(const GridConfig&) const = default;
};

/// Of the devices of one type, how many groups of so many there are, each on one host, by their
/// size; of 1, all there are. Sizes divide each other, so that groups are cut of larger ones.
using GridGroups = std::map<int, int>;

/// Consecutive layers, [first, end).
struct GridStage {
  int first = 0;
  int end = 0;
  GridConfig config;

  bool operator==(const GridStage&) const = default;
};

/// So many replicas, one after another, whose stages have the same devices.
struct GridReplicas {
  int count = 0;
  std::vector<GridConfig> configs;  ///< by stage

  bool operator==(const GridReplicas&) const = default;
};

struct GridPlan {
  int micro_batch = 0;
  int replicas = 0;  ///< in all
  std::vector<GridStage> stages;
  /// The last ones, which compute as many samples on other devices than those of `stages`.
  std::vector<GridReplicas> unlike = {};
};

/// All replicas in their order, those of `stages` first.
std::vector<GridReplicas> replicas_of(const GridPlan& plan);
/// Of a type that all replicas have.
int devices_of(const GridPlan& plan, int type);
/// Which of them send gradients of a stage to which, both of the least degree that one of them has;
/// a single one to itself.
std::vector<std::pair<GridConfig, GridConfig>> neighbours(const std::vector<GridReplicas>& replicas,
                                                          size_t stage);

/// What takes so long is not possible: where nobody measured a link. Finite, as it may count 0
/// times.
inline constexpr double kNoGridSeconds = 1e18;

/// How often the time to send what comes into a stage (to and from the one before it), and what
/// goes out of it, counts: in what the stage is busy with, and on the way of one micro-batch.
struct SendWeights {
  double in_busy = 0;
  double out_busy = 0;
  double in_path = 0;
  double out_path = 0;
};

/// All times in seconds; stages of `layers` layers, types by number. Pure.
class GridCosts {
 public:
  virtual ~GridCosts() = default;

  virtual int layers() const = 0;
  virtual int types() const = 0;
  virtual int global_batch() const = 0;  ///< samples
  /// At which anything was measured, rising.
  virtual std::vector<int> micro_batches() const = 0;
  /// Degrees of tensor parallelism at which a type was measured, rising.
  virtual std::vector<int> degrees(int type, int micro_batch) const = 0;
  /// Forward and backward pass of one micro-batch.
  virtual double compute(GridConfig config, int micro_batch, int layer) const = 0;
  /// The output of a layer, from a stage to its neighbour.
  virtual double send(int layer, int micro_batch, GridConfig from, GridConfig to) const = 0;
  virtual double update(const GridStage& stage, int micro_batch) const = 0;
  /// Of a stage's gradients over its replicas, where one of them sends to the next, which is of
  /// config `next`; both of the least degree that some replica of the stage has.
  virtual double reduction(const GridStage& stage, GridConfig next, int replicas) const = 0;
  double reduction(const GridStage& stage, int replicas) const {
    return reduction(stage, stage.config, replicas);
  }
  /// Whether no reduction takes less over more replicas.
  virtual bool reductions_rise() const = 0;
  /// How many stages from the end, itself included, it may be for its devices to hold it and the
  /// micro-batches in flight; 0: they never do.
  virtual int farthest_from_end(const GridStage& stage, int micro_batch, int passes) const = 0;
  /// Of the stage that is so many from the end (1: the last), the first of all or not. But for the
  /// last they do not fall with the distance.
  virtual SendWeights weights(int from_end, bool first) const = 0;

  /// Seconds of a step, by the form above.
  double step_seconds(const GridPlan& plan) const;
  /// Of what all replicas sum of a stage. `replicas` are those of a plan.
  double reduction_of(const GridStage& stage, size_t number,
                      const std::vector<GridReplicas>& replicas) const;
  /// Micro-batches of a replica in a step.
  int passes(int micro_batch, int replicas) const;
};

}  // namespace motley
