#include "scheduler/runner/program_shell.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <csignal>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "core/clock.h"
#include "core/file_system.h"
#include "core/units.h"
#include "scheduler/launch/command.h"
#include "scheduler/launch/environment.h"
#include "scheduler/launch/log_file.h"
#include "scheduler/launch/process_tree.h"
#include "scheduler/launch/remote_hosts.h"
#include "scheduler/launch/scratch.h"
#include "scheduler/launch/this_host.h"
#include "scheduler/runner/assignment.h"
#include "scheduler/runner/program_assignment.h"
#include "scheduler/runner/rank_connections.h"
#include "scheduler/runner/rank_log.h"
#include "scheduler/runner/rank_output.h"
#include "scheduler/runner/runner_line.h"

namespace motley {
namespace {

constexpr int kLookMilliseconds = 100;
constexpr size_t kPiece = 16 << 10;
constexpr Nanos kAnswer{20'000'000'000};  // of another host
constexpr Nanos kLongAnswer{600'000'000'000};
constexpr Nanos kAskAgain{1'000'000'000};
constexpr Bytes kLargestProgram{64 << 20};
constexpr Nanos kGrace{30'000'000'000};  // to save and end in, where the job does not say

void say(const RunnerLine& line) {
  std::printf("%s\n", to_text(line).c_str());
  std::fflush(stdout);
}

class ProgramShell {
 public:
  ProgramShell(Launcher& launcher, ProgramAssignment assignment, RunnerOptions options)
      : launcher_(launcher),
        assignment_(std::move(assignment)),
        options_(std::move(options)),
        ranks_(rank_for_each_device(assignment_.fleet)),
        hosts_(remote_hosts(ranks_)),
        connections_(context_, assignment_.epoch, static_cast<int>(ranks_.size()), events()),
        output_(rank_log_path(assignment_.directory, 0), host_of_output(), options_.rsh_agent) {}

  Result<Unit> run(const std::string& program, const std::string& document) {
    ::signal(SIGPIPE, SIG_IGN);
    MOTLEY_TRY(const Scratch scratch, Scratch::create());
    const Result<Unit> ran = run_ranks(program, document, scratch);
    remove_on(hosts_, {scratch.path(), scratch.shared_memory()}, options_.rsh_agent);
    MOTLEY_TRY_VOID(ran);
    tell(killed_ ? output_.next() : output_.rest());
    say({"ended", to_json_text(verdict())});
    return Unit{};
  }

 private:
  /// Of programs that know us: what they say of their steps. Nothing depends on it.
  static RankConnections::Events events() {
    return {.connected = [](const Hello&) {},
            .refused = [](int, const std::string&) {},
            .message =
                [](int rank, const Message& message) {
                  if (!tells_of(rank, message)) return false;
                  const std::string event = event_name(message.type);
                  if (event == "phase" || event == "step") say({event, message.payload});
                  return true;
                },
            .gone = [](int) {}};
  }

  Result<Unit> run_ranks(const std::string& program, const std::string& document,
                         const Scratch& scratch) {
    if (connections_.listen(scratch.path(), hosts_)) {  // else they tell nothing
      assignment_.control = connections_.control();
      assignment_.key_file = connections_.key_file();
      connections_.start();
    }
    MOTLEY_TRY_VOID(write_program(assignment_, document));
    MOTLEY_TRY_VOID(stage(document, scratch));
    LaunchRequest request;
    request.rsh_agent = options_.rsh_agent;
    request.ranks = ranks_;
    request.command = {program, "rank", document};
    request.log_directory = assignment_.directory;
    request.scratch_directory = scratch.path();
    request.shared_memory_directory = scratch.shared_memory();
    MOTLEY_TRY(launched_, launcher_.launch(request));
    while (!over()) wait();
    launched_->kill_all();
    listen_to_ranks();  // last words
    if (!killed_) bring_ends();
    return Unit{};
  }

  /// What the ranks will look for, on the other hosts.
  Result<Unit> stage(const std::string& document, const Scratch& scratch) const {
    if (hosts_.empty()) return Unit{};
    MOTLEY_TRY(const std::string text, read_text(real_file_system(), document, kLargestProgram));
    Staging staging;
    for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank)
      for (const std::string& file : files_of_rank(assignment_.directory, rank))
        staging.stale.push_back(file);
    staging.directories = {assignment_.directory, assignment_.checkpoints, scratch.path(),
                           scratch.shared_memory()};
    staging.files = {{document, text}};
    if (!assignment_.key_file.empty())
      staging.files.push_back({assignment_.key_file, connections_.key_text()});
    const std::string plan = plan_path(assignment_.directory);
    if (auto plan_text = read_text(real_file_system(), plan, kLargestProgram))
      staging.files.push_back({plan, *std::move(plan_text)});
    staging.worker = options_.worker;
    staging.rsh_agent = options_.rsh_agent;
    const auto staged = stage_on(hosts_, staging);
    if (!staged) return fail(staged.error().error);
    return Unit{};
  }

  /// How the ranks of other hosts have ended, where those share no files with us. Of ranks that
  /// have all done their work it is waited for: a node's agent may have to wait for its
  /// coordinator.
  void bring_ends() const {
    const bool well = launch_ && !launch_->error;
    const Nanos until = steady_clock().now() + (well ? kLongAnswer : kAnswer);
    std::vector<std::string> left = hosts_;
    while (!left.empty() && steady_clock().now() < until) {
      std::vector<CommandRequest> requests;
      for (const std::string& host : left)
        requests.push_back({remote_command(options_.rsh_agent, host,
                                           ends_command(assignment_.directory, ranks_on(host))),
                            ""});
      const auto answers = run_commands(requests, until - steady_clock().now());
      std::vector<std::string> silent;
      for (size_t i = 0; i < left.size(); ++i)
        if (!answers[i] || !answers[i]->status.ok())
          silent.push_back(left[i]);
        else
          keep_ends(answers[i]->out);
      left = std::move(silent);
      if (!left.empty()) steady_clock().sleep_until(steady_clock().now() + kAskAgain);
    }
  }

  void keep_ends(const std::string& text) const {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);)
      if (const auto end = program_end_of(line))
        (void)write_program_end(assignment_.directory, *end);
  }

  bool over() {
    if (!launch_) launch_ = launched_->end();
    late_ = !launch_ && stop_by_ && steady_clock().now() >= *stop_by_;
    return launch_ || killed_ || late_;
  }

  void wait() {
    pollfd watched[2] = {{STDIN_FILENO, POLLIN, 0}, {launched_->exit_fd(), POLLIN, 0}};
    ::poll(watched, 2, kLookMilliseconds);
    if (stop_by_) ask_own();
    ask_hosts();
    listen_to_ranks();
    if ((watched[0].revents & (POLLIN | POLLHUP | POLLERR)) != 0) read_commands();
    for (std::string text = output_.next(); !text.empty(); text = output_.next()) tell(text);
  }

  void read_commands() {
    char text[256];
    const ssize_t size = ::read(STDIN_FILENO, text, sizeof text);
    if (size <= 0) killed_ = true;  // who started us has gone
    for (ssize_t i = 0; i < size; ++i) {
      if (text[i] != '\n') {
        word_ += text[i];
        continue;
      }
      if (word_ == "stop") stop();
      if (word_ == "kill") killed_ = true;
      word_.clear();
    }
  }

  Nanos grace() const {
    const Nanos wanted = assignment_.job.service.stop_grace;
    return wanted > Nanos(0) ? wanted : kGrace;
  }

  void stop() {
    if (stop_by_) return;
    stop_by_ = steady_clock().now() + grace();
    for (const std::string& host : hosts_) asked_[host];
  }

  /// Only the processes above the programs: mpirun would end everything at once. Again and again,
  /// as some may not have been started yet.
  void ask_own() {
    for (const pid_t pid : launched_->processes())
      if (is_rank(pid) && own_asked_.insert(pid).second) ::kill(pid, SIGTERM);
  }

  /// Other hosts are asked to stop their ranks until they have answered.
  void ask_hosts() {
    for (auto& [host, asking] : asked_) {
      ExitStatus status;
      if (asking.answered || (asking.command && !asking.command->ended(&status))) continue;
      asking.answered = asking.command && status.ok();
      if (asking.answered || steady_clock().now() < asking.next) continue;
      SpawnRequest request;
      request.command = remote_command(options_.rsh_agent, host,
                                       stop_command(assignment_.directory, ranks_on(host)));
      request.environment = Environment::inherited().entries();
      request.die_with_parent = true;
      request.stdout_fd = STDERR_FILENO;  // who started us reads lines of ours
      if (auto child = ChildProcess::spawn(request)) asking.command.emplace(*std::move(child));
      asking.next = steady_clock().now() + kAskAgain;
    }
  }

  /// Some of what they have said: whatever they do, commands are heard.
  void listen_to_ranks() {
    constexpr int kMost = 1000;
    for (int handled = 0; handled < kMost && context_.poll_one() > 0; ++handled) {
    }
  }

  std::vector<int> ranks_on(const std::string& host) const {
    std::vector<int> ranks;
    for (size_t rank = 0; rank < ranks_.size(); ++rank)
      if (ranks_[rank].host == host) ranks.push_back(static_cast<int>(rank));
    return ranks;
  }

  /// The process that mpirun has started for a rank runs our own program.
  static bool is_rank(pid_t pid) {
    char words[4096];
    const std::string path = "/proc/" + std::to_string(pid) + "/cmdline";
    const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    const ssize_t size = fd.valid() ? ::read(fd.get(), words, sizeof words) : 0;
    if (size <= 0) return false;
    const std::string_view line(words, static_cast<size_t>(size));
    const size_t first = line.find('\0');
    return first != std::string_view::npos && line.substr(0, first).ends_with("/motley") &&
           line.substr(first + 1).starts_with(std::string_view("rank\0", 5));
  }

  /// Rank 0's output is the job's.
  std::string host_of_output() const {
    const std::string& host = ranks_.front().host;
    return std::find(hosts_.begin(), hosts_.end(), host) != hosts_.end() ? host : "";
  }

  /// In pieces, cut behind a line where there is an end of one.
  static void tell(std::string_view text) {
    while (!text.empty()) {
      std::string_view piece = text.substr(0, kPiece);
      const size_t line_end = piece.rfind('\n');
      if (line_end != std::string_view::npos) piece = piece.substr(0, line_end + 1);
      text.remove_prefix(piece.size());
      say({"output", nlohmann::json{{"text", piece}}.dump(
                         -1, ' ', false, nlohmann::json::error_handler_t::replace)});
    }
  }

  /// A rank that was killed because of another one has not failed itself.
  AttemptEnd verdict() const {
    std::optional<ProgramEnd> first;
    AttemptEnd end;
    bool all_ended = true, any_stopped = false;
    for (int rank = 0; rank < static_cast<int>(ranks_.size()); ++rank) {
      const auto ended = read_program_end(assignment_.directory, rank);
      // Of a host that does not answer any more: mpirun has seen all end well.
      all_ended = all_ended && (ended.has_value() || (launch_ && !launch_->error));
      any_stopped = any_stopped || (ended && ended->status == 75);
      const bool terminated = ended && stop_by_ && ended->signal == SIGTERM;
      if (!ended || ended->saved() || terminated || (first && !precedes(*ended, *first))) continue;
      first = *ended;
      end.rank = rank;
    }
    if (first && !first->missing.empty())
      return failed(end.rank, "could not start it: " + first->missing, ErrorCode::kNotFound);
    if (first) return failed(end.rank, "ended with " + first->to_string());
    if (killed_) return cut_short("it was killed");
    if (!all_ended && late_)
      return cut_short("asked to stop, it had not ended by itself " +
                       format_seconds(seconds_of(grace())) + " later");
    if (!all_ended && stop_by_) return cut_short("asked to stop, it ended before it could save");
    // Whatever a file says: mpirun has seen one of them fail.
    const bool failed_itself = launch_ && launch_->error && !stop_by_;
    if (!all_ended || failed_itself) return lost();
    end.outcome = stop_by_ || any_stopped ? Outcome::kStopped : Outcome::kFinished;
    return end;
  }

  /// Clocks of several hosts tell nothing: then what mpirun saw first, or nobody knows.
  bool precedes(const ProgramEnd& end, const ProgramEnd& other) const {
    if (hosts_.empty()) return end.at < other.at;
    return launch_ && launch_->first && launch_->first->rank == end.rank;
  }

  AttemptEnd failed(int rank, const std::string& how,
                    ErrorCode code = ErrorCode::kRunFailed) const {
    AttemptEnd end;
    end.rank = rank;
    const RankPlacement& place = ranks_[static_cast<size_t>(rank)];
    end.error = {
        code,
        "rank " + std::to_string(rank) + " on " + place.device + " (" + place.type + ") " + how,
        {}};
    end.error = with_log(end, ranks_, assignment_.directory);
    return end;
  }

  static AttemptEnd cut_short(const std::string& why) {
    AttemptEnd end;
    end.error = {ErrorCode::kRunFailed, why, {}};
    end.in_own_words = true;
    return end;
  }

  /// What mpirun says of a rank that could not say how it ended.
  AttemptEnd lost() const {
    if (launch_ && launch_->first)
      return failed(launch_->first->rank, "ended with " + launch_->first->how);
    AttemptEnd end;
    end.error = launch_ && launch_->error
                    ? *launch_->error
                    : Error{ErrorCode::kRunFailed, "ranks ended without a word", {}};
    end.error = with_log(end, ranks_, assignment_.directory);
    return end;
  }

  Launcher& launcher_;
  ProgramAssignment assignment_;
  const RunnerOptions options_;
  const std::vector<RankPlacement> ranks_;
  const std::vector<std::string> hosts_;  ///< other ones
  boost::asio::io_context context_;
  RankConnections connections_;
  RankOutput output_;
  std::unique_ptr<Launched> launched_;
  std::optional<LaunchEnd> launch_;
  std::optional<Nanos> stop_by_;  ///< once asked to stop
  struct Asking {
    std::optional<ChildProcess> command;
    Nanos next{0};  ///< not before it is asked again
    bool answered = false;
  };
  std::set<pid_t> own_asked_;            ///< processes of this host that were asked to stop
  std::map<std::string, Asking> asked_;  ///< other hosts, once asked to stop
  bool late_ = false;                    ///< it has not ended in the time that it had
  bool killed_ = false;
  std::string word_;
};

}  // namespace

Result<Unit> run_program_attempt(Launcher& launcher, const std::string& program,
                                 const std::string& document, const RunnerOptions& options) {
  MOTLEY_TRY(ProgramAssignment assignment, read_program(document));
  return ProgramShell(launcher, std::move(assignment), options).run(program, document);
}

}  // namespace motley
