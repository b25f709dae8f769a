#include "worker/train/saver.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/clock.h"
#include "core/log.h"
#include "core/run_layout.h"
#include "core/spec/profile_key.h"
#include "worker/checkpoint/transfer.h"
#include "worker/train/agreement.h"
#include "worker/train/engine_state.h"

namespace motley {
namespace {

constexpr Nanos kShardPollInterval{5'000'000};

std::string to_text(const SaveOutcome& outcome) {
  return nlohmann::json({{"committed", outcome.committed},
                         {"error", one_line(outcome.error)},
                         {"step", outcome.report.step},
                         {"directory", outcome.report.directory},
                         {"bytes", outcome.report.bytes.value()},
                         {"seconds", outcome.report.seconds}})
      .dump();
}

size_t chunk_of(std::span<const std::byte> rest) {
  return std::min(kTransferChunkBytes, rest.size());
}

SaveOutcome outcome_from_text(const std::string& text) {
  const auto json = nlohmann::json::parse(text);
  SaveOutcome outcome;
  outcome.committed = json["committed"].get<bool>();
  outcome.error = json["error"].get<std::string>();
  outcome.report.step = json["step"].get<int64_t>();
  outcome.report.directory = json["directory"].get<std::string>();
  outcome.report.bytes = Bytes(json["bytes"].get<int64_t>());
  outcome.report.seconds = json["seconds"].get<double>();
  return outcome;
}

}  // namespace

Saver::Saver(const Attempt& attempt, RankParts& parts, Communicator& world, const Storage& storage,
             FileSystem& fs)
    : attempt_(attempt),
      parts_(parts),
      world_(world),
      storage_(storage),
      fs_(fs),
      directory_(checkpoints_directory(attempt.run_dir, attempt.job.checkpoint)) {}

Result<std::unique_ptr<Saver>> Saver::create(const Attempt& attempt, RankParts& parts,
                                             Communicator& world, const Storage& storage,
                                             FileSystem& fs) {
  std::unique_ptr<Saver> saver(new Saver(attempt, parts, world, storage, fs));
  MOTLEY_TRY(auto views, all_state_views(*parts.engine));
  for (StateView& view : residual_views(*parts.engine, parts.slices->residuals()))
    views.push_back(std::move(view));
  MOTLEY_TRY(saver->writer_, ShardWriter::create(fs, saver->directory_, attempt.epoch, world.rank(),
                                                 std::move(views), attempt.plan.owners));
  saver->snapshot_ =
      MemoryCharge(parts.memory, MemoryUse::kSnapshot, saver->writer_->snapshot_bytes());
  return saver;
}

Result<Unit> Saver::begin(int64_t step) {
  begun_ = steady_clock().now();
  step_ = step;
  exact_exponent_ = parts_.engine->exact_exponent();
  loss_scale_ = parts_.loss_scale.state();
  steps_held_ = parts_.engine->steps_held();
  MOTLEY_TRY_VOID(parts_.device->synchronize());  // the update is through
  if (parts_.slices->compresses()) MOTLEY_TRY_VOID(parts_.slices->gather_residuals());
  (void)writer_->snapshot(step);  // the report says how it went
  return Unit{};
}

void Saver::wait_for_shard(const std::function<void()>& on_progress) const {
  while (in_flight() && !shard_settled()) {
    on_progress();
    steady_clock().sleep_until(steady_clock().now() + kShardPollInterval);
  }
}

Result<SaveOutcome> Saver::finish() {
  MOTLEY_TRY(std::vector<ShardReport> reports, gather_reports(writer_->report()));
  MOTLEY_TRY_VOID(bring_shards(&reports));
  std::string text = world_.rank() == 0 ? to_text(commit_all(reports)) : "";
  MOTLEY_TRY_VOID(world_.broadcast(text, 0));
  const SaveOutcome outcome = outcome_from_text(text);
  if (storage_.leads(world_.rank())) tidy_up(outcome.committed);
  step_.reset();
  const bool finite = std::all_of(reports.begin(), reports.end(),
                                  [](const ShardReport& report) { return report.finite; });
  if (!finite)
    return joint_failure(world_, ErrorCode::kDiverged,
                         outcome.error + ": lower train.optimizer.lr");
  return outcome;
}

/// On the leader of each island: the shards that went to rank 0, and checkpoints beyond those kept.
/// Other islands' copies come when a run resumes there.
void Saver::tidy_up(bool committed) {
  const int keep = attempt_.job.checkpoint.keep;
  Result<Unit> tidy = Unit{};
  if (world_.rank() != 0) tidy = abandon(fs_, directory_, *step_, attempt_.epoch);
  if (tidy && committed) tidy = retain(fs_, directory_, keep, attempt_.epoch);
  if (!tidy) log_warning(tidy.error().to_string());
}

Result<std::vector<ShardReport>> Saver::gather_reports(ShardReport mine) {
  MOTLEY_TRY(const std::vector<std::string> texts, world_.all_gather(motley::to_text(mine)));
  std::vector<ShardReport> reports;
  for (const std::string& text : texts) {
    MOTLEY_TRY(ShardReport report, shard_report_from_text(text));
    reports.push_back(std::move(report));
  }
  return reports;
}

/// Every rank knows all reports, hence who sends. What rank 0 cannot write it marks as failed.
Result<Unit> Saver::bring_shards(std::vector<ShardReport>* reports) {
  for (ShardReport& report : *reports) {
    if (storage_.with_root(report.rank) || !report.ok) continue;
    if (report.rank == world_.rank()) {
      for (auto rest = writer_->shard_bytes(); !rest.empty(); rest = rest.subspan(chunk_of(rest)))
        MOTLEY_TRY_VOID(world_.send(rest.first(chunk_of(rest)), 0));
    }
    if (world_.rank() == 0) MOTLEY_TRY_VOID(receive_shard_of(&report));
  }
  return Unit{};
}

/// Receives everything that is sent, also when it cannot be written here.
Result<Unit> Saver::receive_shard_of(ShardReport* report) {
  auto shard = receive_shard(fs_, directory_, *report);
  Result<Unit> written = Unit{};
  if (!shard) written = fail(shard.error());
  std::vector<std::byte> chunk;
  for (int64_t left = report->file.bytes; left > 0; left -= static_cast<int64_t>(chunk.size())) {
    chunk.resize(std::min(kTransferChunkBytes, static_cast<size_t>(left)));
    MOTLEY_TRY_VOID(world_.receive(chunk, report->rank));
    if (written) written = (*shard)->append(chunk);
  }
  if (written) written = (*shard)->finish();
  if (written) return Unit{};
  report->ok = false;
  report->error = written.error().to_string();
  return Unit{};
}

SaveOutcome Saver::commit_all(const std::vector<ShardReport>& reports) {
  SaveOutcome outcome;
  outcome.report.step = *step_;
  const auto directory = commit(fs_, directory_, manifest_base(), reports);
  if (!directory) {
    outcome.error = directory.error().to_string();
    return outcome;
  }
  outcome.committed = true;
  outcome.report.directory = *directory;
  for (const ShardReport& report : reports) outcome.report.bytes += Bytes(report.file.bytes);
  outcome.report.seconds = seconds_of(steady_clock().now() - begun_);
  return outcome;
}

Manifest Saver::manifest_base() const {
  Manifest base;
  base.job = attempt_.job.name;
  base.step = *step_;
  base.epoch = attempt_.epoch;
  base.plan_id = attempt_.plan.id;
  base.code_version = code_version();
  base.arithmetic_class = parts_.device->arithmetic_class();
  base.seed = attempt_.job.train.seed;
  base.data_hash = parts_.corpus.hash();
  base.next_sample = *step_ * attempt_.plan.global_batch;
  base.exact_exponent = exact_exponent_;
  base.loss_scale = loss_scale_;
  base.steps_held = steps_held_;
  return base;
}

}  // namespace motley
