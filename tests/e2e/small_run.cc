#include "tests/e2e/small_run.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/run_layout.h"
#include "core/spec/names.h"

namespace motley::testing {
namespace {

/// Forwards to an account, then to the test's own idea of what happens at a step.
class RecordingReporter final : public Reporter {
 public:
  RecordingReporter(Recorder::Account& account, std::mutex& mutex)
      : account_(account), mutex_(mutex) {}

  void progress() override {}
  void phase(const std::string& phase, int64_t) override { account_.phases.push_back(phase); }
  Result<Unit> begin_after(int64_t) override { return Unit{}; }
  void step(const StepReport& report) override {
    const std::lock_guard lock(mutex_);
    account_.steps[report.step] = report;
  }
  void saved(const SavedReport& report) override {
    if (report.error.empty()) account_.saved.push_back(report);
  }
  void skipped(const SkippedReport& report) override { account_.skipped.push_back(report); }
  void evaluated(const EvaluatedReport& report) override { account_.evaluated.push_back(report); }

 private:
  Recorder::Account& account_;
  std::mutex& mutex_;
};

class StepHook final : public Reporter {
 public:
  StepHook(Reporter& inner, Communicator& world, ControlWishes& wishes, const AtStep& at_step)
      : inner_(inner), world_(world), wishes_(wishes), at_step_(at_step) {}

  void progress() override { inner_.progress(); }
  void phase(const std::string& phase, int64_t step) override { inner_.phase(phase, step); }
  Result<Unit> begin_after(int64_t step) override { return inner_.begin_after(step); }
  void step(const StepReport& report) override {
    inner_.step(report);
    if (at_step_ && !at_step_(world_.rank(), report.step, wishes_)) world_.give_up(1);
  }
  void saved(const SavedReport& report) override { inner_.saved(report); }
  void skipped(const SkippedReport& report) override { inner_.skipped(report); }
  void evaluated(const EvaluatedReport& report) override { inner_.evaluated(report); }

 private:
  Reporter& inner_;
  Communicator& world_;
  ControlWishes& wishes_;
  const AtStep& at_step_;
};

/// English enough to be learnt: words in a fixed but varied order.
void write_text(const std::string& path) {
  const std::vector<std::string> words = {"the ",    "fleet ", "is ",   "mixed, ", "every ",
                                          "device ", "does ",  "what ", "it ",     "can.\n"};
  std::ofstream file(path);
  unsigned state = 7;
  for (int i = 0; i < 6000; ++i) {
    state = state * 1664525U + 1013904223U;
    file << words[(state >> 16) % words.size()];
  }
}

/// Replicas of one rank each, unless the run says how they are cut.
std::vector<SmallReplica> replicas_of(const SmallRun& run) {
  if (!run.replicas.empty()) return run.replicas;
  std::vector<SmallReplica> replicas;
  for (const int grains : run.grains)
    replicas.push_back({.stages = {{.layers = layer_count(run.model)}},
                        .grains = grains,
                        .micro_batch_grains = run.micro_batch_grains});
  return replicas;
}

int grains_of(const SmallRun& run) {
  int grains = 0;
  for (const SmallReplica& replica : replicas_of(run)) grains += replica.grains;
  return grains;
}

/// Devices of this type compute in this precision.
std::string type_of(Precision precision) { return "paced-" + spec_name(precision); }

JobSpec small_job(const SmallRun& run, const std::string& text) {
  JobSpec job;
  job.name = "small";
  job.model = run.model;
  job.data.files = {text};
  job.train.global_batch = run.grain * grains_of(run) - run.samples_missing;
  job.train.grain = run.grain;
  job.train.steps = run.steps;
  job.train.optimizer.lr = run.lr;
  job.train.numerics = run.numerics;
  job.train.precision = run.precision;
  for (const SmallReplica& replica : run.replicas)
    for (const SmallReplica::Stage& stage : replica.stages)
      if (stage.precision != Precision::kAuto)
        job.train.precision_by_type[type_of(stage.precision)] = stage.precision;
  job.train.eval = run.eval;
  job.parallel.compress = run.compress;
  job.parallel.sync.across = run.across;
  job.checkpoint.every_steps = run.save_every;
  return job;
}

std::string host_of(const SmallRun& run, int rank) {
  if (run.hosts.empty()) return "host";
  return "host" + std::to_string(run.hosts[static_cast<size_t>(rank)]);
}

Plan small_plan(const SmallRun& run, const JobSpec& job) {
  Plan plan;
  plan.id = "test";
  plan.numerics = run.numerics;
  plan.global_batch = job.train.global_batch;
  plan.grain = run.grain;
  plan.shard_optimizer = run.shard_optimizer;
  plan.compression.codec = run.compress;
  plan.sync.across = run.across;
  for (const SmallReplica& small : replicas_of(run)) {
    ReplicaPlan replica;
    replica.micro_batch = run.grain * small.micro_batch_grains;
    replica.grains = small.grains;
    LayerIndex layer = 0;
    for (const SmallReplica::Stage& part : small.stages) {
      StagePlan stage;
      stage.first_layer = layer;
      stage.last_layer = layer + part.layers - 1;
      stage.shares = part.shares;
      stage.recompute = part.recompute;
      stage.precision = part.precision == Precision::kAuto ? run.precision : part.precision;
      layer += part.layers;
      for (size_t i = 0; i < part.shares.size(); ++i) {
        const int rank = plan.world_size();
        stage.ranks.emplace_back(rank);
        plan.ranks.push_back({.device = "host/" + std::to_string(rank),
                              .host = host_of(run, rank),
                              .type = type_of(stage.precision),
                              .host_optimizer = run.host_optimizer});
      }
      replica.stages.push_back(stage);
    }
    plan.replicas.push_back(replica);
  }
  plan.owners = even_ownership(plan, job.model);
  return plan;
}

}  // namespace

ModelSpec tiny_gpt() {
  return {.type = "gpt", .layers = 2, .heads = 2, .width = 32, .context = 16, .vocab = 256};
}

Attempt small_attempt(const SmallRun& run, const std::string& run_dir, Epoch epoch) {
  std::filesystem::create_directories(run_dir);
  const std::string text = run_dir + "/text";
  if (!std::filesystem::exists(text)) write_text(text);
  Attempt attempt;
  attempt.epoch = epoch;
  attempt.run_dir = run_dir;
  attempt.job = small_job(run, text);
  attempt.plan = small_plan(run, attempt.job);
  attempt.fleet.clock = PaceClock::kVirtual;
  attempt.fleet.pace_flops = 1e9;
  const bool on_gpu = run.device == DeviceKind::kCuda;
  const std::string uuid = on_gpu ? uuid_of_test_gpu() : std::string();
  for (size_t rank = 0; rank < attempt.plan.ranks.size(); ++rank) {
    DeviceSpec device;
    device.id = attempt.plan.ranks[rank].device;
    device.host = "host";
    device.kind = run.device;
    device.uuid = uuid;
    device.type = attempt.plan.ranks[rank].type;
    device.memory = Bytes(1 << 30);
    device.paced = PaceSpec{.speed = run.speeds.empty() ? 1.0 : run.speeds[rank],
                            .overhead = Nanos(1'000'000),
                            .half_batch = 0};
    attempt.fleet.devices.push_back(device);
  }
  return attempt;
}

Reporter& Recorder::of(int rank) {
  const std::lock_guard lock(mutex_);
  reporters_.push_back(std::make_unique<RecordingReporter>(accounts_[rank], mutex_));
  return *reporters_.back();
}

std::map<int64_t, uint64_t> Recorder::loss_bits() const {
  std::map<int64_t, uint64_t> bits;
  for (const auto& [step, report] : account(0).steps) bits[step] = report.loss_bits;
  return bits;
}

Result<TrainOutcome> run_small(const Attempt& attempt, Recorder& recorder, const AtStep& at_step,
                               const FileSystemOf& file_system_of) {
  std::optional<TrainOutcome> of_root;
  MOTLEY_TRY_VOID(run_inproc(attempt.plan.world_size(), [&](Communicator& world) -> Result<Unit> {
    ControlWishes wishes;
    StepHook reporter(recorder.of(world.rank()), world, wishes, at_step);
    FileSystem& fs = file_system_of ? file_system_of(world.rank()) : real_file_system();
    MOTLEY_TRY(const TrainOutcome outcome, train(attempt, world, reporter, wishes, fs));
    if (world.rank() == 0) of_root = outcome;
    return Unit{};
  }));
  return *of_root;
}

nlohmann::json trace_of(const Attempt& attempt, int rank) {
  const std::string directory = attempt_directory(attempt.run_dir, attempt.epoch);
  std::ifstream file(trace_path(directory, Rank(rank)));
  return nlohmann::json::parse(file);
}

Result<std::unique_ptr<WritableFile>> RootedFileSystem::create(const std::string& path) {
  return real_file_system().create(root_ + path);
}
Result<std::unique_ptr<ReadableFile>> RootedFileSystem::open(const std::string& path) {
  return real_file_system().open(root_ + path);
}
Result<std::unique_ptr<ReadableFile>> RootedFileSystem::open_within(const std::string& directory,
                                                                    const std::string& name) {
  return real_file_system().open_within(root_ + directory, name);
}
Result<Unit> RootedFileSystem::make_directories(const std::string& path) {
  return real_file_system().make_directories(root_ + path);
}
Result<Unit> RootedFileSystem::sync_directory(const std::string& path) {
  return real_file_system().sync_directory(root_ + path);
}
Result<Unit> RootedFileSystem::rename_new(const std::string& from, const std::string& to) {
  return real_file_system().rename_new(root_ + from, root_ + to);
}
Result<Unit> RootedFileSystem::rename_over(const std::string& from, const std::string& to) {
  return real_file_system().rename_over(root_ + from, root_ + to);
}
Result<Unit> RootedFileSystem::remove_all(const std::string& path) {
  return real_file_system().remove_all(root_ + path);
}
Result<std::vector<std::string>> RootedFileSystem::list(const std::string& path) {
  return real_file_system().list(root_ + path);
}
bool RootedFileSystem::exists(const std::string& path) {
  return real_file_system().exists(root_ + path);
}
Result<Bytes> RootedFileSystem::free_space(const std::string& path) {
  return real_file_system().free_space(root_ + path);
}

}  // namespace motley::testing
