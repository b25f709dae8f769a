#include "scheduler/run/run_program.h"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "core/attempt_result.h"
#include "core/clock.h"
#include "core/file_system.h"
#include "core/spec/json.h"
#include "core/units.h"
#include "planner/plain/program_plan.h"
#include "scheduler/launch/bounded_log.h"
#include "scheduler/run/attempt_listener.h"
#include "scheduler/run/measure.h"
#include "scheduler/run/metrics_log.h"
#include "scheduler/run/program_attempt.h"
#include "scheduler/run/program_profile.h"
#include "scheduler/run/retry_policy.h"
#include "scheduler/run/run_output.h"
#include "scheduler/run/summarize.h"

namespace motley {
namespace {

/// As PyTorch on a GPU and on a CPU, its libraries, and Python say so.
constexpr const char* kNoMemory[] = {"out of memory", "can't allocate memory",
                                     "_STATUS_ALLOC_FAILED", "MemoryError"};

class ProgramRun {
 public:
  explicit ProgramRun(RunOptions options)
      : options_(std::move(options)),
        line_(steady_clock()),
        policy_(options_.job.retry, 0),
        attempts_(options_, signals_, line_),
        shown_(options_.json ? STDERR_FILENO : STDOUT_FILENO, options_.log_limit),
        out_(true) {}

  Result<int> run() {
    if (options_.plan || options_.trace)
      return fail(ErrorCode::kUsage, std::string(options_.plan ? "--plan" : "--trace") +
                                         " is for a model, not for a program");
    MOTLEY_TRY_VOID(choose_devices());
    MOTLEY_TRY_VOID(open());
    if (run_->read("done").has_value()) return finished_before();
    line_.note("run " + run_->title() + " in " + run_->path());
    if (!deal()) {
      say_json("stopped");
      return 128 + signals_.last();
    }
    while (true) {
      const int64_t before = saved_step(*run_, options_.job);
      MOTLEY_TRY(const Followed followed, attempt());
      if (followed.end.outcome == Outcome::kFinished) return finished();
      if (followed.signal != 0 || followed.end.outcome == Outcome::kStopped)
        return stopped(followed);
      if (saved_step(*run_, options_.job) != before) ++progress_;
      if (take_less_memory(followed.end)) continue;
      const RetryDecision next = policy_.after({.error = followed.end.error,
                                                .device = blamed_device(followed.end.rank),
                                                .step_reached = progress_,
                                                .all_steps_done = false,
                                                .older_checkpoint = false});
      if (!next.again) {
        MOTLEY_TRY_VOID(report("failed"));
        return fail(followed.end.error);
      }
      line_.note("attempt failed: " + followed.end.error.to_string());
      bool goes_on = true;
      if (!next.exclude.empty()) {
        MOTLEY_TRY(goes_on, leave_out(next.exclude, followed.end.error));
      }
      if (goes_on && next.wait > Nanos(0))
        line_.note("trying again in " + format_seconds(seconds_of(next.wait)));
      if (goes_on && wait(next.wait)) continue;
      MOTLEY_TRY_VOID(report("failed"));
      say_json("stopped");
      return 128 + signals_.last();
    }
  }

 private:
  /// A rank each: as many as the job asks for at most, the first ones.
  Result<Unit> choose_devices() {
    MOTLEY_TRY(fleet_, admitted(options_.fleet, options_.job));
    MOTLEY_TRY_VOID(check_told_apart(fleet_));
    const auto& count = options_.job.devices.count;
    for (const DeviceSpec& device : fleet_.devices)
      if (device.share)
        return fail(ErrorCode::kInvalidSpec,
                    device.id + " is a part of a card (share): a program cannot be kept to that");
    if (count && fleet_.devices.size() > static_cast<size_t>(count->high))
      fleet_.devices.resize(static_cast<size_t>(count->high));
    return Unit{};
  }

  /// Half the micro-batch for a rank that had no memory for it; false: that was not what failed, or
  /// there is no half of it.
  bool take_less_memory(const AttemptEnd& end) {
    const bool no_memory = std::any_of(
        std::begin(kNoMemory), std::end(kNoMemory),
        [&](const char* words) { return end.error.message.find(words) != std::string::npos; });
    const auto rank = static_cast<size_t>(end.rank);
    if (!no_memory || rank >= shares_.size() || shares_[rank].micro_batch < 2) return false;
    int& size = shares_[rank].micro_batch;
    line_.note(device_of(end.rank) + " has no memory for micro-batches of " + std::to_string(size) +
               " samples: going on with " + std::to_string(size / 2));
    size /= 2;
    for (ReplicaPlan& replica : plan_.replicas)
      if (replica.stages.front().ranks.front() == Rank(end.rank)) replica.micro_batch = size;
    plan_.id = plan_id(plan_);
    return true;
  }

  /// Where there are others.
  std::string blamed_device(int rank) const {
    return options_.fleet.devices.size() > 1 ? device_of(rank) : "";
  }

  std::string device_of(int rank) const {
    return rank < 0 ? "" : fleet_.devices[static_cast<size_t>(rank)].id;
  }

  /// False: a signal came while what is left was measured.
  Result<bool> leave_out(const std::string& device, Error error) {
    std::erase_if(options_.fleet.devices,
                  [&](const DeviceSpec& other) { return other.id == device; });
    const auto left = choose_devices();
    if (!left) {
      MOTLEY_TRY_VOID(report("failed"));
      error.message += "; without " + device + ", " + left.error().message;
      return fail(std::move(error));
    }
    line_.note("device " + device + " failed twice running and is left out");
    return deal();
  }

  Result<Unit> open() {
    run_ = std::move(options_.run);
    if (!run_ && !options_.fresh) {
      auto newest = RunDirectory::newest(options_.job);
      const bool changed = !newest && newest.error().code == ErrorCode::kInvalidSpec;
      if (!newest && !(changed && options_.fresh_if_changed)) return fail(newest.error());
      if (newest) run_ = std::move(*newest);
    }
    if (!run_) {
      MOTLEY_TRY(RunDirectory created, RunDirectory::create(options_.job));
      run_ = std::move(created);
    }
    MOTLEY_TRY_VOID(run_->lock());
    MOTLEY_TRY_VOID(run_->write("job.json", to_json(options_.job).dump(1) + "\n"));
    return run_->write("fleet.json", to_json(options_.fleet).dump(1) + "\n");
  }

  /// Who gets how much of a step; devices that would slow it down are left out. False: a signal
  /// came while they were measured.
  bool deal() {
    const size_t ranks = fleet_.devices.size();
    const TrainSpec& train = options_.job.train;
    if (train.global_batch > 0) shares_ = equal_shares(train, static_cast<int>(ranks));
    plan_ = program_plan(options_.job, fleet_, shares_, {});
    if (train.global_batch == 0) plan_.id.clear();  // it is written nowhere
    const std::string equal =
        std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks with equal shares") + ": ";
    if (const auto can = can_be_measured(options_.job); !can) {
      line_.note(equal + can.error().message);
      return true;
    }
    const auto profiles = measured();
    if (signals_.last() != 0) return false;
    const auto& count = options_.job.devices.count;
    const auto dealt =
        profiles ? deal_program(train, *profiles, count ? count->low : 1) : fail(profiles.error());
    if (!dealt) {
      drop_idle();
      line_.note(equal + dealt.error().message);
      return true;
    }
    use(*dealt, *profiles);
    return true;
  }

  /// Of more devices than grains some have none; motley_torch wants one for each rank.
  void drop_idle() {
    while (!shares_.empty() && shares_.back().samples == 0) {
      shares_.pop_back();
      fleet_.devices.pop_back();
    }
    plan_ = program_plan(options_.job, fleet_, shares_, {});
  }

  void use(const ProgramDeal& dealt, const std::vector<DeviceProfile>& profiles) {
    FleetSpec used = fleet_;
    used.devices.clear();
    shares_.clear();
    std::vector<DeviceProfile> of_used;
    std::vector<LeftOut> left;
    std::string text, left_out;
    for (size_t i = 0; i < dealt.shares.size(); ++i) {
      const std::string& id = fleet_.devices[i].id;
      const int samples = dealt.shares[i].samples;
      if (samples == 0) {
        left.push_back({id, profiles[i].curves.empty() ? "not measured" : "would slow it down"});
        left_out += (left_out.empty() ? "; not used: " : ", ") + id + " (" + left.back().why + ")";
        continue;
      }
      text += (text.empty() ? "" : ", ") + id + " " + std::to_string(samples);
      used.devices.push_back(fleet_.devices[i]);
      shares_.push_back(dealt.shares[i]);
      of_used.push_back(profiles[i]);
    }
    fleet_ = std::move(used);
    plan_ = program_plan(options_.job, fleet_, shares_, of_used);
    plan_.left_out = std::move(left);
    plan_.id = plan_id(plan_);
    line_.note("samples of a step: " + text + left_out + " (" + format_seconds(dealt.step_seconds) +
               " to compute)");
  }

  /// By device; one of each kind is measured. Without curves: the program does not run there.
  Result<std::vector<DeviceProfile>> measured() {
    const ProgramProfiles profiles(options_.job, fleet_);
    std::vector<DeviceProfile> found;
    std::set<std::string> silent, fresh;  // kinds
    for (const DeviceSpec& device : fleet_.devices) {
      const std::string kind = device.type + profiles.identity(device);
      auto profile = profiles.find(device);
      const bool again = options_.refresh && fresh.insert(kind).second;
      if ((!profile || again) && silent.count(kind) == 0) {
        line_.note("measuring the program on " + device.id + " (" + device.type + ")");
        const auto told = measure(device);
        if (!told && told.error().code != ErrorCode::kRunFailed) return fail(told.error());
        const auto kept = told ? profiles.keep(device, *told) : fail(told.error());
        if (!kept) line_.note(kept.error().message);
        profile = profiles.find(device);
      }
      if (!profile) silent.insert(kind);
      found.push_back(profile ? std::move(*profile) : DeviceProfile{});
    }
    return found;
  }

  /// What the program tells of itself, alone on one device. It may fail in the end, at a
  /// micro-batch that is too large.
  Result<std::string> measure(const DeviceSpec& device) {
    FleetSpec alone = fleet_;
    alone.devices = {device};
    MOTLEY_TRY(ProgramAssignment assignment,
               attempts_.assignment(*run_, alone, run_->file("measure")));
    assignment.measure = true;
    assignment.checkpoints = assignment.directory + "/checkpoints";
    assignment.shares = equal_shares(options_.job.train, 1);
    MOTLEY_TRY_VOID(real_file_system().remove_all(assignment.directory));
    const Plan plan = program_plan(options_.job, alone, assignment.shares, {});
    MOTLEY_TRY(const Followed followed,
               attempts_.launch(
                   *run_, assignment, plan, [] {}, [](const RunnerLine&) {}));
    if (followed.signal != 0) return fail(ErrorCode::kStopped, "stopped while measuring");
    const auto end = read_program_end(assignment.directory, 0);
    if (end && !end->measured.empty()) return end->measured;
    return fail(ErrorCode::kRunFailed, "it told nothing of its times on " + device.id +
                                           (followed.end.outcome == Outcome::kFinished
                                                ? ""
                                                : " (" + followed.end.error.message + ")"));
  }

  Result<Followed> attempt() {
    MOTLEY_TRY(const Epoch epoch, run_->next_epoch(options_.job));
    const std::string directory = run_->attempt_directory(epoch);
    MOTLEY_TRY(ProgramAssignment assignment, attempts_.assignment(*run_, fleet_, directory));
    assignment.epoch = epoch;
    assignment.checkpoints = run_->checkpoints(options_.job);
    assignment.shares = shares_;
    const std::vector<MetricsRow> told = read_metrics(run_->file("metrics.jsonl"));
    assignment.trained_steps = told.empty() ? 0 : told.back().step;
    Attempt attempt;
    attempt.epoch = epoch;
    attempt.job = options_.job;
    attempt.plan = plan_;
    AttemptOptions account;
    account.metrics_path = run_->file("metrics.jsonl");
    account.progress_path = run_->file("progress.json");
    account.shows_steps = false;  // it shows what it wants to
    AttemptListener listener(attempt, account, line_);
    listener.enter("setup");
    auto followed = attempts_.launch(
        *run_, assignment, plan_, [&] { listener.enter("running"); },
        [&](const RunnerLine& line) {
          show_output(line);
          listener.on_line(line);
        });
    shown_.end();
    const AttemptRecord record = listener.take();
    if (record.statistics.last_step() == 0) return followed;
    const auto kept = write_attempt_result(
        real_file_system(), directory,
        {record.statistics.ranks(), record.statistics.least_wait_seconds(), ""});
    if (!kept) line_.note("warning: " + kept.error().to_string());
    return followed;
  }

  /// Rank 0's.
  void show_output(const RunnerLine& line) {
    const auto data = nlohmann::json::parse(line.data, nullptr, false);
    if (line.event != "output" || !data.is_object()) return;
    shown_.write(data.value("text", ""));
  }

  Result<int> finished() {
    MOTLEY_TRY_VOID(run_->write("done", ""));
    MOTLEY_TRY_VOID(report("finished"));
    return finished_before();
  }

  Result<int> finished_before() {
    const auto plan = run_->plan();
    if (const auto summary = summary_of(*run_)) out_.report(*summary, plan ? *plan : Plan());
    if (!options_.served)
      line_.note("run " + run_->title() + " is finished; --fresh starts another one");
    say_json("finished");
    return 0;
  }

  Result<int> stopped(const Followed& followed) {
    const bool saved = followed.end.outcome == Outcome::kStopped;
    MOTLEY_TRY_VOID(report(saved ? "stopped" : "failed"));
    say_json("stopped");
    if (!saved) {
      line_.note("ended by a signal: " + followed.end.error.message);
      return 128 + followed.signal;
    }
    const std::string again = options_.again(!run_->committed(options_.job).empty());
    line_.note("stopped" + (again.empty() ? "" : "; to continue: " + again));
    return exit_code(ErrorCode::kStopped);
  }

  /// Of a program that told of its steps.
  Result<Unit> report(const std::string& state) {
    if (read_metrics(run_->file("metrics.jsonl")).empty()) return Unit{};
    const auto plan = run_->plan();
    RunSummary summary = summarize_program(*run_, options_.job, plan ? *plan : plan_);
    summary.state = state;
    summary.restarts = policy_.restarts();
    return run_->write("report.json", to_json(summary).dump(1) + "\n");
  }

  void say_json(const char* outcome) const {
    if (!options_.json) return;
    nlohmann::json end = {{"run", run_->title()},
                          {"outcome", outcome},
                          {"attempt", run_->last_epoch()},
                          {"restarts", policy_.restarts()}};
    if (const auto summary = read_summary(*run_)) end["report"] = to_json(*summary);
    std::printf("%s\n", end.dump().c_str());
  }

  /// False: a signal came first.
  bool wait(Nanos time) {
    const Nanos until = steady_clock().now() + time;
    while (steady_clock().now() < until) {
      pollfd watched{signals_.fd(), POLLIN, 0};
      ::poll(&watched, 1, poll_milliseconds(until));
      if (signals_.next()) return false;
    }
    return true;
  }

  RunOptions options_;
  SignalInbox signals_;
  ProgressLine line_;
  RetryPolicy policy_;
  ProgramAttempts attempts_;
  BoundedLog shown_;
  RunOutput out_;                  // on stderr: stdout is the program's
  FleetSpec fleet_;                ///< a rank each
  std::vector<RankShare> shares_;  ///< of them; none without a global batch
  Plan plan_;
  std::optional<RunDirectory> run_;
  int64_t progress_ = 0;
};

}  // namespace

Result<int> run_program(RunOptions options) { return ProgramRun(std::move(options)).run(); }

int64_t saved_step(const RunDirectory& run, const JobSpec& job) {
  if (!job.is_program()) {
    const auto committed = run.committed(job);
    return committed.empty() ? 0 : committed.front().step;
  }
  int64_t newest = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(run.checkpoints(job), error)) {
    if (entry.path().filename().string().starts_with(".")) continue;  // not done yet, or going
    struct stat status {};
    if (::stat(entry.path().c_str(), &status) == 0)
      newest =
          std::max<int64_t>(newest, status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec);
  }
  return newest;
}

}  // namespace motley
