#include "scheduler/service/process_launcher.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <utility>  // before Asio of Boost 1.74

#include "core/file_system.h"
#include "scheduler/launch/environment.h"
#include "scheduler/launch/worker_program.h"
#include "scheduler/run/measure.h"
#include "scheduler/run/run_directory.h"
#include "scheduler/run/run_program.h"
#include "scheduler/service/attempt_files.h"
#include "scheduler/service/attempt_processes.h"

namespace motley {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

/// What an attempt that was killed leaves behind ends itself within seconds.
constexpr auto kLookAgain = std::chrono::milliseconds(100);
constexpr int kKillAtLook = 50;  // whatever was to end it does not
constexpr int kMostLooks = 150;
constexpr auto kLookForLeftovers = std::chrono::milliseconds(500);
/// With less than that nobody can write down how they ended.
constexpr Bytes kNoRoom{64 << 10};

Result<Fd> open_log(const std::string& path) {
  Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.valid()) return fail(ErrorCode::kIo, "cannot open " + path + ": " + std::strerror(errno));
  return fd;
}

bool is_readable(int fd) {
  pollfd look{fd, POLLIN, 0};
  return ::poll(&look, 1, 0) > 0;
}

AttemptOver over_of(Epoch epoch, const AttemptEnded& ended) {
  AttemptOver over;
  over.epoch = epoch;
  over.progressed = ended.progressed;
  over.cause = ended.cause;
  over.saved_step = ended.saved_step;
  over.speeds = ended.speeds;
  if (ended.status == 0)
    over.outcome = AttemptOutcome::kDone;
  else if (ended.status == exit_code(ErrorCode::kStopped) || ended.status > 128)
    over.outcome = AttemptOutcome::kStopped;
  over.hopeless = over.outcome == AttemptOutcome::kFailed && ended.hopeless;
  over.blameless = over.outcome == AttemptOutcome::kFailed && ended.blameless;
  over.elsewhere = ended.elsewhere;
  return over;
}

class ProcessLauncher final : public AttemptLauncher {
 public:
  ProcessLauncher(asio::io_context& context, const ServiceDirectory& directory, std::string socket,
                  OnOver on_over, OnGone on_gone)
      : context_(context),
        directory_(directory),
        socket_(std::move(socket)),
        on_over_(std::move(on_over)),
        on_gone_(std::move(on_gone)) {}

  Result<Nanos> begin(const AttemptOrder& order) override {
    const AttemptFiles files(directory_.attempt(order.id));
    MOTLEY_TRY(const auto begun, files.begun());
    if (watched_.count(order.id) != 0) return begun ? age_of(begun->process) : Nanos(0);
    if (!begun) {
      MOTLEY_TRY_VOID(start(order, files));
      return Nanos(0);
    }
    Fd process = watch_process(begun->process);
    if (process.valid()) {
      watch(order.id, std::move(process));
      return age_of(begun->process);
    }
    unseen_.insert(order.id);
    asio::post(context_, [this, id = order.id] { settle(id, 0); });
    return files.begun_ago();
  }

  Epoch newest(int64_t job) const override { return directory_.newest_attempt(job); }

  std::vector<Leftover> leftovers(const std::set<AttemptId>& known) override {
    std::vector<Leftover> found;
    for (const AttemptId id : running_attempts(directory_)) {
      if (known.contains(id)) continue;
      std::fprintf(stderr, "%s: it runs, and nobody knew of it; it is stopped\n",
                   directory_.attempt(id).c_str());
      Leftover& left = found.emplace_back(Leftover{id, {}, Nanos(0)});
      if (const auto order = AttemptFiles(directory_.attempt(id)).order()) {
        for (const DeviceSpec& device : order->fleet.devices) left.devices.push_back(device.id);
        left.stop_grace = order->job.service.stop_grace;
      }
      wait_until_gone(id);
    }
    return found;
  }

  void ask_to_stop(AttemptId id, StopWhy why) override {
    if (leaving_.contains(id)) return ask_leftover_to_stop(id);
    asked_to_stop_.insert(id);
    (void)AttemptFiles(directory_.attempt(id)).write_stop(why);  // else it says less at its end
    send(id, SIGTERM);
  }
  void kill(AttemptId id) override {
    if (leaving_.contains(id)) return kill_running(directory_, id);
    send(id, SIGKILL);
  }

 private:
  using Descriptor = asio::posix::stream_descriptor;

  Result<Unit> start(const AttemptOrder& order, const AttemptFiles& files) {
    AttemptOrder told = order;
    if (const int64_t before = order.job.service.resumes.job; before > 0)
      told.from = newest_run(directory_.job(before) + "/motley", order.job.name);
    MOTLEY_TRY_VOID(files.write_order(told));
    MOTLEY_TRY(const Fd log, open_log(files.log()));
    // The runs of a job are its own, whatever other runs have its name.
    Environment environment = Environment::inherited();
    environment.set("XDG_STATE_HOME", directory_.job(order.id.job));
    environment.set("MOTLEY_SOCKET", socket_);  // for commands on other nodes
    environment.set(kAttemptMark, attempt_mark(directory_, order.id));
    SpawnRequest request;
    request.command = {own_program(), "attempt", files.directory()};
    request.environment = environment.entries();
    request.stdout_fd = request.stderr_fd = log.get();
    request.new_session = true;
    MOTLEY_TRY(ChildProcess child, ChildProcess::spawn(request));
    watch(order.id, child.let_go());
    return Unit{};
  }

  void watch(AttemptId id, Fd process) {
    auto descriptor = std::make_shared<Descriptor>(context_, process.release());
    watched_[id] = descriptor;
    wait_for_end(id, std::move(descriptor));
  }

  void wait_for_end(AttemptId id, const std::shared_ptr<Descriptor>& descriptor) {
    descriptor->async_wait(Descriptor::wait_read, [this, id, descriptor](error_code error) {
      if (error) return;
      // Between its fork and its exec a new process holds connections that we have closed: what
      // epoll says of such a one may reach the descriptor that has its place by now.
      if (!is_readable(descriptor->native_handle())) return wait_for_end(id, descriptor);
      siginfo_t info{};
      // One that an earlier coordinator started is not ours to reap.
      ::waitid(P_PIDFD, static_cast<id_t>(descriptor->native_handle()), &info, WEXITED | WNOHANG);
      watched_.erase(id);
      settle(id, 0);
    });
  }

  /// No process is watched any more: what became of the attempt?
  void settle(AttemptId id, int looks) {
    const AttemptFiles files(directory_.attempt(id));
    const auto ended = files.ended();
    const auto begun = files.begun();
    if (!ended || !begun)
      return tell(id, AttemptOver{id.epoch, AttemptOutcome::kFailed, false, false,
                                  (ended ? begun.error() : ended.error()).to_string()});
    if (!*ended && !*begun)
      return tell_killed(id, {id.epoch, AttemptOutcome::kFailed, false, false,
                              "its process ended before it began: see " + files.log()});
    if (!*ended)
      if (Fd process = watch_process((*begun)->process); process.valid()) {
        unseen_.erase(id);
        return watch(id, std::move(process));  // another one was quicker than ours
      }
    // Its devices are free when the last of its ranks has gone.
    const bool runs = is_running(directory_, id);
    if ((runs || (!*ended && is_locked(id))) && looks < kMostLooks) {
      if (looks >= kKillAtLook) kill_running(directory_, id);
      return after(kLookAgain, [this, id, looks] { settle(id, looks + 1); });
    }
    AttemptOver over = *ended ? over_of(id.epoch, **ended) : killed(id, **begun);
    over.unclean = runs;
    if (runs) wait_until_gone(id);
    return *ended ? tell(id, over) : tell_killed(id, std::move(over));
  }

  void after(std::chrono::milliseconds pause, std::function<void()> what) {
    auto timer = std::make_shared<asio::steady_timer>(context_, pause);
    timer->async_wait([what = std::move(what), timer](error_code error) {
      if (!error) what();
    });
  }

  bool is_locked(AttemptId id) const {
    const auto order = AttemptFiles(directory_.attempt(id)).order();
    const auto run = run_of(id, order);
    return (run && run->in_use()) ||
           (order && being_measured(directory_.job(id.job), order->job.name));
  }

  AttemptOver killed(AttemptId id, const AttemptBegun& begun) const {
    const auto order = AttemptFiles(directory_.attempt(id)).order();
    const auto run = run_of(id, order);
    AttemptOver over{id.epoch, AttemptOutcome::kFailed, false, false,
                     "its process was killed, or crashed"};
    if (run && order) {
      over.saved_step = saved_step(*run, order->job);
      over.progressed = over.saved_step > begun.saved_step;
    }
    const auto room = real_file_system().free_space(directory_.job(id.job));
    over.blameless = room && *room < kNoRoom;
    if (over.blameless) over.cause = "its process ended without a word: the disk is full";
    return over;
  }

  void wait_until_gone(AttemptId id) {
    if (leaving_.insert(id).second) look_for_leftovers(id);
  }

  void look_for_leftovers(AttemptId id) {
    after(kLookForLeftovers, [this, id] {
      if (is_running(directory_, id)) return look_for_leftovers(id);
      leaving_.erase(id);
      on_gone_(id);
    });
  }

  /// Without the attempt's own process nobody hears it.
  void ask_leftover_to_stop(AttemptId id) {
    const auto begun = AttemptFiles(directory_.attempt(id)).begun();
    Fd process = begun && *begun ? watch_process((*begun)->process) : Fd();
    if (!process.valid()) return kill_running(directory_, id);
    ::syscall(SYS_pidfd_send_signal, process.get(), SIGTERM, nullptr, 0);
  }

  Result<RunDirectory> run_of(AttemptId id, const Result<AttemptOrder>& order) const {
    if (!order) return fail(order.error());
    const std::string path = newest_run(directory_.job(id.job) + "/motley", order->job.name);
    if (path.empty()) return fail(ErrorCode::kNotFound, "no run yet");
    return RunDirectory::find(path);
  }

  /// A process may be asked to stop before it is ready to hear it.
  void tell_killed(AttemptId id, AttemptOver over) {
    if (asked_to_stop_.count(id) != 0) {
      over.outcome = AttemptOutcome::kStopped;
      over.cause.clear();
    }
    tell(id, over);
  }

  void tell(AttemptId id, AttemptOver over) {
    asked_to_stop_.erase(id);
    if (unseen_.erase(id) > 0) over.ended_ago = last_sign_ago(id);
    on_over_(id.job, over);
  }

  /// Of an attempt that nobody saw end.
  Nanos last_sign_ago(AttemptId id) const {
    const AttemptFiles files(directory_.attempt(id));
    std::vector<std::string> places{files.directory()};
    if (const auto run = run_of(id, files.order())) {
      places.push_back(run->path());
      places.push_back(run->attempt_directory(Epoch(run->last_epoch())));
    }
    return written_ago(places);
  }

  void send(AttemptId id, int signal) {
    const auto found = watched_.find(id);
    if (found == watched_.end()) return;
    ::syscall(SYS_pidfd_send_signal, found->second->native_handle(), signal, nullptr, 0);
  }

  asio::io_context& context_;
  const ServiceDirectory& directory_;
  std::string socket_;
  OnOver on_over_;
  OnGone on_gone_;
  std::map<AttemptId, std::shared_ptr<Descriptor>> watched_;
  std::set<AttemptId> asked_to_stop_;
  std::set<AttemptId> unseen_;  ///< that ended while no coordinator was there
  std::set<AttemptId>
      leaving_;  ///< nobody waits for what they come to, only for their last process
};

}  // namespace

std::unique_ptr<AttemptLauncher> make_process_launcher(asio::io_context& context,
                                                       const ServiceDirectory& directory,
                                                       const std::string& socket,
                                                       AttemptLauncher::OnOver on_over,
                                                       AttemptLauncher::OnGone on_gone) {
  return std::make_unique<ProcessLauncher>(context, directory, socket, std::move(on_over),
                                           std::move(on_gone));
}

}  // namespace motley
