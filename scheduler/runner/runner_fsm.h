#pragma once
// What a runner decides, without any I/O: events and the time go in, actions come out. The shell
// (runner_shell.h) performs them.
//
//   launching -> running -> leaving (every rank is done) ----------------> killing -> ended
//                   \-----> failing (a moment, to learn the true cause) ---/
//
// When one rank fails, mpirun ends the others, and their connections close in any order. So the
// first lost connection only begins the search for the culprit, which waits for mpirun's end (for
// `account` at most). Whatever the order of events, the blame goes to
//   1. a rank that said itself why it failed, or whoever asked for the end;
//   2. the rank that mpirun names as the first to fail, or mpirun, if it crashed;
//   3. a rank that fell silent or made no progress;
//   4. a rank that never got in because it was refused;
//   5. the rank whose connection was lost first;
//   6. mpirun's status;
//   7. a rank that lost another one.
// Of equals, the first. A refusal alone ends nothing, since anybody may claim anything.

#include <deque>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/ids.h"
#include "core/plan.h"
#include "core/reports.h"
#include "core/result.h"
#include "core/wire.h"
#include "scheduler/launch/launcher.h"

namespace motley {

// Events.
struct RankConnected {
  int rank = 0;
};
struct RankRefused {  ///< somebody claimed to be this rank and was turned away
  int rank = 0;
  std::string why;
};
struct RankGone {  ///< its connection closed
  int rank = 0;
};
struct RankBeat {
  int rank = 0;
  int64_t progress = 0;
  bool waiting = false;  ///< for other ranks
};
struct RankPhase {
  int rank = 0;
  std::string phase;
};
struct RankStepped {
  int rank = 0;
};
struct RankDone {
  DoneReport report;
};
struct LaunchEnded {
  LaunchEnd how;
};
struct StopRequested {};
struct CheckpointRequested {};
struct KillRequested {};
struct ParentGone {};
struct AllKilled {};  ///< the answer to KillAll
struct Tick {};       ///< at least every 100 ms
using RunnerEvent = std::variant<RankConnected, RankRefused, RankGone, RankBeat, RankPhase,
                                 RankStepped, RankDone, LaunchEnded, StopRequested,
                                 CheckpointRequested, KillRequested, ParentGone, AllKilled, Tick>;

/// How an attempt ended.
struct AttemptEnd {
  Outcome outcome = Outcome::kFailed;
  Error error;                ///< of a failure
  int rank = -1;              ///< the rank to blame, where one is known
  bool in_own_words = false;  ///< the error is what a rank, or whoever asked for the end, said
};

// Actions.
struct SendToRank {
  int rank = 0;
  MessageType type = MessageType::kStop;
};
struct KillAll {};
struct Finish {
  AttemptEnd end;
};
using RunnerAction = std::variant<SendToRank, KillAll, Finish>;

struct RunnerRank {
  std::string name;     ///< for messages: "a1/0 (A100-40GB)"
  bool remote = false;  ///< is given more time before silence means loss
};

struct RunnerLimits {
  Nanos connect = nanos_of_seconds(120);      ///< from the launch to a rank's hello
  Nanos silence_local = nanos_of_seconds(2);  ///< heartbeats come every 200 ms
  Nanos silence_remote = nanos_of_seconds(5);
  Nanos hang_least = nanos_of_seconds(10);     ///< no progress while training, at the least
  double hang_steps = 5;                       ///< and this many times the longest recent step
  Nanos hang_unknown = nanos_of_seconds(120);  ///< outside of training, or before steps are known
  Nanos account = nanos_of_seconds(5);         ///< from a lost connection to mpirun's end
  Nanos settle = nanos_of_seconds(0.1);        ///< for last words still on their way
  Nanos leave = nanos_of_seconds(20);          ///< from the last rank's done to mpirun's end
  Nanos starved = nanos_of_seconds(0.5);  ///< a tick later than this says we were not scheduled
};

class RunnerFsm {
 public:
  RunnerFsm(std::vector<RunnerRank> ranks, RunnerLimits limits, Nanos now);

  std::vector<RunnerAction> on(const RunnerEvent& event, Nanos now);
  bool ended() const { return state_ == State::kEnded; }

 private:
  enum class State { kRunning, kFailing, kLeaving, kKilling, kEnded };

  struct RankState {
    RunnerRank info;
    bool connected = false;
    bool gone = false;
    std::string refused;  ///< why somebody with its number was turned away
    std::optional<DoneReport> done;
    std::string phase = "starting";
    int64_t progress = 0;
    bool waiting = false;  ///< for other ranks, when it last beat
    Nanos heard{0};        ///< last sign of life
    Nanos moved{0};        ///< last change of progress, phase or step

    bool watched() const { return connected && !gone && !done; }
  };

  /// A possible reason of the failure; the lowest order names the culprit.
  struct Cause {
    enum class Order { kOwnWords, kAccount, kSilent, kRefused, kLost, kLaunch, kPeerLost };
    Order order = Order::kPeerLost;
    int rank = -1;
    Error error;
  };

  void handle(const RankConnected& event);
  void handle(const RankRefused& event);
  void handle(const RankGone& event);
  void handle(const RankBeat& event);
  void handle(const RankPhase& event);
  void handle(const RankStepped& event);
  void handle(const RankDone& event);
  void handle(const LaunchEnded& event);
  void handle(const StopRequested& event);
  void handle(const CheckpointRequested& event);
  void handle(const KillRequested& event);
  void handle(const ParentGone& event);
  void handle(const AllKilled& event);
  void handle(const Tick& event);

  RankState& alive(int rank);
  void blame(Cause::Order order, int rank, ErrorCode code, std::string message);
  void kill();
  void forgive_our_own_sleep();
  void check_silence();
  void check_hang();
  void check_connections();
  void after_all_done();
  bool all_done() const;
  bool any_stopped() const;
  bool all_gone() const;
  const RankExit* named_by_launch() const;
  Cause verdict() const;
  Nanos hang_limit(const RankState& rank) const;
  std::string title(int rank) const;
  std::string died(int rank) const;
  AttemptEnd end() const;

  std::vector<RankState> ranks_;
  RunnerLimits limits_;
  State state_ = State::kRunning;
  Nanos now_;
  Nanos started_;
  Nanos last_tick_;
  Nanos deadline_{0};  ///< of kFailing and kLeaving
  bool stop_requested_ = false;
  std::optional<LaunchEnd> launch_;  ///< once it has ended
  std::optional<Cause> cause_;
  std::deque<Nanos> step_times_;  ///< between rank 0's recent steps, on our clock
  Nanos last_step_{0};
  std::vector<RunnerAction> actions_;
};

}  // namespace motley
