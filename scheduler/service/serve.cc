#include "scheduler/service/serve.h"

#include <pwd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <functional>
#include <optional>
#include <utility>  // before Asio of Boost 1.74

#include "core/file_system.h"
#include "scheduler/launch/this_host.h"
#include "scheduler/service/api.h"
#include "scheduler/service/device_watch.h"
#include "scheduler/service/http_server.h"
#include "scheduler/service/process_launcher.h"
#include "scheduler/service/service_manager.h"

namespace motley {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

/// What comes within it is decided on together.
constexpr Nanos kGather{2'000'000};
/// Waking up later than that means that this process, or the machine, was stopped.
constexpr Nanos kStoodStill{2'000'000'000};
constexpr auto kPollEnd = std::chrono::milliseconds(20);
constexpr int kMostPolls = 250;
constexpr int64_t kSecond = 1'000'000'000;
constexpr auto kSweepPause = std::chrono::minutes(1);

/// The store's thread writes; what follows from it happens on the coordinator's.
class PostingWriter final : public ChangeWriter {
 public:
  PostingWriter(asio::io_context& context, Database database, std::function<void()> after_each)
      : context_(context), after_each_(std::move(after_each)), commits_(std::move(database)) {}

  void write(GroupCommit::Change change, GroupCommit::Done done) override {
    ++under_way_;
    auto shared = std::make_shared<GroupCommit::Done>(std::move(done));
    commits_.write(std::move(change), [this, shared](Result<Unit> written) {
      asio::post(context_, [this, shared, written = std::move(written)]() mutable {
        --under_way_;
        (*shared)(std::move(written));
        after_each_();
      });
    });
  }
  bool idle() const { return under_way_ == 0; }

 private:
  asio::io_context& context_;
  std::function<void()> after_each_;
  int under_way_ = 0;
  GroupCommit commits_;  ///< last: its thread ends first
};

/// On a thread of its own, which starts no processes.
class PoolRemover final : public DirectoryRemover {
 public:
  explicit PoolRemover(asio::io_context& context) : context_(context) {}
  ~PoolRemover() override {
    pool_.stop();
    pool_.join();
  }

  void remove(const std::string& path, std::function<void(Result<Unit>)> done) override {
    asio::post(pool_, [this, path, done = std::move(done)]() mutable {
      auto removed = real_file_system().remove_all(path);
      asio::post(context_, [done = std::move(done), removed = std::move(removed)]() mutable {
        done(std::move(removed));
      });
    });
  }

 private:
  asio::io_context& context_;
  asio::thread_pool pool_{1};
};

int64_t wall_time() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

std::string own_name() {
  const passwd* user = ::getpwuid(::geteuid());  // NOLINT: once, before threads
  return user != nullptr ? user->pw_name : std::to_string(::geteuid());
}

Coordinator::Rules rules_of(const ServeOptions& options) {
  Coordinator::Rules rules;
  rules.weights = options.weights;
  rules.log_limit = options.log_limit;
  return rules;
}

/// What starts with 1024 on many systems suits programs that use select(). Not all that is allowed:
/// attempts inherit it, and there are programs that close every descriptor they might have.
int more_descriptors() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = std::min(limit.rlim_max, std::max<rlim_t>(limit.rlim_cur, kEnoughDescriptors));
  ::setrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<int>(std::min<rlim_t>(limit.rlim_cur, kEnoughDescriptors));
}

class Service {
 public:
  Service(ServeOptions options, ServiceDirectory directory, std::unique_ptr<Policy> policy,
          Database writing, Database reading)
      : options_(std::move(options)),
        directory_(std::move(directory)),
        policy_(std::move(policy)),
        kept_(std::move(reading)),
        signals_(context_, SIGTERM, SIGINT),
        timer_(context_),
        sweep_timer_(context_),
        launcher_(make_process_launcher(
            context_, directory_, options_.socket,
            [this](int64_t job, const AttemptOver& over) { coordinator_.attempt_over(job, over); },
            [this](AttemptId id) { coordinator_.attempt_gone(id); })),
        writer_(context_, std::move(writing), [this] { after_write(); }),
        coordinator_(options_.fleet,
                     {steady_clock(), kept_, writer_, *launcher_, *policy_, wall_time},
                     rules_of(options_)),
        watch_(options_.fleet),
        access_({kept_, writer_, wall_time, own_name()}),
        remover_(context_),
        retention_({coordinator_, kept_, writer_, directory_, remover_, wall_time}, options_.keep),
        api_(coordinator_, retention_, kept_, directory_, access_),
        server_(make_http_server(
            context_,
            [this](HttpRequest request, const HttpReply& reply) {
              api_.handle(std::move(request), reply);
            },
            limits_within(more_descriptors()),
            [this](const HttpRequest& head) { return api_.refusal_of(head); })) {
    api_.set_policy(std::string(policy_->name()));
    api_.set_user_priority(options_.user_priority);
    api_.set_gauges([this] { return watch_.latest(); });
  }

  Result<int> run() {
    ::signal(SIGPIPE, SIG_IGN);
    ::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error like a full disk
    signals_.async_wait([this](error_code error, int) {
      if (!error) end();
    });
    MOTLEY_TRY_VOID(coordinator_.recover());
    MOTLEY_TRY_VOID(open_door());
    MOTLEY_TRY_VOID(server_->listen(options_.socket));
    std::fprintf(stderr, "serving on %s: %zu devices, policy %s, %d attempts under way\n",
                 options_.socket.c_str(), coordinator_.devices().fleet().devices.size(),
                 std::string(policy_->name()).c_str(), coordinator_.running());
    tell_service_manager("READY=1");
    arm();
    sweep();
    context_.run();
    std::fprintf(stderr, "ended; %d attempts train on\n", coordinator_.running());
    return 0;
  }

 private:
  /// For others. Who starts a job may do what the service's user may, so nobody comes in without
  /// TLS and a token.
  Result<Unit> open_door() {
    if (!options_.listen) return Unit{};
    TlsDoor door;
    door.at = *options_.listen;
    const std::string host = door.at.host;
    door.certificate = [this, host] {
      return certificate_in(directory_.tls(), names_of_server(host, options_.names),
                            wall_time() / kSecond);
    };
    MOTLEY_TRY(const Certificate shown, door.certificate());
    Endpoint at = door.at;
    MOTLEY_TRY(at.port, server_->listen(std::move(door)));
    if (host == "0.0.0.0" || host == "::") at.host = own_host_name();
    api_.set_door({at.to_string(), shown.fingerprint});
    std::fprintf(stderr, "listening on %s: TLS, %s\n", at.to_string().c_str(),
                 shown.fingerprint.c_str());
    return Unit{};
  }

  void after_write() {
    if (coordinator_.broken().has_value() != said_broken_) say_whether_broken();
    server_->wake_followers();
    arm();
  }

  void say_whether_broken() {
    said_broken_ = !said_broken_;
    const std::string text =
        said_broken_ ? coordinator_.broken()->message : std::string("changes are kept again");
    std::fprintf(stderr, "%s\n", text.c_str());
  }

  void arm() {
    const auto next = coordinator_.next_wake();
    if (!next || ending_) return;
    const Nanos when = std::max(*next, steady_clock().now() + kGather);
    if (armed_ && *armed_ <= when) return;
    armed_ = when;
    timer_.expires_at(std::chrono::steady_clock::time_point(
        std::chrono::duration_cast<std::chrono::steady_clock::duration>(
            std::chrono::nanoseconds(when.value()))));
    timer_.async_wait([this](error_code error) {
      if (error) return;
      if (steady_clock().now() - *armed_ > kStoodStill) coordinator_.was_away();
      armed_.reset();
      coordinator_.on_time();
      arm();
    });
  }

  void sweep() {
    retention_.sweep();
    sweep_timer_.expires_after(kSweepPause);
    sweep_timer_.async_wait([this](error_code error) {
      if (!error && !ending_) sweep();
    });
  }

  /// What has been asked is answered first.
  void end() {
    if (std::exchange(ending_, true)) return;
    tell_service_manager("STOPPING=1");
    server_->stop();
    error_code ignored;
    signals_.cancel(ignored);
    wait_until_idle(0);
  }

  void wait_until_idle(int polls) {
    const bool idle = polls > 1 && writer_.idle();
    if (idle || polls > kMostPolls) return context_.stop();
    timer_.expires_after(kPollEnd);
    timer_.async_wait([this, polls](error_code) { wait_until_idle(polls + 1); });
  }

  const ServeOptions options_;
  const ServiceDirectory directory_;
  const std::unique_ptr<Policy> policy_;
  const Database kept_;
  asio::io_context context_{1};
  asio::signal_set signals_;
  asio::steady_timer timer_, sweep_timer_;
  std::unique_ptr<AttemptLauncher> launcher_;
  PostingWriter writer_;
  Coordinator coordinator_;
  DeviceWatch watch_;
  Access access_;
  PoolRemover remover_;
  Retention retention_;
  Api api_;
  std::unique_ptr<HttpServer> server_;
  std::optional<Nanos> armed_;
  bool ending_ = false;
  bool said_broken_ = false;
};

}  // namespace

Result<int> serve(ServeOptions options) {
  MOTLEY_TRY(auto policy, make_policy(options.policy));
  MOTLEY_TRY(ServiceDirectory directory, ServiceDirectory::open(options.state));
  MOTLEY_TRY(Database writing, Database::open(directory.database(), Database::Mode::kWrite));
  MOTLEY_TRY_VOID(migrate(writing));
  // Of one that was put back from a backup: what later jobs have left is not for others.
  MOTLEY_TRY_VOID(number_jobs_above(writing, directory.greatest_job()));
  MOTLEY_TRY(Database reading, Database::open(directory.database(), Database::Mode::kRead));
  return Service(std::move(options), std::move(directory), std::move(policy), std::move(writing),
                 std::move(reading))
      .run();
}

}  // namespace motley
