#include "scheduler/runner/runner_fsm.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "core/check.h"

namespace motley {
namespace {

constexpr size_t kRememberedSteps = 128;
constexpr size_t kStepsToKnow = 2;  // the first one may be longer than any other

std::string seconds_text(Nanos duration) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f s", seconds_of(duration));
  return text;
}

/// What all ranks computed or share went wrong: none of them is to blame.
bool of_all_ranks(ErrorCode code) {
  return code == ErrorCode::kDiverged || code == ErrorCode::kCorrupt;
}

}  // namespace

RunnerFsm::RunnerFsm(std::vector<RunnerRank> ranks, RunnerLimits limits, Nanos now)
    : limits_(limits), now_(now), started_(now), last_tick_(now) {
  for (RunnerRank& rank : ranks) {
    RankState state;
    state.info = std::move(rank);
    ranks_.push_back(std::move(state));
  }
}

std::vector<RunnerAction> RunnerFsm::on(const RunnerEvent& event, Nanos now) {
  now_ = now;
  actions_.clear();
  if (state_ != State::kEnded) std::visit([this](const auto& what) { handle(what); }, event);
  return std::exchange(actions_, {});
}

RunnerFsm::RankState& RunnerFsm::alive(int rank) {
  MOTLEY_CHECK(rank >= 0 && rank < static_cast<int>(ranks_.size()), "rank out of range");
  RankState& state = ranks_[static_cast<size_t>(rank)];
  state.heard = now_;
  return state;
}

void RunnerFsm::handle(const RankConnected& event) {
  RankState& rank = alive(event.rank);
  rank.connected = true;
  rank.moved = now_;
  if (stop_requested_) actions_.emplace_back(SendToRank{event.rank, MessageType::kStop});
}

void RunnerFsm::handle(const RankRefused& event) {
  ranks_[static_cast<size_t>(event.rank)].refused = event.why;
}

void RunnerFsm::handle(const RankGone& event) {
  RankState& rank = alive(event.rank);
  rank.gone = true;
  if (!rank.done) blame(Cause::Order::kLost, event.rank, ErrorCode::kRunFailed, died(event.rank));
  if (state_ == State::kFailing && launch_ && all_gone()) kill();
}

void RunnerFsm::handle(const RankBeat& event) {
  RankState& rank = alive(event.rank);
  if (rank.progress != event.progress) rank.moved = now_;
  rank.progress = event.progress;
  rank.waiting = event.waiting;
}

void RunnerFsm::handle(const RankPhase& event) {
  RankState& rank = alive(event.rank);
  rank.phase = event.phase;
  rank.moved = now_;
  // The time until the next step is not a step's.
  if (event.rank == 0) last_step_ = Nanos(0);
}

void RunnerFsm::handle(const RankStepped& event) {
  alive(event.rank).moved = now_;
  if (event.rank != 0) return;
  if (last_step_ != Nanos(0)) step_times_.push_back(now_ - last_step_);
  if (step_times_.size() > kRememberedSteps) step_times_.pop_front();
  last_step_ = now_;
}

void RunnerFsm::handle(const RankDone& event) {
  RankState& rank = alive(event.report.rank);
  rank.done = event.report;
  if (event.report.outcome == Outcome::kFailed) {
    if (of_all_ranks(event.report.code))
      return blame(Cause::Order::kOwnWords, -1, event.report.code, event.report.message);
    const bool other = event.report.code == ErrorCode::kPeerLost;
    blame(other ? Cause::Order::kPeerLost : Cause::Order::kOwnWords, event.report.rank,
          event.report.code, title(event.report.rank) + ": " + event.report.message);
    return;
  }
  if (all_done()) after_all_done();
}

void RunnerFsm::after_all_done() {
  if (!launch_) {
    if (state_ != State::kRunning) return;
    state_ = State::kLeaving;
    deadline_ = now_ + limits_.leave;
    return;
  }
  // The launch ended before its ranks' last words reached us; that looked like a failure.
  const bool only_launch = cause_ && cause_->order == Cause::Order::kLaunch;
  if (only_launch && (!launch_->error || any_stopped())) cause_.reset();
  kill();
}

void RunnerFsm::handle(const LaunchEnded& event) {
  launch_ = event.how;
  // A stop ends every rank with its own status, which mpirun takes for a failure.
  if (all_done() && (!launch_->error || any_stopped())) return kill();
  const Error error = launch_->error.value_or(
      Error{ErrorCode::kRunFailed, "ranks ended without saying that they were done", {}});
  blame(launch_->crashed ? Cause::Order::kAccount : Cause::Order::kLaunch, -1, error.code,
        error.message);
  if (all_gone()) kill();
}

void RunnerFsm::handle(const StopRequested&) {
  stop_requested_ = true;
  for (size_t i = 0; i < ranks_.size(); ++i)
    if (ranks_[i].watched())
      actions_.emplace_back(SendToRank{static_cast<int>(i), MessageType::kStop});
}

void RunnerFsm::handle(const CheckpointRequested&) {
  for (size_t i = 0; i < ranks_.size(); ++i)
    if (ranks_[i].watched())
      actions_.emplace_back(SendToRank{static_cast<int>(i), MessageType::kCheckpoint});
}

void RunnerFsm::handle(const KillRequested&) {
  blame(Cause::Order::kOwnWords, -1, ErrorCode::kRunFailed, "ended on request");
  kill();
}

void RunnerFsm::handle(const ParentGone&) {
  blame(Cause::Order::kOwnWords, -1, ErrorCode::kPeerLost, "the process that asked is gone");
  kill();
}

void RunnerFsm::handle(const AllKilled&) {
  if (state_ != State::kKilling) return;
  state_ = State::kEnded;
  actions_.emplace_back(Finish{end()});
}

void RunnerFsm::handle(const Tick&) {
  forgive_our_own_sleep();
  last_tick_ = now_;
  if (state_ == State::kRunning) {
    check_connections();
    check_silence();
    check_hang();
  }
  if ((state_ == State::kFailing || state_ == State::kLeaving) && now_ >= deadline_) kill();
}

/// On an overloaded machine this process may not run for a while; what the ranks said meanwhile is
/// still in the sockets, and mpirun may have waited too. Only the time we listened counts.
void RunnerFsm::forgive_our_own_sleep() {
  const Nanos gap = now_ - last_tick_;
  if (gap <= limits_.starved) return;
  for (RankState& rank : ranks_) {
    rank.heard = std::min(now_, rank.heard + gap);
    rank.moved = std::min(now_, rank.moved + gap);
  }
  deadline_ = deadline_ + gap;
}

void RunnerFsm::check_connections() {
  if (now_ - started_ <= limits_.connect) return;
  for (size_t i = 0; i < ranks_.size(); ++i)
    if (!ranks_[i].connected)
      return blame(Cause::Order::kSilent, static_cast<int>(i), ErrorCode::kRunFailed,
                   title(static_cast<int>(i)) + " did not report within " +
                       seconds_text(limits_.connect) + " of the launch");
}

void RunnerFsm::check_silence() {
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const RankState& rank = ranks_[i];
    const Nanos limit = rank.info.remote ? limits_.silence_remote : limits_.silence_local;
    if (rank.watched() && now_ - rank.heard > limit)
      return blame(Cause::Order::kSilent, static_cast<int>(i), ErrorCode::kRunFailed,
                   title(static_cast<int>(i)) + " has been silent for " +
                       seconds_text(now_ - rank.heard) + " in phase " + rank.phase);
  }
}

/// A rank that waits for others hangs because one of them does: as long as any rank works, only
/// those that do are judged, however long the rest has stood still. Where all wait, for each other,
/// it is the one that came to a standstill first.
void RunnerFsm::check_hang() {
  const auto works = [](const RankState& rank) { return rank.watched() && !rank.waiting; };
  const bool any_works = std::any_of(ranks_.begin(), ranks_.end(), works);
  const RankState* first = nullptr;
  for (const RankState& rank : ranks_)
    if (rank.watched() && (works(rank) || !any_works) && now_ - rank.moved > hang_limit(rank) &&
        (first == nullptr || rank.moved < first->moved))
      first = &rank;
  if (first == nullptr) return;
  const int rank = static_cast<int>(first - ranks_.data());
  blame(Cause::Order::kSilent, rank, ErrorCode::kRunFailed,
        title(rank) + " has made no progress for " + seconds_text(now_ - first->moved) +
            " in phase " + first->phase);
}

Nanos RunnerFsm::hang_limit(const RankState& rank) const {
  const bool stepping = rank.phase == "training" || rank.phase == "evaluating";
  if (!stepping || step_times_.size() < kStepsToKnow) return limits_.hang_unknown;
  const Nanos longest = *std::max_element(step_times_.begin(), step_times_.end());
  return std::max(limits_.hang_least, nanos_of_seconds(limits_.hang_steps * seconds_of(longest)));
}

void RunnerFsm::blame(Cause::Order order, int rank, ErrorCode code, std::string message) {
  if (state_ == State::kKilling) return;
  if (!cause_ || order < cause_->order)
    cause_ = Cause{order, rank, Error{code, std::move(message), {}}};
  if (state_ != State::kFailing) deadline_ = now_ + limits_.account;
  state_ = State::kFailing;
  // Only what may be a consequence of something else is worth waiting for mpirun's account.
  if (order < Cause::Order::kLost || launch_)
    deadline_ = std::min(deadline_, now_ + limits_.settle);
}

void RunnerFsm::kill() {
  if (state_ == State::kKilling) return;
  state_ = State::kKilling;
  actions_.emplace_back(KillAll{});
}

bool RunnerFsm::all_done() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const RankState& rank) {
    return rank.done && rank.done->outcome != Outcome::kFailed;
  });
}

std::string RunnerFsm::title(int rank) const {
  return "rank " + std::to_string(rank) + " on " + ranks_[static_cast<size_t>(rank)].info.name;
}

std::string RunnerFsm::died(int rank) const {
  return title(rank) + " died in phase " + ranks_[static_cast<size_t>(rank)].phase;
}

bool RunnerFsm::all_gone() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const RankState& rank) { return rank.gone; });
}

bool RunnerFsm::any_stopped() const {
  return std::any_of(ranks_.begin(), ranks_.end(), [](const RankState& rank) {
    return rank.done && rank.done->outcome == Outcome::kStopped;
  });
}

/// Null where mpirun names nobody, or a rank that only followed: it was told to stop, or says
/// itself that it lost another.
const RankExit* RunnerFsm::named_by_launch() const {
  if (!launch_ || !launch_->first || launch_->first->code == ErrorCode::kStopped) return nullptr;
  const auto rank = static_cast<size_t>(launch_->first->rank);
  if (rank >= ranks_.size()) return nullptr;
  const auto& done = ranks_[rank].done;
  const bool lost_another =
      done && done->outcome == Outcome::kFailed && done->code == ErrorCode::kPeerLost;
  return lost_another ? nullptr : &*launch_->first;
}

RunnerFsm::Cause RunnerFsm::verdict() const {
  Cause cause = *cause_;
  if (cause.order == Cause::Order::kOwnWords) return cause;
  if (const RankExit* first = named_by_launch())
    cause = {Cause::Order::kAccount, first->rank,
             Error{first->code, died(first->rank) + ": " + first->how, {}}};
  for (size_t i = 0; i < ranks_.size(); ++i) {
    const int rank = static_cast<int>(i);
    const bool to_blame = cause.order > Cause::Order::kRefused || cause.rank == rank;
    if (ranks_[i].connected || ranks_[i].refused.empty() || !to_blame) continue;
    cause = {std::min(cause.order, Cause::Order::kRefused), rank,
             Error{ErrorCode::kRunFailed, title(rank) + " was refused: " + ranks_[i].refused, {}}};
  }
  return cause;
}

AttemptEnd RunnerFsm::end() const {
  AttemptEnd result;
  if (all_done() && any_stopped()) {
    result.outcome = Outcome::kStopped;
  } else if (all_done() && launch_ && !cause_) {
    result.outcome = Outcome::kFinished;
  } else if (cause_) {
    const Cause cause = verdict();
    result.error = cause.error;
    result.rank = cause.rank;
    result.in_own_words = cause.order == Cause::Order::kOwnWords;
  } else {
    result.error = Error{ErrorCode::kRunFailed, "ranks were done but did not end", {}};
  }
  return result;
}

}  // namespace motley
