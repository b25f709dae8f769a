#pragma once
// The job service from a seed, on one thread and in virtual time: the real coordinator, its store
// and policies, among people who remember what was acknowledged to them, nodes and attempts that
// fail, messages that are late or lost, and a coordinator that is killed and started again.

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/sim/service/fake_machines.h"

namespace motley::testing {

struct WorldOptions {
  uint32_t seed = 1;
  double troubled_seconds = 300;  ///< things go wrong; then all has to come to rest
  double most_seconds = 4000;     ///< until everything has ended
  std::string policy = "backfill";
};

struct WorldReport {
  int submitted = 0;  ///< and acknowledged
  int asked = 0;      ///< requests acknowledged
  int updated = 0;    ///< updates acknowledged
  int attempts = 0;
  int most_attempts = 0;  ///< of one job
  int coordinator_crashes = 0;
  int nodes_lost = 0;  ///< agents that crashed, and partitions
  double seconds = 0;  ///< virtual
};

class ServiceWorld {
 public:
  explicit ServiceWorld(const WorldOptions& options);
  ~ServiceWorld();

  /// Throws Violation.
  WorldReport run();
  /// The last things that happened, a line each.
  std::string trace() const;

 private:
  class Head;
  struct Acknowledged {
    std::string key;
    std::vector<JobSpec> jobs;  ///< several: an array
    int64_t id = 0;             ///< of the first; 0: not yet
    bool refused = false;

    bool settled() const { return id != 0 || refused; }

    /// None before it is acknowledged.
    std::vector<int64_t> ids() const {
      std::vector<int64_t> all;
      for (size_t i = 0; id != 0 && i < jobs.size(); ++i)
        all.push_back(id + static_cast<int64_t>(i));
      return all;
    }
  };
  /// Of a job: updates are numbered, and one is sent when the one before has long arrived, or never
  /// will.
  struct Updates {
    int sent = 0;
    int acknowledged = 0;
    double last = -10;  ///< seconds
  };

  void say(const std::string& text);
  /// A message to the coordinator, late or lost; nobody gets it while it is dead.
  void send(std::function<void(Coordinator&)> message);
  /// An answer of the coordinator's that is alive now.
  void answer(std::function<void()> message);

  void person(int number);
  void submit_something();
  void try_submission(size_t index);
  void refused(size_t index, const Error& error);
  void ask_something();
  int64_t some_acknowledged_job();
  void update_something();
  void drain_something();
  DeviceFilter some_filter();
  JobSpec some_job();
  std::vector<JobSpec> some_array();

  void agent_loop(FakeNode& node);
  void call(FakeNode& node);
  void crash_node(FakeNode& node);
  void partition_node(FakeNode& node);
  void crash_coordinator();

  void begin();
  void check_jobs();
  void check_job(int64_t id);
  void check_updates();
  void come_to_rest();
  void release_all();
  void check_nothing_left();
  bool at_rest();

  const WorldOptions options_;
  EventQueue events_;
  Chance chance_;
  Mishaps mishaps_;
  Occupancy occupancy_;
  std::map<std::string, FakeNode> nodes_;
  FakeLauncher launcher_;
  std::unique_ptr<Head> head_;
  std::vector<Acknowledged> submissions_;
  std::map<int64_t, Updates> updates_;
  std::map<int64_t, JobState> ended_;  ///< as they were seen
  std::deque<std::string> trace_;
  WorldReport report_;
};

}  // namespace motley::testing
