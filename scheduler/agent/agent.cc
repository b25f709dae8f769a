#include "scheduler/agent/agent.h"

#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <utility>

#include "core/clock.h"
#include "scheduler/agent/agent_link.h"
#include "scheduler/agent/command_runner.h"
#include "scheduler/run/signal_inbox.h"
#include "scheduler/runner/attempt_key.h"
#include "scheduler/service/service_manager.h"

namespace motley {
namespace {

constexpr int kLookMilliseconds = 200;
/// A coordinator that does not answer for so long will not ask after what runs here: time enough
/// for a machine to be started again.
constexpr Nanos kGoneForGood{600'000'000'000};

class Agent {
 public:
  Agent(const ServiceClient& client, NodeJoin join, const std::string& address)
      : title_("node " + join.name),
        runner_(join.name + "@" + address),
        link_(client, std::move(join)) {}

  Result<int> run() {
    bool asked_to_end = false;
    const auto joined = link_.join([&] { return !(asked_to_end = signals_.next().has_value()); });
    if (asked_to_end) return 0;
    if (!joined) return fail(joined.error());
    // Only now is it known that no other agent of this name is at work.
    if (!runner_.end_all())
      return fail(ErrorCode::kNotPermitted,
                  title_ + ": processes of earlier attempts do not end, although killed");
    std::fprintf(stderr, "%s has joined\n", title_.c_str());
    tell_service_manager("READY=1");
    link_.start();
    const auto refusal = work();
    tell_service_manager("STOPPING=1");
    runner_.end_all();
    const bool heard = link_.stop();
    if (refusal) return fail(*refusal);
    if (!heard) leave_unheard();
    if (const auto left = link_.leave(); !left)
      std::fprintf(stderr, "%s: %s\n", title_.c_str(), left.error().to_string().c_str());
    return 0;
  }

 private:
  /// A thread that waits for an answer goes with the process alone.
  [[noreturn]] void leave_unheard() const {
    std::fprintf(stderr, "%s: ended, while the coordinator does not answer\n", title_.c_str());
    std::fflush(nullptr);
    ::_exit(0);
  }

  /// Nothing: a signal ended it.
  std::optional<Error> work() {
    while (true) {
      wait();
      if (signals_.next()) return std::nullopt;
      AgentLink::Wishes wishes = link_.take();
      if (wishes.refusal) return wishes.refusal;
      for (const NodeCommand& command : wishes.start) runner_.start(command);
      for (const NodeCommand& command : wishes.end_commands) runner_.end(command);
      link_.add(runner_.read());
      if (steady_clock().now() - wishes.heard > kGoneForGood)
        wishes.end_attempts = link_.attempts();
      for (const AttemptId attempt : wishes.end_attempts) end(attempt);
    }
  }

  void wait() const {
    std::vector<pollfd> polled = {{signals_.fd(), POLLIN, 0}, {link_.wake_fd(), POLLIN, 0}};
    runner_.append_polled(&polled);
    ::poll(polled.data(), polled.size(), kLookMilliseconds);
  }

  /// An attempt that does not go stays among what is reported: nothing new is run here then.
  void end(AttemptId attempt) {
    const bool gone = runner_.end(attempt);
    link_.add(runner_.read());  // what others have printed meanwhile, too
    if (gone) link_.forget(attempt);
  }

  SignalInbox signals_;  ///< before the threads, which take no signals then
  std::string title_;
  CommandRunner runner_;
  AgentLink link_;
};

}  // namespace

Result<int> run_agent(const ServiceClient& client, AgentOptions options) {
  ::signal(SIGPIPE, SIG_IGN);
  MOTLEY_TRY(const AttemptKey session, AttemptKey::generate());
  return Agent(client,
               {std::move(options.name), session.text(), std::move(options.fleet),
                std::move(options.labels)},
               options.address)
      .run();
}

Result<FleetSpec> fleet_of_node(FleetSpec fleet, const std::string& name, bool own_fleet) {
  std::erase_if(fleet.devices,
                [&](const DeviceSpec& device) { return !own_fleet && device.host != name; });
  if (fleet.devices.empty())
    return fail(ErrorCode::kNoDevice,
                fleet.source + " has no device of host " + name + "; another with --name");
  for (size_t i = 0; i < fleet.devices.size(); ++i) {
    fleet.devices[i].host = name;
    fleet.devices[i].id = name + "/" + std::to_string(i);
  }
  fleet.links.clear();
  MOTLEY_TRY_VOID(check_told_apart(fleet));
  return fleet;
}

}  // namespace motley
