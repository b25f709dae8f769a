#include "worker/train/resume.h"

#include <algorithm>

#include "core/log.h"
#include "core/run_layout.h"
#include "core/set_aside.h"
#include "worker/checkpoint/store.h"
#include "worker/train/agreement.h"
#include "worker/train/checkpoint_copy.h"
#include "worker/train/engine_state.h"
#include "worker/train/load_verdict.h"

namespace motley {
namespace {

enum class Tried { kLoaded, kCopiesDamaged, kInVain };

/// What is wrong with a checkpoint, for a reader who knows which one is meant.
std::string within(const std::string& checkpoint_path, std::string why) {
  for (const std::string& known : {"checkpoint " + checkpoint_path + ": ", checkpoint_path + "/"})
    for (size_t at = why.find(known); at != std::string::npos; at = why.find(known))
      why.erase(at, known.size());
  return why;
}

SkippedReport report_on(const std::string& checkpoint) {
  SkippedReport report;
  CheckpointName parsed;
  if (parse_checkpoint_directory_name(checkpoint, &parsed)) report.step = parsed.step;
  report.directory = checkpoint;
  return report;
}

class Resumer {
 public:
  Resumer(const Attempt& attempt, RankParts& parts, Communicator& world, const Storage& storage,
          Reporter& reporter, FileSystem& fs)
      : attempt_(attempt),
        parts_(parts),
        world_(world),
        storage_(storage),
        reporter_(reporter),
        fs_(fs),
        directory_(checkpoints_directory(attempt.run_dir, attempt.job.checkpoint)) {}

  Result<ResumePoint> run();

 private:
  Result<Unit> find_candidates();
  Result<ResumePoint> begin_anew();
  Result<Unit> check_usable(const Manifest& manifest) const;
  Result<Unit> load_mine(const std::string& name, ResumePoint* point);
  Result<Unit> load_residuals(const FoundCheckpoint& found);
  Result<Unit> tell_of_useless_residuals();
  Result<Tried> try_to_load(const std::string& name, ResumePoint* point);
  Result<Tried> set_aside_together(const std::string& name,
                                   const std::vector<LoadVerdict>& verdicts);
  std::string set_aside_here(const std::string& name, const std::string& why);
  void tell_of(const std::string& name, const std::vector<LoadVerdict>& verdicts,
               const std::vector<std::string>& set_aside);
  void skip(const std::string& name, const Error& error);
  bool wants_newest() const {
    return attempt_.resume_checkpoint.empty() || attempt_.resume_checkpoint == "newest";
  }
  std::string nothing_loads() const;

  const Attempt& attempt_;
  RankParts& parts_;
  Communicator& world_;
  const Storage& storage_;
  Reporter& reporter_;
  FileSystem& fs_;
  const std::string directory_;
  std::vector<std::string> candidates_;  ///< rank 0: names, newest first
  int64_t useless_residuals_ = 0;        ///< of the checkpoint that was loaded
};

Result<ResumePoint> Resumer::run() {
  if (attempt_.resume_checkpoint == "none") return ResumePoint{};
  MOTLEY_TRY_VOID(all_succeeded(world_, find_candidates()));
  bool fetched_again = false;
  for (size_t next = 0;;) {
    std::string name = next < candidates_.size() ? candidates_[next] : "";
    MOTLEY_TRY_VOID(world_.broadcast(name, 0));
    if (name.empty() && next == 0) return begin_anew();
    if (name.empty()) return joint_failure(world_, ErrorCode::kCorrupt, nothing_loads());
    ResumePoint point;
    MOTLEY_TRY(const Tried tried, try_to_load(name, &point));
    if (tried == Tried::kLoaded) {
      MOTLEY_TRY_VOID(tell_of_useless_residuals());
      return point;
    }
    // Where only copies were damaged, new ones may do: once.
    fetched_again = tried == Tried::kCopiesDamaged && !fetched_again;
    if (!fetched_again) ++next;
  }
}

/// On rank 0: what may be resumed from, newest first. Something that cannot be read is not nothing.
Result<Unit> Resumer::find_candidates() {
  if (world_.rank() != 0) return Unit{};
  if (!wants_newest()) {
    const auto opened = open_checkpoint(fs_, directory_, attempt_.resume_checkpoint);
    if (!opened && is_suspect(opened.error())) skip(attempt_.resume_checkpoint, opened.error());
    if (!opened) return fail(opened.error());
    candidates_ = {attempt_.resume_checkpoint};
    return Unit{};
  }
  std::vector<SuspectCheckpoint> suspects;
  MOTLEY_TRY(const auto found, find_checkpoints(fs_, directory_, &suspects));
  for (const SuspectCheckpoint& suspect : suspects) skip(suspect.directory, suspect.error);
  if (found.empty()) {
    MOTLEY_TRY(const auto aside, set_aside_in(fs_, directory_));
    if (!suspects.empty() || !aside.empty()) return fail(ErrorCode::kCorrupt, nothing_loads());
  }
  for (const FoundCheckpoint& each : found) candidates_.push_back(each.directory);
  return Unit{};
}

std::string Resumer::nothing_loads() const {
  if (!wants_newest())
    return "checkpoint " + attempt_.resume_checkpoint + " in " + directory_ +
           " cannot be loaded: choose another one";
  return "no checkpoint in " + directory_ +
         " can be loaded: begin anew with --fresh (by hand: --resume none)";
}

/// Rank 0's host knows of no checkpoint. If another one does, that is a lost disk or another host
/// in the first place, and no reason to begin anew.
Result<ResumePoint> Resumer::begin_anew() {
  std::string newest;
  Result<Unit> looked = Unit{};
  if (storage_.leads(world_.rank())) {
    const auto found = find_checkpoints(fs_, directory_, nullptr);
    if (!found) looked = fail(found.error());
    if (found && !found->empty()) newest = found->front().directory;
  }
  MOTLEY_TRY_VOID(all_succeeded(world_, looked));
  MOTLEY_TRY(const std::vector<std::string> all, world_.all_gather(newest));
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].empty()) continue;
    const auto& places = attempt_.plan.ranks;
    return joint_failure(world_, ErrorCode::kNotFound,
                         "no checkpoint in " + directory_ + " on host " + places[0].host +
                             ", but host " + places[rank].host + " has " + all[rank] +
                             " there: copy it to go on, or remove it to begin anew");
  }
  return ResumePoint{};
}

Result<Unit> Resumer::check_usable(const Manifest& manifest) const {
  const TrainSpec& train = attempt_.job.train;
  const auto differs = [&](const std::string& what) {
    return fail(ErrorCode::kInvalidSpec, "the checkpoint of step " + std::to_string(manifest.step) +
                                             " is of " + what + ": change it back or begin anew");
  };
  if (manifest.data_hash != parts_.corpus.hash()) return differs("other data");
  if (manifest.seed != train.seed) return differs("another train.seed");
  if (manifest.next_sample % train.global_batch != 0 ||
      manifest.next_sample / train.global_batch != manifest.step)
    return differs("another train.global_batch");
  const std::string& here = parts_.device->arithmetic_class();
  if (train.numerics == Numerics::kExact && manifest.arithmetic_class != here)
    return fail(ErrorCode::kInvalidSpec,
                "exact holds within one arithmetic class: the checkpoint is of " +
                    manifest.arithmetic_class + ", this device of " + here);
  return Unit{};
}

Result<Unit> Resumer::load_mine(const std::string& name, ResumePoint* point) {
  MOTLEY_TRY(const FoundCheckpoint found, open_checkpoint(fs_, directory_, name));
  MOTLEY_TRY_VOID(check_model(found, attempt_.job.model));
  MOTLEY_TRY_VOID(check_usable(found.manifest));
  MOTLEY_TRY(const auto views, all_state_views(*parts_.engine));
  MOTLEY_TRY_VOID(load(fs_, directory_, found, views, nullptr));
  MOTLEY_TRY_VOID(state_written(*parts_.engine));
  MOTLEY_TRY_VOID(load_residuals(found));
  parts_.engine->set_exact_exponent(found.manifest.exact_exponent);
  parts_.loss_scale.restore(found.manifest.loss_scale);
  parts_.engine->set_steps_held(found.manifest.steps_held);
  *point = {.step = found.manifest.step, .directory = name};
  return Unit{};
}

/// Of a run whose gradients are compressed now.
Result<Unit> Resumer::load_residuals(const FoundCheckpoint& found) {
  const auto& tensors = found.manifest.tensors;
  const bool stored = std::any_of(tensors.begin(), tensors.end(), [](const StoredTensor& tensor) {
    return tensor.name.starts_with(kResidualPrefix);
  });
  useless_residuals_ = stored ? 1 : 0;
  if (!parts_.slices->compresses()) return Unit{};
  const std::span<float> residuals = parts_.slices->residuals();
  std::fill(residuals.begin(), residuals.end(), 0.0F);
  if (stored)
    MOTLEY_TRY_VOID(
        load(fs_, directory_, found, residual_views(*parts_.engine, residuals), nullptr));
  useless_residuals_ = parts_.slices->restore_residuals();
  return Unit{};
}

/// What was not sent of gradients so far, and is not compressed any more, no later step can send.
Result<Unit> Resumer::tell_of_useless_residuals() {
  MOTLEY_TRY_VOID(world_.all_reduce_sum(std::span(&useless_residuals_, 1)));
  if (useless_residuals_ > 0 && world_.rank() == 0)
    log_warning(
        "what compression has kept back of gradients so far is dropped where they are not "
        "compressed any more");
  return Unit{};
}

Result<Tried> Resumer::try_to_load(const std::string& name, ResumePoint* point) {
  const Result<Unit> copied = copy_checkpoint(world_, storage_, fs_, directory_, name);
  const Result<Unit> loaded = copied ? load_mine(name, point) : copied;
  MOTLEY_TRY(std::vector<LoadVerdict> verdicts, load_verdicts(world_, storage_, copied, loaded));
  if (all_loaded(verdicts)) return Tried::kLoaded;
  for (LoadVerdict& verdict : verdicts)
    verdict.why = within(directory_ + "/" + name, std::move(verdict.why));
  return set_aside_together(name, verdicts);
}

/// The leader of each island renames what some rank there has found damaged, now that all know.
Result<Tried> Resumer::set_aside_together(const std::string& name,
                                          const std::vector<LoadVerdict>& verdicts) {
  const auto damaged = damaged_copies(verdicts);
  const auto mine = damaged.find(world_.rank());
  const std::string renamed = mine == damaged.end() ? "" : set_aside_here(name, mine->second);
  MOTLEY_TRY(const std::vector<std::string> all_renamed, world_.all_gather(renamed));
  if (world_.rank() == 0) tell_of(name, verdicts, all_renamed);
  const bool copies_only = damaged.count(0) == 0 && why_unreadable(verdicts).empty();
  return copies_only ? Tried::kCopiesDamaged : Tried::kInVain;
}

/// The new name; empty when it has kept its own.
std::string Resumer::set_aside_here(const std::string& name, const std::string& why) {
  const auto renamed = set_aside(fs_, directory_, name, why);
  if (!renamed) log_warning(renamed.error().to_string());
  return renamed.value_or("");
}

void Resumer::tell_of(const std::string& name, const std::vector<LoadVerdict>& verdicts,
                      const std::vector<std::string>& set_aside) {
  SkippedReport report = report_on(name);
  const auto damaged = damaged_copies(verdicts);
  for (const auto& [leader, why] : damaged) {
    const auto island = static_cast<size_t>(leader);
    report.host = leader == 0 ? "" : attempt_.plan.ranks[island].host;
    report.damaged = true;
    report.why = why;
    report.set_aside = set_aside[island];
    reporter_.skipped(report);
  }
  if (!damaged.empty()) return;
  report.why = why_unreadable(verdicts);
  reporter_.skipped(report);
}

/// On rank 0, which alone looks for candidates.
void Resumer::skip(const std::string& name, const Error& error) {
  SkippedReport report = report_on(name);
  report.damaged = error.code == ErrorCode::kCorrupt;
  report.why = within(directory_ + "/" + name, error.message);
  if (report.damaged) report.set_aside = set_aside_here(name, report.why);
  reporter_.skipped(report);
}

}  // namespace

Result<ResumePoint> resume(const Attempt& attempt, RankParts& parts, Communicator& world,
                           const Storage& storage, Reporter& reporter, FileSystem& fs) {
  return Resumer(attempt, parts, world, storage, reporter, fs).run();
}

}  // namespace motley
