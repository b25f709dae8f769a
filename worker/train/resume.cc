#include "worker/train/resume.h"

#include <algorithm>

#include "core/log.h"
#include "core/run_layout.h"
#include "worker/checkpoint/store.h"
#include "worker/train/agreement.h"
#include "worker/train/checkpoint_copy.h"
#include "worker/train/engine_state.h"

namespace motley {
namespace {

class Resumer {
 public:
  Resumer(const Attempt& attempt, RankParts& parts, Communicator& world, const Storage& storage,
          FileSystem& fs)
      : attempt_(attempt),
        parts_(parts),
        world_(world),
        storage_(storage),
        fs_(fs),
        directory_(checkpoints_directory(attempt.run_dir, attempt.job.checkpoint)) {}

  Result<ResumePoint> run();

 private:
  Result<Unit> find_candidates();
  Result<ResumePoint> begin_anew();
  Result<Unit> check_usable(const Manifest& manifest) const;
  Result<Unit> load_mine(const std::string& name, ResumePoint* point);
  Result<bool> all_loaded(const Result<Unit>& mine);
  bool wants_newest() const {
    return attempt_.resume_checkpoint.empty() || attempt_.resume_checkpoint == "newest";
  }
  std::string nothing_loads() const;

  const Attempt& attempt_;
  RankParts& parts_;
  Communicator& world_;
  const Storage& storage_;
  FileSystem& fs_;
  const std::string directory_;
  std::vector<std::string> candidates_;  ///< rank 0: names, newest first
};

Result<ResumePoint> Resumer::run() {
  if (attempt_.resume_checkpoint == "none") return ResumePoint{};
  MOTLEY_TRY_VOID(all_succeeded(world_, find_candidates()));
  for (size_t next = 0;; ++next) {
    std::string name = next < candidates_.size() ? candidates_[next] : "";
    MOTLEY_TRY_VOID(world_.broadcast(name, 0));
    if (name.empty() && next == 0) return begin_anew();
    if (name.empty()) return joint_failure(world_, ErrorCode::kCorrupt, nothing_loads());
    ResumePoint point;
    Result<Unit> mine = copy_checkpoint(world_, storage_, fs_, directory_, name);
    if (mine) mine = load_mine(name, &point);
    MOTLEY_TRY(const bool loaded, all_loaded(mine));
    if (loaded) return point;
  }
}

/// On rank 0: what may be resumed from, newest first. Something that cannot be read is not nothing.
Result<Unit> Resumer::find_candidates() {
  if (world_.rank() != 0) return Unit{};
  if (!wants_newest()) {
    MOTLEY_TRY_VOID(open_checkpoint(fs_, directory_, attempt_.resume_checkpoint));
    candidates_ = {attempt_.resume_checkpoint};
    return Unit{};
  }
  std::vector<std::string> suspects;
  MOTLEY_TRY(const auto found, find_checkpoints(fs_, directory_, &suspects));
  for (const std::string& suspect : suspects) log_warning(suspect + ": skipped");
  if (found.empty() && !suspects.empty()) return fail(ErrorCode::kCorrupt, nothing_loads());
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
  parts_.engine->set_exact_exponent(found.manifest.exact_exponent);
  *point = {.step = found.manifest.step, .directory = name};
  return Unit{};
}

/// False when some rank found the checkpoint corrupt: then all try an older one.
Result<bool> Resumer::all_loaded(const Result<Unit>& mine) {
  const bool corrupt = !mine && mine.error().code == ErrorCode::kCorrupt;
  if (corrupt) log_warning(mine.error().to_string() + ": trying an older checkpoint");
  int64_t ranks_with_corruption = corrupt ? 1 : 0;
  MOTLEY_TRY_VOID(world_.all_reduce_sum(std::span(&ranks_with_corruption, 1)));
  Result<Unit> rest = Unit{};
  if (!corrupt) rest = mine;
  MOTLEY_TRY_VOID(all_succeeded(world_, rest));
  return ranks_with_corruption == 0;
}

}  // namespace

Result<ResumePoint> resume(const Attempt& attempt, RankParts& parts, Communicator& world,
                           const Storage& storage, FileSystem& fs) {
  return Resumer(attempt, parts, world, storage, fs).run();
}

}  // namespace motley
