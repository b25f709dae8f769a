#include "core/spec/job_spec.h"

#include <algorithm>

#include "core/spec/names.h"
#include "core/spec/pin_fault.h"

namespace motley {
namespace {

/// Pairs a key with whether it is the same in both; the first difference is the answer.
struct Comparison {
  const char* key;
  bool same;
};

/// The message of validate(model) stands for the whole section.
std::optional<SpecFault> model_fault(const JobSpec& job) {
  const Result<Unit> valid = validate(job.model);
  if (!valid) return SpecFault{"model", valid.error().message};
  if (job.data.tokenizer == "bytes" && job.model.vocab < kByteVocabulary)
    return SpecFault{"model.vocab", "'vocab' must be at least 256 for the tokenizer bytes, found " +
                                        std::to_string(job.model.vocab)};
  return std::nullopt;
}

bool may_use_fp16(const TrainSpec& train) {
  const auto& by_type = train.precision_by_type;
  return train.precision == Precision::kFp16 ||
         std::any_of(by_type.begin(), by_type.end(),
                     [](const auto& entry) { return entry.second == Precision::kFp16; });
}

std::optional<SpecFault> precision_fault(const TrainSpec& train) {
  if (!train.precision_by_type.empty() && train.numerics == Numerics::kExact)
    return SpecFault{"train.precision",
                     "exact numerics need one precision on all devices, not one by type"};
  for (const auto& [type, precision] : train.precision_by_type)
    if (precision == Precision::kFp64)
      return SpecFault{"train.precision",
                       "fp64 of some devices only ('" + type + "'): all need it, or none"};
  if (!train.loss_scale) return std::nullopt;
  const int64_t scale = *train.loss_scale;
  if (scale < 1 || scale > TrainSpec::kMostLossScale || (scale & (scale - 1)) != 0)
    return SpecFault{"train.loss_scale", "'loss_scale' must be 'dynamic' or a power of two up to " +
                                             std::to_string(TrainSpec::kMostLossScale) +
                                             ", found " + std::to_string(scale)};
  if (!may_use_fp16(train))
    return SpecFault{"train.loss_scale", "'loss_scale' is of no use: train.precision has no fp16"};
  return std::nullopt;
}

std::optional<SpecFault> train_fault(const TrainSpec& train) {
  if (train.global_batch < 1 || train.global_batch > TrainSpec::kMostSamples)
    return SpecFault{"train.global_batch",
                     "'global_batch' must be from 1 to " + std::to_string(TrainSpec::kMostSamples)};
  if (train.steps < 1 || train.steps > TrainSpec::kMostSteps)
    return SpecFault{"train.steps",
                     "'steps' must be from 1 to " + std::to_string(TrainSpec::kMostSteps)};
  if (train.grain && (*train.grain < 1 || *train.grain > train.global_batch))
    return SpecFault{"train.grain", "'grain' must be from 1 to global_batch (" +
                                        std::to_string(train.global_batch) + "), found " +
                                        std::to_string(*train.grain)};
  if (train.numerics == Numerics::kExact && !train.grain)
    return SpecFault{"train.numerics",
                     "exact numerics need 'grain' in the job: it decides the bits, so no plan may "
                     "choose it (add train.grain, e.g. " +
                         std::to_string(std::min(4, train.global_batch)) + ")"};
  if (auto fault = precision_fault(train)) return fault;
  if (train.schedule.min_lr > train.optimizer.lr)
    return SpecFault{"train.schedule.min_lr", "'min_lr' is above the optimizer's lr"};
  if (train.eval.samples < 1 || train.eval.every < 0)
    return SpecFault{"train.eval", "'samples' must be at least 1 and 'every' at least 0"};
  return std::nullopt;
}

std::optional<SpecFault> compression_fault(const JobSpec& job) {
  const CodecSpec& codec = job.parallel.compress;
  const std::string name = "'compress': '" + spec_name(codec.kind) + "'";
  if (const auto fault = first_fault(codec))
    return SpecFault{"parallel.compress", "'compress': " + fault->what};
  if (codec.kind == CodecKind::kOff) return std::nullopt;
  if (job.train.numerics == Numerics::kExact && codec.kind != CodecKind::kAuto)
    return SpecFault{"parallel.compress",
                     name +
                         " contradicts exact numerics, which keep every bit of a gradient "
                         "(compress: off, or numerics: fast)"};
  return std::nullopt;
}

std::optional<SpecFault> sync_fault(const JobSpec& job) {
  const int across = job.parallel.sync.across;
  if (across < 1 || across > SyncSpec::kMostAcross)
    return SpecFault{"parallel.sync.across", "'across' must be from 1 to " +
                                                 std::to_string(SyncSpec::kMostAcross) + " steps"};
  if (across == 1) return std::nullopt;
  const std::string name = "'across': averaging every " + std::to_string(across) + " steps";
  if (job.train.numerics == Numerics::kExact)
    return SpecFault{"parallel.sync.across",
                     name +
                         " contradicts exact numerics, whose bits do not depend on who trains "
                         "with whom (across: 1, or numerics: fast)"};
  if (job.parallel.shard_optimizer == ShardOptimizer::kOn)
    return SpecFault{"parallel.sync.across",
                     name +
                         " needs all optimizer state in each group, so it cannot be sharded "
                         "(shard_optimizer: auto, or across: 1)"};
  const CodecKind codec = job.parallel.compress.kind;
  if (codec != CodecKind::kOff && codec != CodecKind::kAuto)
    return SpecFault{"parallel.sync.across",
                     name + " sends no gradients over slow links, so there is nothing for '" +
                         spec_name(codec) + "' to compress (compress: off, or across: 1)"};
  return std::nullopt;
}

/// How many replicas, of how many stages.
std::optional<SpecFault> shape_fault(const JobSpec& job) {
  const std::optional<int>&data = job.parallel.data, &pipeline = job.parallel.pipeline;
  const TrainSpec& train = job.train;
  if (data && (*data < 1 || *data > ParallelSpec::kMostReplicas))
    return SpecFault{"parallel.data",
                     "'data' must be from 1 to " + std::to_string(ParallelSpec::kMostReplicas)};
  const int grains = (train.global_batch - 1) / train.grain.value_or(1) + 1;
  if (data && *data > grains)
    return SpecFault{"parallel.data",
                     "'data': " + std::to_string(*data) + " replicas are more than a step has " +
                         (train.grain ? "grains (" : "samples (") + std::to_string(grains) + ")"};
  if (pipeline && (*pipeline < 1 || *pipeline > layer_count(job.model)))
    return SpecFault{"parallel.pipeline", "'pipeline' must be from 1 to the model's " +
                                              std::to_string(layer_count(job.model)) +
                                              " layers, found " + std::to_string(*pipeline)};
  return std::nullopt;
}

/// How many devices share a stage.
std::optional<SpecFault> tensor_fault(const JobSpec& job) {
  const int tensor = job.parallel.tensor.value_or(1);
  if (tensor < 1 || tensor > job.model.heads)
    return SpecFault{"parallel.tensor", "'tensor' must be from 1 to the model's " +
                                            std::to_string(job.model.heads) + " heads, found " +
                                            std::to_string(tensor)};
  if (tensor > 1 && job.train.numerics == Numerics::kExact)
    return SpecFault{"parallel.tensor",
                     "'tensor': sums over " + std::to_string(tensor) +
                         " devices contradict exact numerics, whose bits do not depend on who "
                         "computes (tensor: off, or numerics: fast)"};
  return std::nullopt;
}

/// Of what its ranks are told.
std::optional<SpecFault> program_fault(const JobSpec& job) {
  if (job.program.command.front().empty())
    return SpecFault{"run", "'run': the program's name is empty"};
  const TrainSpec& train = job.train;
  if (train.global_batch < 0 || train.global_batch > TrainSpec::kMostSamples)
    return SpecFault{"train.global_batch",
                     "'global_batch' must be at most " + std::to_string(TrainSpec::kMostSamples)};
  if (train.grain && (*train.grain < 1 || *train.grain > train.global_batch))
    return SpecFault{"train.grain", "'grain' must be from 1 to global_batch (" +
                                        std::to_string(train.global_batch) + ")"};
  if (job.checkpoint.every_time > Nanos(0))
    return SpecFault{"checkpoint.every", "'every' of a program is a number of steps"};
  return std::nullopt;
}

}  // namespace

std::optional<SpecFault> first_fault(const JobSpec& job) {
  if (job.is_program()) return program_fault(job);
  if (auto fault = model_fault(job)) return fault;
  if (auto fault = train_fault(job.train)) return fault;
  if (auto fault = compression_fault(job)) return fault;
  if (auto fault = sync_fault(job)) return fault;
  if (auto fault = shape_fault(job)) return fault;
  if (auto fault = tensor_fault(job)) return fault;
  if (auto fault = pin_fault(job)) return fault;
  if (job.parallel.shard_optimizer == ShardOptimizer::kOn && !job.pin.replicas.empty())
    return SpecFault{
        "parallel.shard_optimizer",
        "'shard_optimizer': 'on' is for plans that are found: replicas that are pinned "
        "keep all optimizer state (leave out pin.replicas, or shard_optimizer: auto)"};
  if (!(job.data.held_out >= 0 && job.data.held_out <= 0.5))
    return SpecFault{"data.held_out", "'held_out' must be from 0 to 0.5"};
  if (job.checkpoint.keep < 1) return SpecFault{"checkpoint.keep", "'keep' must be at least 1"};
  return std::nullopt;
}

SourcePlace place_of(const JobSpec& job, std::string_view key) {
  while (!key.empty()) {
    if (const auto found = job.places.find(key); found != job.places.end()) return found->second;
    const size_t dot = key.rfind('.');
    key = key.substr(0, dot == std::string_view::npos ? 0 : dot);
  }
  return {job.source, 0, 0};
}

std::string first_incompatible_key(const JobSpec& before, const JobSpec& after) {
  const ModelSpec &m = before.model, &n = after.model;
  const DataSpec &d = before.data, &e = after.data;
  const TrainSpec &t = before.train, &u = after.train;
  const OptimizerSpec &o = t.optimizer, &p = u.optimizer;
  const Comparison comparisons[] = {
      {"run", before.program.command == after.program.command},
      {"workdir", before.program.workdir == after.program.workdir},
      {"model.type", m.type == n.type},
      {"model.layers", m.layers == n.layers},
      {"model.heads", m.heads == n.heads},
      {"model.width", m.width == n.width},
      {"model.context", m.context == n.context},
      {"model.vocab", m.vocab == n.vocab},
      {"model.dropout", m.dropout == n.dropout},
      {"data.text", d.files == e.files},
      {"data.tokenizer", d.tokenizer == e.tokenizer},
      {"data.held_out", d.held_out == e.held_out},
      {"train.global_batch", t.global_batch == u.global_batch},
      {"train.grain", t.grain == u.grain},
      {"train.optimizer.type", o.type == p.type},
      {"train.optimizer.lr", o.lr == p.lr},
      {"train.optimizer.betas", o.beta1 == p.beta1 && o.beta2 == p.beta2},
      {"train.optimizer.eps", o.eps == p.eps},
      {"train.optimizer.weight_decay", o.weight_decay == p.weight_decay},
      {"train.optimizer.clip", o.clip == p.clip},
      {"train.schedule.type", t.schedule.type == u.schedule.type},
      {"train.schedule.warmup", t.schedule.warmup == u.schedule.warmup},
      {"train.schedule.min_lr", t.schedule.min_lr == u.schedule.min_lr},
      {"train.precision", t.precision == u.precision && t.precision_by_type == u.precision_by_type},
      {"train.loss_scale", t.loss_scale == u.loss_scale},
      {"train.numerics", t.numerics == u.numerics},
      {"train.seed", t.seed == u.seed},
  };
  for (const Comparison& comparison : comparisons)
    if (!comparison.same) return comparison.key;
  return {};
}

}  // namespace motley
