#include "scheduler/run/run_job.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/clock.h"
#include "core/spec/json.h"
#include "core/units.h"
#include "scheduler/launch/command.h"
#include "scheduler/launch/remote_hosts.h"
#include "scheduler/run/data_record.h"
#include "scheduler/run/equal_split.h"
#include "scheduler/run/find_plan.h"
#include "scheduler/run/measure.h"
#include "scheduler/run/run_output.h"
#include "scheduler/run/run_program.h"
#include "scheduler/run/sample.h"
#include "scheduler/run/summarize.h"
#include "scheduler/run/training.h"

namespace motley {
namespace {

class RunSession {
 public:
  explicit RunSession(RunOptions options)
      : options_(std::move(options)), line_(steady_clock()), out_(options_.json) {}

  Result<int> run() {
    MOTLEY_TRY(admitted_, admitted(options_.fleet, options_.job));
    MOTLEY_TRY_VOID(check_told_apart(admitted_));
    MOTLEY_TRY_VOID(open_existing());
    if (const auto summary = run_ ? summary_if_over(*run_, options_.job) : std::nullopt) {
      out_.note("run " + run_->title() + " is finished");
      if (const auto changed = what_changed(*run_); !changed.empty()) out_.note(changed);
      return show(*summary);
    }
    auto status = work();
    // Interrupted before there was anything to save.
    if (!status && status.error().code == ErrorCode::kStopped) {
      line_.note(status.error().message);
      return 128 + signals_.last();
    }
    return status;
  }

 private:
  /// The run to be continued, if there is one: locked before anything of it is looked at.
  Result<Unit> open_existing() {
    if (options_.run) {
      run_ = std::move(options_.run);
    } else if (!options_.fresh) {
      MOTLEY_TRY_VOID(open_newest());
    }
    if (!run_) return Unit{};
    MOTLEY_TRY_VOID(run_->lock());
    MOTLEY_TRY_VOID(run_->check_continues(options_.job));
    MOTLEY_TRY_VOID(run_->begin_again_with(options_.job));
    before_ = run_->fleet();
    return Unit{};
  }

  Result<Unit> open_newest() {
    auto newest = RunDirectory::newest(options_.job);
    const bool other_job = !newest && newest.error().code == ErrorCode::kInvalidSpec;
    if (!newest && !(other_job && options_.fresh_if_changed)) return fail(newest.error());
    if (newest) run_ = std::move(*newest);
    if (!options_.fresh_if_changed) return Unit{};
    if (!other_job && (!run_ || what_changed(*run_).empty())) return Unit{};
    out_.note("the job or its data have changed since the newest run: starting another");
    run_.reset();
    return Unit{};
  }

  /// A line about the data of a run that are no longer what it was trained on; empty when they are,
  /// or nobody can tell.
  std::string what_changed(const RunDirectory& run) const {
    const auto now = record_of_data(options_.job.data);
    if (!now) return "the data have changed since: " + now.error().to_string();
    const auto same = check_data(run, options_.job, *now);
    return same ? "" : "the data have changed since: " + same.error().to_string();
  }

  /// A new run appears only once it is known to have a plan.
  Result<Unit> begin() {
    if (!run_) {
      MOTLEY_TRY(RunDirectory created, RunDirectory::create(options_.job));
      run_ = std::move(created);
      MOTLEY_TRY_VOID(run_->lock());
    }
    MOTLEY_TRY_VOID(run_->write("job.json", to_json(options_.job).dump(1) + "\n"));
    MOTLEY_TRY_VOID(run_->write("data.json", to_json(data_).dump(1) + "\n"));
    MOTLEY_TRY_VOID(run_->write("profile.json", to_json(profile_).dump(1) + "\n"));
    return run_->write("fleet.json", to_json(options_.fleet).dump(1) + "\n");
  }

  Result<int> work() {
    MOTLEY_TRY(data_, record_of_data(options_.job.data));
    if (run_) MOTLEY_TRY_VOID(check_data(*run_, options_.job, data_));
    MOTLEY_TRY_VOID(obtain_plan());
    MOTLEY_TRY_VOID(begin());
    out_.note("run " + run_->title() + " in " + run_->path());
    out_.solo_speeds(profile_, plan_, options_.job.model);
    out_.plan(profile_, plan_);
    MOTLEY_TRY(const auto equal_split, compare());
    MOTLEY_TRY(const TrainingResult training,
               train({*run_, options_.job, admitted_, profile_, options_.rsh_agent, options_.trace},
                     plan_, signals_, line_));
    if (options_.trace) line_.note("time lines: motley export trace " + run_->title());
    return conclude(training, equal_split);
  }

  /// The plan this run had, while nothing it was made from has changed: then a resumed run has the
  /// losses of one never stopped, bit for bit. Else a new one.
  Result<Unit> obtain_plan() {
    if (!options_.plan && reuse_plan()) return Unit{};
    if (!options_.plan) MOTLEY_TRY_VOID(check_parallel(admitted_, options_.job));
    MOTLEY_TRY(profile_, obtain_profile(options_.job, admitted_,
                                        {options_.rsh_agent, options_.refresh}, signals_, line_));
    if (options_.plan) {
      MOTLEY_TRY(plan_, price(*options_.plan, options_.job, admitted_, profile_));
    } else {
      MOTLEY_TRY(plan_, find_plan({options_.job, admitted_, profile_}));
    }
    return Unit{};
  }

  bool reuse_plan() {
    if (!run_ || !before_ || to_json(*before_) != to_json(options_.fleet)) return false;
    auto plan = run_->plan();
    auto profile = run_->profile();
    if (!plan || !profile || !fits(*plan)) return false;
    plan_ = std::move(*plan);
    profile_ = std::move(*profile);
    return true;
  }

  bool fits(const Plan& plan) const {
    return validate_for(plan, options_.job).has_value() &&
           std::all_of(plan.ranks.begin(), plan.ranks.end(), [&](const RankPlacement& rank) {
             return admitted_.find(rank.device) != nullptr;
           });
  }

  /// Only before the first step of a run: what it is compared with stays the same afterwards.
  Result<std::optional<EqualSplit>> compare() {
    const bool begun = !read_metrics(run_->file("metrics.jsonl")).empty();
    if (const auto known = remembered_equal_split(*run_); known || begun || !options_.compare)
      return known;
    MOTLEY_TRY(EqualSplit found,
               try_equal_split({*run_, options_.job, admitted_, profile_, options_.rsh_agent},
                               signals_, line_));
    return found;
  }

  Result<int> conclude(const TrainingResult& training,
                       const std::optional<EqualSplit>& equal_split) {
    const RunSummary summary = summarize(*run_, options_.job, training, equal_split);
    MOTLEY_TRY_VOID(run_->write("report.json", to_json(summary).dump(1) + "\n"));
    const Followed& end = training.last->followed;
    if (training.failure) {
      out_.json(summary);
      return fail(*training.failure);
    }
    if (training.last->finished()) return show(summary);
    out_.json(summary);
    if (training.last->stopped()) {
      line_.note("stopped after step " + std::to_string(summary.steps) +
                 " with a checkpoint saved" + hint("; to continue: ", true));
      return exit_code(ErrorCode::kStopped);
    }
    line_.note(run_->committed(options_.job).empty()
                   ? "ended by a signal, nothing saved yet" + hint("; to begin anew: ", false)
                   : "ended by a signal" +
                         hint("; to continue from the newest checkpoint: ", true));
    return 128 + end.signal;
  }

  /// What the user typed continues the newest run of the name, which may no longer be this one.
  std::string hint(const char* to, bool saved) const {
    const auto newest = RunDirectory::find(options_.job.name);
    if (newest && newest->title() != run_->title())
      return to + ("motley resume " + shell_command({run_->title()}));
    const std::string again = options_.again(saved);
    return again.empty() ? "" : to + again;
  }

  /// Of a run that is over: what it came to, unless that cannot be known.
  Result<int> show(const RunSummary& summary) {
    const auto plan = run_->plan();
    if (plan) out_.report(summary, *plan);
    const auto text = sample_text(*run_, {200, "", options_.rsh_agent});
    if (text)
      out_.sample(*text);
    else
      out_.note("no sample: " + text.error().to_string());
    MOTLEY_TRY_VOID(out_.losses(*run_));
    out_.json(summary);
    if (!summary.paced.trustworthy())
      return fail(ErrorCode::kRunFailed, untrustworthy_text(summary.paced));
    return 0;
  }

  RunOptions options_;
  SignalInbox signals_;
  ProgressLine line_;
  RunOutput out_;
  FleetSpec admitted_;
  DataRecord data_;
  std::optional<RunDirectory> run_;
  Result<FleetSpec> before_ = fail(ErrorCode::kNotFound, "");  ///< the fleet it last ran on
  Profile profile_;
  Plan plan_;
};

}  // namespace

Result<int> run_job(RunOptions options) {
  if (options.job.is_program()) return run_program(std::move(options));
  return RunSession(std::move(options)).run();
}

}  // namespace motley
