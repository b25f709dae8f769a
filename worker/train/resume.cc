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
  Result<Unit> check_usable(const Manifest& manifest) const;
  Result<Unit> load_mine(const std::string& name, ResumePoint* point);
  Result<bool> all_loaded(const Result<Unit>& mine);

  const Attempt& attempt_;
  RankParts& parts_;
  Communicator& world_;
  const Storage& storage_;
  FileSystem& fs_;
  const std::string directory_;
  std::vector<FoundCheckpoint> candidates_;  ///< rank 0
};

Result<ResumePoint> Resumer::run() {
  if (attempt_.resume_checkpoint == "none") return ResumePoint{};
  MOTLEY_TRY_VOID(all_succeeded(world_, find_candidates()));
  for (size_t next = 0;; ++next) {
    std::string name = next < candidates_.size() ? candidates_[next].directory : "";
    MOTLEY_TRY_VOID(world_.broadcast(name, 0));
    if (name.empty()) {
      if (next == 0) return ResumePoint{};
      return joint_failure(world_, ErrorCode::kCorrupt,
                           "no checkpoint in " + directory_ +
                               " can be loaded: begin anew with --fresh or --resume none");
    }
    MOTLEY_TRY_VOID(copy_checkpoint(world_, storage_, fs_, directory_, name));
    ResumePoint point;
    MOTLEY_TRY(const bool loaded, all_loaded(load_mine(name, &point)));
    if (loaded) return point;
  }
}

/// On rank 0: what may be resumed from, newest first.
Result<Unit> Resumer::find_candidates() {
  if (world_.rank() != 0) return Unit{};
  std::vector<std::string> suspects;
  candidates_ = find_checkpoints(fs_, directory_, &suspects);
  for (const std::string& suspect : suspects)
    log_warning("checkpoint " + suspect + " is not valid: skipped");
  const std::string& wanted = attempt_.resume_checkpoint;
  if (wanted.empty() || wanted == "newest") return Unit{};
  std::erase_if(candidates_,
                [&](const FoundCheckpoint& found) { return found.directory != wanted; });
  if (!candidates_.empty()) return Unit{};
  return fail(ErrorCode::kNotFound, "no checkpoint " + wanted + " in " + directory_);
}

Result<Unit> Resumer::check_usable(const Manifest& manifest) const {
  const TrainSpec& train = attempt_.job.train;
  const auto differs = [&](const std::string& what) {
    return fail(ErrorCode::kInvalidSpec, "the checkpoint of step " + std::to_string(manifest.step) +
                                             " is of " + what + ": change it back or begin anew");
  };
  if (manifest.data_hash != parts_.corpus.hash()) return differs("other data");
  if (manifest.seed != train.seed) return differs("another train.seed");
  if (manifest.next_sample != manifest.step * train.global_batch)
    return differs("another train.global_batch");
  const std::string& here = parts_.device->arithmetic_class();
  if (train.numerics == Numerics::kExact && manifest.arithmetic_class != here)
    return fail(ErrorCode::kInvalidSpec,
                "exact holds within one arithmetic class: the checkpoint is of " +
                    manifest.arithmetic_class + ", this device of " + here);
  return Unit{};
}

Result<Unit> Resumer::load_mine(const std::string& name, ResumePoint* point) {
  const auto found = find_checkpoints(fs_, directory_, nullptr);
  const auto it = std::find_if(found.begin(), found.end(),
                               [&](const FoundCheckpoint& each) { return each.directory == name; });
  if (it == found.end()) return fail(ErrorCode::kCorrupt, "checkpoint " + name + " is not valid");
  MOTLEY_TRY_VOID(check_usable(it->manifest));
  MOTLEY_TRY(const auto views, all_state_views(*parts_.engine));
  MOTLEY_TRY_VOID(load(fs_, directory_, *it, views, nullptr));
  MOTLEY_TRY_VOID(state_written(*parts_.engine));
  parts_.engine->set_exact_exponent(it->manifest.exact_exponent);
  *point = {.step = it->manifest.step, .directory = name};
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
