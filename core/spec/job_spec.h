#pragma once
// A job as its author wrote it, checked and with defaults filled in (DESIGN.md §4).

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/compression.h"
#include "core/ids.h"
#include "core/model.h"
#include "core/precision.h"
#include "core/result.h"
#include "core/spec/pin_spec.h"
#include "core/units.h"

namespace motley {

enum class Numerics { kFast, kExact };
/// Whether plans shard the optimizer's state.
enum class ShardOptimizer { kAuto, kOn, kOff };
enum class PaceClock { kSleep, kVirtual };

struct DataSpec {
  std::vector<std::string> text;   ///< globs as written, relative to the job file
  std::vector<std::string> files;  ///< what they matched: absolute, sorted, no duplicates
  std::string tokenizer = "bytes";
  double held_out = 0.05;  ///< share of the samples kept from training, for evaluation

  // For messages only; not in JSON.
  std::vector<SourcePlace> file_places = {};  ///< of the pattern that matched each file
};

struct OptimizerSpec {
  std::string type = "adamw";
  double lr = 6e-4;
  double beta1 = 0.9, beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
  double clip = 1.0;  ///< global gradient norm; 0: none
  bool operator==(const OptimizerSpec&) const = default;
};

struct ScheduleSpec {
  std::string type = "cosine";  ///< cosine | constant
  int64_t warmup = 0;           ///< steps
  double min_lr = 0;
  bool operator==(const ScheduleSpec&) const = default;
};

struct EvalSpec {
  int64_t every = 0;  ///< steps; 0: only at the end
  int samples = 64;
};

struct TrainSpec {
  int global_batch = 0;      ///< samples per step, whatever the fleet
  std::optional<int> grain;  ///< samples; unset: the planner chooses (required by exact)
  int64_t steps = 0;
  OptimizerSpec optimizer;
  ScheduleSpec schedule;
  Precision precision = Precision::kAuto;
  std::map<std::string, Precision> precision_by_type;  ///< of devices whose type_matches() the key
  std::optional<int64_t> loss_scale;  ///< of fp16, a power of two; unset: found while training
  Numerics numerics = Numerics::kFast;
  uint64_t seed = 1337;
  EvalSpec eval;

  static constexpr int64_t kMostSteps = 1'000'000'000'000;
  static constexpr int kMostSamples = 1 << 24;        ///< of a batch, a grain, an evaluation
  static constexpr int64_t kMostLossScale = 1 << 15;  ///< fp16 ends at 65504
};

struct CheckpointSpec {
  int64_t every_steps = 0;  ///< 0: by time or only at the end
  Nanos every_time{0};
  int keep = 3;     ///< at least 2 always stay
  std::string dir;  ///< absolute; empty: in the run's directory
};

struct DeviceFilter {
  std::optional<CountRange> count;
  std::vector<std::string> types;  ///< whole '-'-separated prefixes, case ignored
  BytesRange memory;
  bool mix = true;  ///< false: one type only
  /// At most so many devices whose type_matches() the key.
  std::map<std::string, int> limits = {};

  // For messages only; not in JSON.
  std::string key = "resources.devices";  ///< where the job has it, or "any_of.0"

  static constexpr int kMostDevices = 1'000'000;  ///< of a limit
};

/// When ranks agree on what they have learnt.
struct SyncSpec {
  int across = 1;  ///< groups of hosts average every so many steps (core/sync_groups.h); 1: all sum
                   ///< their gradients in each

  static constexpr int kMostAcross = 1'000'000;
};

struct ParallelSpec {
  std::optional<int> data;      ///< replicas; unset: found
  std::optional<int> pipeline;  ///< stages of each replica; unset: found
  std::optional<int> tensor;    ///< devices that share each stage; 1: none do; unset: found
  bool recompute = true;        ///< allowed where memory does not suffice otherwise
  ShardOptimizer shard_optimizer = ShardOptimizer::kAuto;
  bool host_optimizer = true;  ///< its state may lie in host memory, on as few GPUs as needed
  CodecSpec compress;          ///< of gradients, on the links that the planner names
  SyncSpec sync;

  static constexpr int kMostReplicas = 1'000'000;
};

struct RetrySpec {
  int max_restarts = 5;
  bool exclude_failed_devices = true;

  static constexpr int kMostRestarts = 1'000'000;
};

/// The job of the service from whose checkpoint another one begins.
struct Resumes {
  int64_t job = 0;   ///< 0: none, it begins anew
  int64_t step = 0;  ///< of the checkpoint; 0: the newest that is whole
  bool operator==(const Resumes&) const = default;
};

/// What the job service goes by; `motley run` has no queue and leaves it alone.
struct ServiceSpec {
  int priority = 50;  ///< 0 to 100; higher goes first
  std::string queue = "default";
  std::vector<int64_t> after;  ///< jobs of the service that must have succeeded before it starts
  std::map<std::string, std::string> labels;
  Nanos max_duration{0};     ///< with devices, over all attempts that train; 0: any
  bool preemptible = false;  ///< may be stopped with a checkpoint for another and go on later
  Nanos stop_grace{0};       ///< to save and end in, once asked to stop; 0: as long as is usual
  Resumes resumes;           ///< only `motley resume` says so, no job file
  bool operator==(const ServiceSpec&) const = default;

  static constexpr int kMostPriority = 100;
  static constexpr size_t kMostLabels = 64;
  static constexpr size_t kMostBefore = 1000;  ///< jobs that it comes after
};

/// Which one of an array's jobs it is: they were submitted as one.
struct ArrayTask {
  int index = 0;    ///< as written, or its place among the combinations
  int size = 0;     ///< jobs of the array; 0: it is of none
  int at_once = 0;  ///< of them at most so many have devices at one time; 0: any number
  bool operator==(const ArrayTask&) const = default;

  static constexpr int kMostTasks = 1000;
};

/// A program of anybody's instead of a model: started once for each device.
struct ProgramSpec {
  std::vector<std::string> command;  ///< empty: the job is a model
  std::string workdir;               ///< absolute; empty: the job file's directory
  std::map<std::string, std::string> env;
  std::vector<std::string> setup;  ///< run once before, in the same place; empty: nothing
  bool operator==(const ProgramSpec&) const = default;

  static constexpr size_t kMostWords = 1024;
};

struct JobSpec {
  int version = 1;
  std::string name;
  std::string source;      ///< the file it was read from, for messages
  std::string fleet_path;  ///< absolute; empty: what this machine has
  ModelSpec model;
  DataSpec data;
  TrainSpec train;
  CheckpointSpec checkpoint;
  DeviceFilter devices;
  /// Instead of `devices`, the earlier ones are liked better; empty: `devices`. What runs or is
  /// planned has chosen one (choose_alternative()).
  std::vector<DeviceFilter> any_of;
  ParallelSpec parallel;
  PinSpec pin;
  RetrySpec retry;
  ServiceSpec service;
  ArrayTask array;
  ProgramSpec program;

  static constexpr size_t kMostAlternatives = 16;
  static constexpr size_t kLongestName = 64;

  bool is_program() const { return !program.command.empty(); }

  // For messages only; not in JSON.
  std::map<std::string, SourcePlace, std::less<>> places = {};  ///< of values: "train.grain"
};

/// Where the job says `key`, else what is nearest above it; without a line when it was not read
/// from YAML.
SourcePlace place_of(const JobSpec& job, std::string_view key);

/// The tokenizer "bytes" needs this many entries of a vocabulary.
inline constexpr int kByteVocabulary = 256;

/// A contradiction between keys, or a value nothing can be done with.
struct SpecFault {
  std::string key;  ///< "train.grain"
  std::string what;
};
/// What the rest of the program relies on, wherever the job came from: YAML and JSON both end here.
std::optional<SpecFault> first_fault(const JobSpec& job);

/// The first key under model, data, train (except steps and eval), or of a program, that differs,
/// e.g. "train.optimizer.lr"; empty when a run of `before` may be continued with `after`.
std::string first_incompatible_key(const JobSpec& before, const JobSpec& after);

}  // namespace motley
