#pragma once
// What surrounds a coordinator in the simulation: attempts as processes of its machine, which
// outlive it, and nodes whose agents start the ranks there. They know nothing of the coordinator
// but what it tells them; what they see of each other are the facts that invariants are about.

#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "scheduler/service/coordinator.h"
#include "tests/sim/service/event_queue.h"

namespace motley::testing {

/// How often what goes wrong; all zero in the end, when everything has to come to rest.
struct Mishaps {
  double lost_message = 0.01;
  double coordinator_crash_every = 40;  ///< seconds on average
  double agent_crash_every = 60;        ///< of each node
  double partition_every = 60;          ///< of each node
  double attempt_fails = 0.1;
  double ignores_stop = 0.05;

  static Mishaps none() { return {0, 0, 0, 0, 0, 0}; }
};

/// What must never be.
struct Violation {
  std::string text;
};

/// Which processes are on which device, whoever believes what.
class Occupancy {
 public:
  void enter(AttemptId attempt, const std::string& device);
  void leave(AttemptId attempt, const std::string& device);
  bool idle() const { return users_.empty(); }

 private:
  std::map<std::string, AttemptId> users_;
};

class FakeNode {
 public:
  FakeNode(std::string name, FleetSpec fleet, Occupancy& occupancy)
      : name_(std::move(name)), fleet_(std::move(fleet)), occupancy_(occupancy) {}

  const std::string& name() const { return name_; }
  const FleetSpec& fleet() const { return fleet_; }
  std::string session() const { return name_ + "#" + std::to_string(lives_); }
  bool alive() const { return alive_; }
  bool reachable() const { return alive_ && !cut_off_; }
  bool runs(AttemptId attempt) const { return ranks_.count(attempt) != 0; }
  std::vector<AttemptId> running() const;

  /// False where it cannot be: the agent is not there, or another attempt's rank has the device.
  bool start_ranks(const AttemptOrder& order);
  void end_ranks(AttemptId attempt);
  /// All but these.
  void end_others(const std::vector<AttemptId>& allowed);

  void crash();  ///< with all that it runs
  void come_back();
  void cut_off(bool cut) { cut_off_ = cut; }

  bool joined = false;

 private:
  std::string name_;
  FleetSpec fleet_;
  Occupancy& occupancy_;
  std::map<AttemptId, std::vector<std::string>> ranks_;  ///< and their devices
  bool alive_ = true;
  bool cut_off_ = false;
  int lives_ = 1;
};

/// Attempts as processes of the coordinator's machine.
class FakeLauncher final : public AttemptLauncher {
 public:
  /// A request to start ranks on a node, through the coordinator: false where it is not there or
  /// does not let them.
  using StartThrough = std::function<bool(const AttemptOrder& order, FakeNode& node)>;
  using Told = std::function<void(int64_t job, const AttemptOver& over)>;

  FakeLauncher(EventQueue& events, Chance& chance, Occupancy& occupancy,
               std::map<std::string, FakeNode>& nodes)
      : events_(events), chance_(chance), occupancy_(occupancy), nodes_(nodes) {}

  void connect(StartThrough start, Told told) {
    start_through_ = std::move(start);
    told_ = std::move(told);
  }
  void set_mishaps(const Mishaps& mishaps) { mishaps_ = mishaps; }

  Result<Nanos> begin(const AttemptOrder& order) override;
  void ask_to_stop(AttemptId id, StopWhy why) override;
  void kill(AttemptId id) override;

  /// Its cancelling was acknowledged: no further attempt may begin.
  void forbid(int64_t job) { forbidden_.insert(job); }

  int begun() const { return static_cast<int>(attempts_.size()); }
  int most_of_a_job() const;
  bool all_over() const;

 private:
  struct Attempt {
    AttemptOrder order;
    Nanos begun{0};
    std::set<std::string> started;  ///< nodes where its ranks run
    bool training = false;
    bool over = false;
    AttemptOver end;
  };

  /// What it is given is what its job asks for, all of it.
  void check_devices(const AttemptOrder& order) const;
  void check_at_once(const AttemptOrder& order) const;
  void find_ranks(AttemptId id);
  void measure(AttemptId id);
  void train(Attempt& attempt);
  void watch(AttemptId id);
  void finish(AttemptId id, AttemptOutcome outcome, const std::string& cause,
              bool hopeless = false);
  void report(AttemptId id);

  EventQueue& events_;
  Chance& chance_;
  Occupancy& occupancy_;
  std::map<std::string, FakeNode>& nodes_;
  StartThrough start_through_;
  Told told_;
  Mishaps mishaps_;
  std::map<AttemptId, Attempt> attempts_;
  std::map<int64_t, double> work_left_;  ///< seconds, by job
  std::set<int64_t> forbidden_;
  std::set<std::pair<std::string, std::string>> measured_;  ///< workloads, and device types
};

}  // namespace motley::testing
