#pragma once
// What trains a model, of memory alone: which devices hold it whole, and which few of one or two
// types hold it as a pipeline. How fast that is, is for searches to say. Pure.
//
// Of a pipeline every stage takes as many layers as its device holds, whatever the order of the
// devices: whoever starts later never needs more. So the most layers that i devices of one type and
// j of the other hold are known from those of one device less, and a mix is tried in i·j steps.

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "core/plan.h"
#include "core/precision.h"
#include "core/result.h"

namespace motley {

/// Of which there may be any number.
struct FitType {
  std::string type;
  Bytes usable{0};  ///< its memory less headroom
  Bytes memory{0};
  std::vector<Precision> precisions = {};  ///< that the job and the hardware allow; at least one
  double price_per_hour = 0;               ///< 0: not known
  double flops_per_second = 0;  ///< in the fastest of them; of equals the slower is meant
};

/// Layers of one pipeline on one device.
struct FitStage {
  LayerIndex first = 0;
  LayerIndex last = 0;
  Precision precision = Precision::kFp32;
};

/// Bytes that each stage of a pipeline of one replica needs of its device.
using CountStages = std::function<Result<std::vector<Bytes>>(const std::vector<FitStage>& stages)>;

struct MixStage {
  size_t type = 0;  ///< of the types asked for
  FitStage layers;
  Bytes needs{0};
};

/// A pipeline that fits, in the order of its stages.
struct FitMix {
  std::vector<MixStage> stages;
  Bytes memory{0};  ///< of all its devices
};

/// Bytes that each of so many whole replicas needs at most where they share the optimizer's state.
using CountShards = std::function<Result<Bytes>(int replicas, Precision precision)>;

/// Whole replicas of one type that fit because each keeps a part of the state.
struct FitShards {
  size_t type = 0;
  int devices = 0;
  Precision precision = Precision::kFp32;
  Bytes needs{0};
};

/// Each count is asked for once.
class MemoryFit {
 public:
  /// `micro_batches`: of a step, as many as a pipeline can have in flight; `least`: what the stages
  /// of any pipeline need together at least.
  MemoryFit(std::vector<FitType> types, int layers, int micro_batches, CountStages count,
            Bytes least = Bytes(0))
      : types_(std::move(types)),
        layers_(layers),
        micro_batches_(micro_batches),
        count_(std::move(count)),
        least_(least) {}

  const std::vector<FitType>& types() const { return types_; }

  Result<Bytes> whole(Precision precision);
  /// In the first of its precisions in which it holds the model.
  Result<std::optional<Precision>> holds_whole(size_t type);
  /// Of those that hold it the one with the least memory, then the cheapest, then the slowest.
  Result<std::optional<size_t>> smallest_device();
  /// The pipeline of fewest devices, from 2 to `most`, then of least memory, then the cheapest,
  /// then the slowest; all of one type, or of two. No device of it holds the model alone, unless
  /// there is no other pipeline.
  Result<std::optional<FitMix>> smallest_mix(bool unlike, int most);
  /// Of a type that does not hold the model alone the fewest replicas, from 2 to `most`, as above.
  Result<std::optional<FitShards>> smallest_sharded(int most, const CountShards& count) {
    return smallest_replicas(2, most, count);
  }
  /// The same of one device, whose model is counted in another way.
  Result<std::optional<FitShards>> smallest_otherwise(const CountShards& count) {
    return smallest_replicas(1, 1, count);
  }
  /// A pipeline of so many of one type and of another (may be 0), in any order.
  Result<std::optional<FitMix>> pipeline(size_t one, int ones, size_t other, int others);

 private:
  /// What decides the bytes of a stage: micro-batches in flight, embedding, blocks, head.
  using Shape = std::tuple<int, bool, int, bool, Precision>;
  struct Reach {
    int layers = 0;         ///< held by the stages so far; 0: not possible
    bool by_other = false;  ///< the last of them is of the other type
    FitStage last = {};
  };

  Shape shape_of(const FitStage& stage, int number, int stages) const;
  Result<Bytes> bytes(const FitStage& stage, int number, int stages);
  Result<std::optional<FitStage>> furthest(const FitType& type, LayerIndex first, int number,
                                           int stages);
  Result<std::optional<FitMix>> counted(std::vector<MixStage> stages);
  Result<std::optional<FitMix>> smallest_of(bool unlike, int most,
                                            const std::vector<bool>& left_out);
  Result<std::optional<FitShards>> smallest_replicas(int least, int most, const CountShards& count);

  std::vector<FitType> types_;
  int layers_;
  int micro_batches_;
  CountStages count_;
  Bytes least_;
  std::map<Shape, Bytes> known_;
};

}  // namespace motley
