#include "scheduler/runner/runner_shell.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/streambuf.hpp>
#include <chrono>
#include <csignal>
#include <istream>
#include <utility>  // before Asio of Boost 1.74

#include "core/clock.h"
#include "core/reports.h"
#include "scheduler/launch/environment.h"
#include "scheduler/launch/remote_hosts.h"
#include "scheduler/launch/scratch.h"
#include "scheduler/launch/this_host.h"
#include "scheduler/runner/line_writer.h"
#include "scheduler/runner/rank_connections.h"
#include "scheduler/runner/rank_log.h"
#include "scheduler/runner/runner_fsm.h"
#include "scheduler/runner/runner_line.h"

namespace motley {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr auto kTickPeriod = std::chrono::milliseconds(50);
constexpr size_t kLongestCommand = 64;

class RunnerShell {
 public:
  RunnerShell(Launcher& launcher, Assignment assignment, const RunnerOptions& options)
      : launcher_(launcher),
        assignment_(std::move(assignment)),
        options_(options),
        hosts_(remote_hosts(assignment_.ranks)),
        connections_(context_, assignment_.epoch, static_cast<int>(assignment_.ranks.size()),
                     events()),
        stdin_(context_),
        launch_end_(context_),
        timer_(context_),
        writer_(context_),
        fsm_(rank_names(assignment_.ranks), RunnerLimits{}, steady_clock().now()) {}

  Result<Unit> run() {
    ::signal(SIGPIPE, SIG_IGN);
    MOTLEY_TRY(Scratch scratch, Scratch::create());
    if (const auto prepared = prepare(scratch); !prepared) {
      report_end({Outcome::kFailed, prepared.error().error, first_rank_on(prepared.error().host)});
    } else {
      start_listening();
      const auto launched = launch(scratch);
      if (!launched)
        fsm_event(LaunchEnded{{.error = launched.error(), .first = {}, .crashed = false}});
      context_.run();
      launched_.reset();
      remove_on(hosts_, {scratch.path(), scratch.shared_memory()}, options_.rsh_agent);
    }
    flush();
    return Unit{};
  }

 private:
  RankConnections::Events events() {
    return {.connected =
                [this](const Hello& hello) {
                  writer_.put({"hello", to_json_text(hello)});
                  fsm_event(RankConnected{hello.rank});
                },
            .refused =
                [this](int rank, const std::string& why) {
                  fsm_event(RankRefused{rank, why});
                },
            .message = [this](int rank, const Message& m) { return on_message(rank, m); },
            .gone = [this](int rank) { fsm_event(RankGone{rank}); }};
  }

  static std::vector<RunnerRank> rank_names(const std::vector<RankPlacement>& ranks) {
    std::vector<RunnerRank> names;
    for (const RankPlacement& rank : ranks)
      names.push_back({rank.device + " (" + rank.type + ")", !is_this_host(rank.host)});
    return names;
  }

  /// -1: none.
  int first_rank_on(const std::string& host) const {
    for (size_t i = 0; i < assignment_.ranks.size(); ++i)
      if (assignment_.ranks[i].host == host) return static_cast<int>(i);
    return -1;
  }

  /// Everything the ranks will look for, here and on their hosts.
  tl::expected<Unit, HostError> prepare(const Scratch& scratch) {
    // Until ranks run there is nothing to end in good order when our parent goes.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (const auto here = prepare_here(scratch); !here)
      return tl::unexpected<HostError>({"", here.error()});
    Staging staging;
    staging.directories = {assignment_.log_directory(), scratch.path(), scratch.shared_memory()};
    staging.files = {{assignment_.document, assignment_.text},
                     {connections_.key_file(), connections_.key_text()}};
    if (!assignment_.run_dir.empty())
      staging.files.push_back({assignment_.run_dir + "/job.json", assignment_.job_text});
    staging.worker = options_.worker;
    staging.rsh_agent = options_.rsh_agent;
    const auto staged = stage_on(hosts_, staging);
    ::prctl(PR_SET_PDEATHSIG, 0);
    return staged;
  }

  Result<Unit> prepare_here(const Scratch& scratch) {
    MOTLEY_TRY_VOID(connections_.listen(scratch.path(), hosts_));
    return fill_in(&assignment_, connections_.control(), connections_.key_file());
  }

  void start_listening() {
    connections_.start();
    error_code no_parent;  // then reading fails at once
    stdin_.assign(::dup(STDIN_FILENO), no_parent);
    read_command();
    tick();
  }

  Result<Unit> launch(const Scratch& scratch) {
    LaunchRequest request;
    request.ranks = assignment_.ranks;
    request.command = assignment_.command(options_.worker);
    request.environment = environment_for_ranks(Environment::inherited());
    request.log_directory = assignment_.log_directory();
    request.scratch_directory = scratch.path();
    request.shared_memory_directory = scratch.shared_memory();
    request.rsh_agent = options_.rsh_agent;
    MOTLEY_TRY(launched_, launcher_.launch(request));
    launch_end_.assign(::dup(launched_->exit_fd()));
    wait_for_launch_end();
    return Unit{};
  }

  void wait_for_launch_end() {
    launch_end_.async_wait(asio::posix::descriptor_base::wait_read, [this](error_code error) {
      if (error || !launched_) return;
      const auto end = launched_->end();
      if (!end) return wait_for_launch_end();
      fsm_event(LaunchEnded{*end});
    });
  }

  void read_command() {
    asio::async_read_until(stdin_, commands_, '\n', [this](error_code error, size_t) {
      if (error) return fsm_event(ParentGone{});
      std::istream in(&commands_);
      std::string word;
      std::getline(in, word);
      if (word == "stop") fsm_event(StopRequested{});
      if (word == "checkpoint") fsm_event(CheckpointRequested{});
      if (word == "kill") fsm_event(KillRequested{});
      if (!fsm_.ended()) read_command();
    });
  }

  void tick() {
    timer_.expires_after(kTickPeriod);
    timer_.async_wait([this](error_code error) {
      if (error) return;
      // After whatever ranks have sent: on a busy machine it may have waited for us.
      context_.poll();
      fsm_event(Tick{});
      if (!fsm_.ended()) tick();
    });
  }

  bool on_message(int rank, const Message& message) {
    if (!tells_of(rank, message) || !dispatch(rank, message)) return false;
    const std::string event = event_name(message.type);
    if (!event.empty()) writer_.put({event, message.payload});
    return true;
  }

  /// False for a payload that makes no sense, or speaks for another rank.
  bool dispatch(int rank, const Message& message) {
    switch (message.type) {
      case MessageType::kPhase: {
        const auto report = phase_report_from_text(message.payload);
        if (report) fsm_event(RankPhase{rank, report->phase});
        return report.has_value();
      }
      case MessageType::kStep:
        fsm_event(RankStepped{rank});
        return true;
      case MessageType::kHeartbeat: {
        const auto beat = heartbeat_from_text(message.payload);
        if (beat) fsm_event(RankBeat{rank, beat->progress, beat->waiting});
        return beat.has_value();
      }
      case MessageType::kDone: {
        auto report = done_report_from_text(message.payload);
        if (!report || report->rank != rank) return false;
        fsm_event(RankDone{*report});
        return true;
      }
      case MessageType::kSaved:
      case MessageType::kSkipped:
      case MessageType::kEvaluated:
      case MessageType::kProfile:
        return true;
      case MessageType::kHello:
        return false;  // it has said so
      default:
        return true;  // of a later build
    }
  }

  void fsm_event(const RunnerEvent& event) {
    for (const RunnerAction& action : fsm_.on(event, steady_clock().now()))
      std::visit([this](const auto& what) { perform(what); }, action);
  }

  void perform(const SendToRank& action) { connections_.send(action.rank, action.type); }

  void perform(const KillAll&) {
    if (launched_) launched_->kill_all();
    fsm_event(AllKilled{});
  }

  void perform(const Finish& action) {
    AttemptEnd end = action.end;
    if (end.outcome == Outcome::kFailed)
      end.error = with_log(end, assignment_.ranks, assignment_.log_directory());
    report_end(end);
    context_.stop();
  }

  void report_end(const AttemptEnd& end) { writer_.put({"ended", to_json_text(end)}); }

  /// Gives what was written last a moment to be read.
  void flush() {
    const Nanos until = steady_clock().now() + nanos_of_seconds(2);
    context_.restart();
    while (!writer_.empty() && steady_clock().now() < until)
      context_.run_one_for(std::chrono::milliseconds(50));
  }

  Launcher& launcher_;
  Assignment assignment_;
  const RunnerOptions& options_;
  std::vector<std::string> hosts_;  ///< other than this one

  asio::io_context context_;
  RankConnections connections_;
  asio::posix::stream_descriptor stdin_;
  asio::posix::stream_descriptor launch_end_;
  asio::steady_timer timer_;
  asio::streambuf commands_{kLongestCommand};
  LineWriter writer_;
  RunnerFsm fsm_;
  std::unique_ptr<Launched> launched_;
};

}  // namespace

Result<Unit> run_attempt(Launcher& launcher, Assignment assignment, const RunnerOptions& options) {
  RunnerShell shell(launcher, std::move(assignment), options);
  return shell.run();
}

}  // namespace motley
