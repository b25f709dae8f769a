#include "scheduler/runner/runner_fsm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "core/clock.h"

namespace motley {
namespace {

using ::testing::HasSubstr;

/// An attempt under a clock moved by hand; ticks as the shell does.
class Attempt {
 public:
  explicit Attempt(int ranks, bool remote = false) : fsm_(names(ranks, remote), {}, clock_.now()) {}

  std::vector<RunnerAction> on(const RunnerEvent& event) {
    auto actions = fsm_.on(event, clock_.now());
    for (const RunnerAction& action : actions) {
      if (std::holds_alternative<KillAll>(action)) ++kills_;
      if (const auto* finish = std::get_if<Finish>(&action)) end_ = finish->end;
    }
    return actions;
  }

  void all_connect(int ranks) {
    for (int rank = 0; rank < ranks; ++rank) {
      on(RankConnected{rank});
      on(RankPhase{rank, "training"});
    }
  }

  /// `seconds` pass with a tick every 0.1 s; `beat` says who is heard of meanwhile.
  template <class Beat>
  void pass(double seconds, Beat beat) {
    for (const Nanos end = clock_.now() + nanos_of_seconds(seconds);
         clock_.now() < end && kills_ == 0;) {
      clock_.advance(nanos_of_seconds(0.1));
      beat();
      on(Tick{});
    }
  }
  void pass(double seconds) {
    pass(seconds, [] {});
  }

  void beat(int rank, bool moving) { on(RankBeat{rank, moving ? ++progress_ : 0, false}); }
  void finish(int rank) { done(rank, Outcome::kFinished, ErrorCode::kInternal, ""); }
  void stop(int rank) { done(rank, Outcome::kStopped, ErrorCode::kInternal, ""); }
  void give_up(int rank, ErrorCode code, const std::string& message) {
    done(rank, Outcome::kFailed, code, message);
  }
  void done(int rank, Outcome outcome, ErrorCode code, const std::string& message) {
    on(RankDone{DoneReport{rank, outcome, code, message, ""}});
  }
  void jump(double seconds) { clock_.advance(nanos_of_seconds(seconds)); }

  int kills() const { return kills_; }
  /// What the runner reports once everything is killed.
  AttemptEnd end() {
    EXPECT_EQ(kills_, 1);
    on(AllKilled{});
    EXPECT_TRUE(fsm_.ended());
    return end_;
  }

 private:
  static std::vector<RunnerRank> names(int ranks, bool remote) {
    std::vector<RunnerRank> result;
    for (int rank = 0; rank < ranks; ++rank)
      result.push_back({"here/" + std::to_string(rank), remote});
    return result;
  }

  ManualClock clock_;
  RunnerFsm fsm_;
  int kills_ = 0;
  int64_t progress_ = 0;
  AttemptEnd end_;
};

const Error kStatus{ErrorCode::kRunFailed, "mpirun ended with status 1", {}};
const Error kCrash{ErrorCode::kRunFailed, "mpirun ended with signal 9 (Killed)", {}};

LaunchEnded launch_ended() { return {}; }
LaunchEnded launch_failed() { return {{.error = kStatus, .first = {}, .crashed = false}}; }
LaunchEnded launch_crashed() { return {{.error = kCrash, .first = {}, .crashed = true}}; }
LaunchEnded launch_names(int rank, ErrorCode code, const std::string& how) {
  return {{.error = kStatus, .first = RankExit{rank, code, how}, .crashed = false}};
}
LaunchEnded killed(int rank) {
  return launch_names(rank, ErrorCode::kRunFailed, "signal 9 (Killed)");
}

using Part = std::function<void(Attempt&)>;

Part event(const RunnerEvent& what) {
  return [what](Attempt& attempt) { attempt.on(what); };
}

/// The ends of an attempt of connected ranks to which these parts happen, in each order of them.
std::vector<AttemptEnd> ends_in_every_order(int ranks, const std::vector<Part>& parts) {
  std::vector<AttemptEnd> ends;
  std::vector<size_t> order(parts.size());
  std::iota(order.begin(), order.end(), 0);
  do {
    Attempt attempt(ranks);
    attempt.all_connect(ranks);
    for (const size_t part : order) parts[part](attempt);
    attempt.pass(0.2);
    ends.push_back(attempt.end());
  } while (std::next_permutation(order.begin(), order.end()));
  return ends;
}

TEST(RunnerFsm, SucceedsWhenEveryRankIsDoneAndTheLaunchEndsWithZero) {
  Attempt attempt(2);
  attempt.all_connect(2);
  attempt.finish(0);
  attempt.finish(1);
  EXPECT_EQ(attempt.kills(), 0);
  attempt.on(launch_ended());
  EXPECT_EQ(attempt.end().outcome, Outcome::kFinished);
}

TEST(RunnerFsm, LastWordsMayArriveAfterTheLaunchHasEnded) {
  Attempt attempt(2);
  attempt.all_connect(2);
  attempt.on(launch_ended());
  attempt.finish(0);
  attempt.finish(1);
  EXPECT_EQ(attempt.end().outcome, Outcome::kFinished);
}

TEST(RunnerFsm, AnExitWithoutDoneIsAFailure) {
  Attempt attempt(2);
  attempt.all_connect(2);
  attempt.finish(0);
  attempt.on(launch_ended());
  attempt.pass(1);
  const AttemptEnd end = attempt.end();
  EXPECT_EQ(end.outcome, Outcome::kFailed);
  EXPECT_THAT(end.error.message, HasSubstr("without saying"));
}

TEST(RunnerFsm, DoneWithABadStatusIsAFailure) {
  Attempt attempt(1);
  attempt.all_connect(1);
  attempt.finish(0);
  attempt.on(launch_failed());
  attempt.pass(1);
  EXPECT_EQ(attempt.end().error.message, kStatus.message);
}

TEST(RunnerFsm, AnmpirunThatNeverEndsIsKilled) {
  Attempt attempt(1);
  attempt.all_connect(1);
  attempt.finish(0);
  attempt.pass(30);
  EXPECT_EQ(attempt.end().outcome, Outcome::kFailed);
}

TEST(RunnerFsm, AStopReachesEveryRankAndThoseThatConnectLater) {
  Attempt attempt(3);
  attempt.on(RankConnected{0});
  attempt.on(RankConnected{1});
  EXPECT_EQ(attempt.on(StopRequested{}).size(), 2u);
  const auto late = attempt.on(RankConnected{2});
  ASSERT_EQ(late.size(), 1u);
  EXPECT_EQ(std::get<SendToRank>(late[0]).rank, 2);
  EXPECT_EQ(std::get<SendToRank>(late[0]).type, MessageType::kStop);
  for (int rank : {0, 1, 2}) attempt.stop(rank);
  attempt.on(launch_names(0, ErrorCode::kStopped, "status 75"));
  EXPECT_EQ(attempt.end().outcome, Outcome::kStopped);
}

TEST(RunnerFsm, ADeadRankIsNamedByItsLostConnectionWhenMpirunSaysNothing) {
  Attempt attempt(3);
  attempt.all_connect(3);
  attempt.on(RankGone{2});
  attempt.on(RankGone{0});
  attempt.pass(4.8);
  EXPECT_EQ(attempt.kills(), 0) << "mpirun was not waited for";
  attempt.pass(0.5);
  const AttemptEnd end = attempt.end();
  EXPECT_EQ(end.rank, 2);
  EXPECT_EQ(end.error.message, "rank 2 on here/2 died in phase training");
}

TEST(RunnerFsm, TheRestIsKilledAMomentAfterMpirunHasEnded) {
  Attempt attempt(3);
  attempt.all_connect(3);
  attempt.on(RankGone{2});
  attempt.on(launch_failed());
  EXPECT_EQ(attempt.kills(), 0);
  attempt.pass(0.2);
  EXPECT_EQ(attempt.end().rank, 2);
}

TEST(RunnerFsm, NothingIsWaitedForWhenMpirunAndEveryRankAreGone) {
  Attempt attempt(2);
  attempt.all_connect(2);
  attempt.on(RankGone{0});
  attempt.on(killed(1));
  attempt.on(RankGone{1});
  EXPECT_EQ(attempt.end().rank, 1);
}

TEST(RunnerFsm, TheRankThatMpirunNamesIsToBlameInWhateverOrderConnectionsClose) {
  for (const AttemptEnd& end : ends_in_every_order(
           3, {event(RankGone{0}), event(RankGone{1}), event(RankGone{2}), event(killed(1))})) {
    EXPECT_EQ(end.rank, 1);
    EXPECT_EQ(end.error.code, ErrorCode::kRunFailed);
    EXPECT_EQ(end.error.message, "rank 1 on here/1 died in phase training: signal 9 (Killed)");
  }
}

TEST(RunnerFsm, TheStatusOfTheNamedRankIsItsErrorsCode) {
  Attempt attempt(2);
  attempt.on(launch_names(1, ErrorCode::kBrokenInstall, "status 78"));
  attempt.pass(0.2);
  const AttemptEnd end = attempt.end();
  EXPECT_EQ(end.rank, 1);
  EXPECT_EQ(end.error.code, ErrorCode::kBrokenInstall);
  EXPECT_EQ(end.error.message, "rank 1 on here/1 died in phase starting: status 78");
}

TEST(RunnerFsm, ACrashedMpirunIsToBlameNotTheRanksThatDiedOfIt) {
  for (const AttemptEnd& end :
       ends_in_every_order(2, {event(RankGone{0}), event(RankGone{1}), event(launch_crashed())})) {
    EXPECT_EQ(end.rank, -1);
    EXPECT_EQ(end.error.message, kCrash.message);
  }
}

TEST(RunnerFsm, TheCulpritIsBlamedNotThePeersThatLostIt) {
  const Part lost_another = [](Attempt& attempt) {
    attempt.give_up(0, ErrorCode::kPeerLost, "rank 1 is gone");
    attempt.on(RankGone{0});
  };
  for (const LaunchEnded& launch :
       {launch_failed(), killed(1), launch_names(0, ErrorCode::kRunFailed, "status 1")})
    for (const AttemptEnd& end :
         ends_in_every_order(3, {lost_another, event(RankGone{1}), event(launch)}))
      EXPECT_EQ(end.rank, 1) << end.error.message;
}

TEST(RunnerFsm, OwnWordsBeatEverythingElse) {
  const Part own_words = [](Attempt& attempt) {
    attempt.give_up(1, ErrorCode::kDeviceLost, "out of memory");
    attempt.on(RankGone{1});
  };
  for (const AttemptEnd& end : ends_in_every_order(
           3, {own_words, event(RankGone{0}), event(RankGone{2}), event(killed(2))})) {
    EXPECT_EQ(end.rank, 1);
    EXPECT_EQ(end.error.code, ErrorCode::kDeviceLost);
    EXPECT_EQ(end.error.message, "rank 1 on here/1: out of memory");
  }
}

TEST(RunnerFsm, AnAccountOfARankThatDoesNotExistIsNone) {
  Attempt attempt(2);
  attempt.all_connect(2);
  attempt.on(RankGone{0});
  attempt.on(killed(2));
  attempt.pass(0.2);
  EXPECT_EQ(attempt.end().rank, 0);
}

TEST(RunnerFsm, AFailedLaunchIsTheCauseWhenNoRankSaysMore) {
  Attempt attempt(2);
  attempt.on(launch_failed());
  attempt.pass(0.2);
  EXPECT_EQ(attempt.end().error.message, kStatus.message);
}

TEST(RunnerFsm, ARefusedRankIsTheCauseWhoeverIsNoticedFirst) {
  const std::vector<RunnerEvent> launches = {launch_failed(),
                                             launch_names(1, ErrorCode::kRunFailed, "status 1")};
  for (const RunnerEvent& launch : launches) {
    std::vector<RunnerEvent> events = {RankGone{0}, RankRefused{1, "wrong key"}, launch};
    std::vector<size_t> order = {0, 1, 2};
    do {
      Attempt attempt(2);
      attempt.on(RankConnected{0});
      for (const size_t each : order) attempt.on(events[each]);
      attempt.pass(0.2);
      const AttemptEnd end = attempt.end();
      EXPECT_EQ(end.rank, 1);
      EXPECT_EQ(end.error.message, "rank 1 on here/1 was refused: wrong key");
    } while (std::next_permutation(order.begin(), order.end()));
  }
}

TEST(RunnerFsm, ARefusalAloneEndsNothing) {
  Attempt attempt(1);
  attempt.on(RankRefused{0, "wrong key"});
  attempt.on(RankConnected{0});
  attempt.pass(1, [&] { attempt.beat(0, true); });
  EXPECT_EQ(attempt.kills(), 0);
  attempt.on(RankGone{0});
  attempt.on(killed(0));
  EXPECT_EQ(attempt.end().error.message,
            "rank 0 on here/0 died in phase starting: signal 9 (Killed)");
}

TEST(RunnerFsm, SilenceOfTwoSecondsIsALoss) {
  Attempt attempt(2);
  attempt.all_connect(2);
  attempt.pass(1.9, [&] { attempt.beat(0, true); });
  EXPECT_EQ(attempt.kills(), 0);
  attempt.pass(0.5, [&] { attempt.beat(0, true); });
  const AttemptEnd end = attempt.end();
  EXPECT_EQ(end.rank, 1);
  EXPECT_THAT(end.error.message, HasSubstr("silent"));
  EXPECT_THAT(end.error.message, HasSubstr("phase training"));
}

TEST(RunnerFsm, ARemoteRankMayBeSilentForFive) {
  Attempt attempt(1, true);
  attempt.all_connect(1);
  attempt.pass(4.9);
  EXPECT_EQ(attempt.kills(), 0);
  attempt.pass(0.5);
  EXPECT_EQ(attempt.kills(), 1);
}

TEST(RunnerFsm, OurOwnSleepIsNotTheirSilence) {
  Attempt attempt(1);
  attempt.all_connect(1);
  attempt.jump(30);
  attempt.on(Tick{});
  attempt.pass(1.5);
  EXPECT_EQ(attempt.kills(), 0);
}

TEST(RunnerFsm, DoneRanksMayBeSilent) {
  Attempt attempt(2);
  attempt.all_connect(2);
  attempt.finish(1);
  attempt.on(RankGone{1});
  attempt.pass(9, [&] { attempt.beat(0, true); });
  EXPECT_EQ(attempt.kills(), 0);
}

TEST(RunnerFsm, BeatsWithoutProgressAreAHangAndTheFirstToStopIsBlamed) {
  Attempt attempt(2);
  attempt.all_connect(2);
  for (int step = 0; step < 20; ++step)
    attempt.pass(0.2, [&] {
      attempt.on(RankStepped{0});
      attempt.beat(0, true);
      attempt.beat(1, true);
    });
  attempt.pass(0.3, [&] {
    attempt.beat(0, true);
    attempt.beat(1, false);
  });
  attempt.pass(9, [&] {
    attempt.on(RankBeat{0, 1, false});
    attempt.beat(1, false);
  });
  EXPECT_EQ(attempt.kills(), 0);
  attempt.pass(3, [&] {
    attempt.on(RankBeat{0, 1, false});
    attempt.beat(1, false);
  });
  const AttemptEnd end = attempt.end();
  EXPECT_EQ(end.rank, 1);
  EXPECT_THAT(end.error.message, HasSubstr("no progress"));
}

TEST(RunnerFsm, LongStepsStretchTheLimitOfAHang) {
  Attempt attempt(1);
  attempt.all_connect(1);
  for (int step = 0; step < 10; ++step) {
    attempt.pass(6, [&] { attempt.beat(0, true); });
    attempt.on(RankStepped{0});
  }
  attempt.pass(25, [&] { attempt.on(RankBeat{0, 7, false}); });
  EXPECT_EQ(attempt.kills(), 0);
  attempt.pass(10, [&] { attempt.on(RankBeat{0, 7, false}); });
  EXPECT_EQ(attempt.kills(), 1);
}

TEST(RunnerFsm, ARankThatNeverReportsIsNamed) {
  Attempt attempt(2);
  attempt.on(RankConnected{0});
  attempt.pass(130, [&] { attempt.beat(0, true); });
  const AttemptEnd end = attempt.end();
  EXPECT_EQ(end.rank, 1);
  EXPECT_THAT(end.error.message, HasSubstr("did not report"));
}

TEST(RunnerFsm, ALostParentEndsEverythingAtOnce) {
  Attempt attempt(1);
  attempt.all_connect(1);
  attempt.on(ParentGone{});
  EXPECT_EQ(attempt.kills(), 1);
  EXPECT_EQ(attempt.end().outcome, Outcome::kFailed);
}

/// Rank 0 came to a standstill first, because it was done first and waits for rank 1.
TEST(RunnerFsm, ARankThatWaitsForAHangingOneIsNotToBlame) {
  Attempt attempt(2);
  attempt.all_connect(2);
  attempt.on(RankBeat{0, 1, true});
  attempt.pass(5, [&] {
    attempt.on(RankBeat{0, 1, true});
    attempt.beat(1, true);
  });
  attempt.pass(200, [&] {
    attempt.on(RankBeat{0, 1, true});
    attempt.beat(1, false);
  });
  EXPECT_EQ(attempt.end().rank, 1);
}

TEST(RunnerFsm, WhereAllWaitTheFirstToStandStillIsToBlame) {
  Attempt attempt(2);
  attempt.all_connect(2);
  attempt.pass(1, [&] {
    attempt.on(RankBeat{0, 2, true});
    attempt.beat(1, true);
  });
  attempt.pass(200, [&] {
    attempt.on(RankBeat{0, 2, true});
    attempt.on(RankBeat{1, 3, true});
  });
  EXPECT_EQ(attempt.end().rank, 0);
}

TEST(RunnerFsm, WhatAllRanksFoundTogetherIsNoDevicesFault) {
  for (const ErrorCode code : {ErrorCode::kDiverged, ErrorCode::kCorrupt}) {
    Attempt attempt(2);
    attempt.all_connect(2);
    attempt.give_up(0, code, "loss or gradient not finite at step 7");
    attempt.pass(0.2);
    const AttemptEnd end = attempt.end();
    EXPECT_EQ(end.rank, -1);
    EXPECT_EQ(end.error.code, code);
    EXPECT_EQ(end.error.message, "loss or gradient not finite at step 7");
  }
}

}  // namespace
}  // namespace motley
