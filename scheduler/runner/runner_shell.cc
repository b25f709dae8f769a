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
#include <map>
#include <optional>
#include <utility>  // before Asio of Boost 1.74

#include "core/clock.h"
#include "core/reports.h"
#include "scheduler/launch/environment.h"
#include "scheduler/launch/remote_hosts.h"
#include "scheduler/launch/scratch.h"
#include "scheduler/launch/this_host.h"
#include "scheduler/runner/attempt_key.h"
#include "scheduler/runner/line_writer.h"
#include "scheduler/runner/rank_listener.h"
#include "scheduler/runner/rank_log.h"
#include "scheduler/runner/rank_session.h"
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
        listener_(context_),
        stdin_(context_),
        launch_end_(context_),
        timer_(context_),
        writer_(context_),
        fsm_(rank_names(assignment_.ranks), RunnerLimits{}, steady_clock().now()) {}

  Result<Unit> run() {
    ::signal(SIGPIPE, SIG_IGN);
    MOTLEY_TRY(Scratch scratch, Scratch::create());
    MOTLEY_TRY(key_, AttemptKey::generate());
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
    const std::string key_file = scratch.path() + "/key";
    if (const auto here = prepare_here(scratch, key_file); !here)
      return tl::unexpected<HostError>({"", here.error()});
    Staging staging;
    staging.directories = {assignment_.log_directory(), scratch.path(), scratch.shared_memory()};
    staging.files = {{assignment_.document, assignment_.text}, {key_file, key_->text()}};
    if (!assignment_.run_dir.empty())
      staging.files.push_back({assignment_.run_dir + "/job.json", assignment_.job_text});
    staging.worker = options_.worker;
    staging.rsh_agent = options_.rsh_agent;
    const auto staged = stage_on(hosts_, staging);
    ::prctl(PR_SET_PDEATHSIG, 0);
    return staged;
  }

  Result<Unit> prepare_here(const Scratch& scratch, const std::string& key_file) {
    MOTLEY_TRY_VOID(key_->write(key_file));
    MOTLEY_TRY(const std::string control, hosts_.empty()
                                              ? listener_.listen_here(scratch.path() + "/control")
                                              : listener_.listen_for(hosts_.front()));
    return fill_in(&assignment_, control, key_file);
  }

  void start_listening() {
    listener_.start([this](RankSession::Socket socket) {
      std::make_shared<RankSession>(
          std::move(socket),
          [this](RankSession& session, const Message& message) {
            return on_message(session, message);
          },
          [this](RankSession& session) { on_closed(session); })
          ->start();
    });
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

  bool on_message(RankSession& session, const Message& message) {
    if (session.rank() < 0) return accept_hello(session, message);
    if (message.epoch != assignment_.epoch) return false;
    if (!dispatch(session.rank(), message)) return false;
    const std::string event = event_name(message.type);
    if (!event.empty()) writer_.put({event, message.payload});
    return true;
  }

  bool accept_hello(RankSession& session, const Message& message) {
    if (message.type != MessageType::kHello) return false;
    auto hello = hello_from_text(message.payload);
    const int ranks = static_cast<int>(assignment_.ranks.size());
    if (!hello || hello->rank < 0 || hello->rank >= ranks) return false;
    if (std::string why = reason_to_refuse(message.epoch, *hello); !why.empty()) {
      fsm_event(RankRefused{hello->rank, std::move(why)});
      return false;
    }
    session.set_rank(hello->rank);
    sessions_[hello->rank] = session.weak_from_this();
    hello->key.clear();
    writer_.put({"hello", to_json_text(*hello)});
    fsm_event(RankConnected{hello->rank});
    return true;
  }

  std::string reason_to_refuse(Epoch epoch, const Hello& hello) const {
    if (epoch != assignment_.epoch)
      return "it belongs to attempt " + std::to_string(epoch.value()) + ", not " +
             std::to_string(assignment_.epoch.value());
    if (!key_->matches(hello.key)) return "its key is not this attempt's";
    if (sessions_.count(hello.rank) != 0) return "it is connected already";
    return "";
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
      default:
        return false;
    }
  }

  void on_closed(RankSession& session) {
    if (session.rank() >= 0) fsm_event(RankGone{session.rank()});
  }

  void fsm_event(const RunnerEvent& event) {
    for (const RunnerAction& action : fsm_.on(event, steady_clock().now()))
      std::visit([this](const auto& what) { perform(what); }, action);
  }

  void perform(const SendToRank& action) {
    const auto found = sessions_.find(action.rank);
    if (found == sessions_.end()) return;
    if (const auto session = found->second.lock())
      session->send({action.type, assignment_.epoch, "{}"});
  }

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
  std::optional<AttemptKey> key_;

  asio::io_context context_;
  RankListener listener_;
  asio::posix::stream_descriptor stdin_;
  asio::posix::stream_descriptor launch_end_;
  asio::steady_timer timer_;
  asio::streambuf commands_{kLongestCommand};
  LineWriter writer_;
  std::map<int, std::weak_ptr<RankSession>> sessions_;
  RunnerFsm fsm_;
  std::unique_ptr<Launched> launched_;
};

}  // namespace

Result<Unit> run_attempt(Launcher& launcher, Assignment assignment, const RunnerOptions& options) {
  RunnerShell shell(launcher, std::move(assignment), options);
  return shell.run();
}

}  // namespace motley
