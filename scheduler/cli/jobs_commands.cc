// ls, show, why, cancel, hold, release, requeue, update, rm: what is asked of a coordinator and
// answered once.

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "scheduler/cli/job_options.h"
#include "scheduler/cli/service_command.h"
#include "scheduler/report/run_progress.h"
#include "scheduler/report/table.h"
#include "scheduler/run/terminal.h"
#include "scheduler/service/http_message.h"

namespace motley {
namespace {

using nlohmann::json;

/// "812/2000"; "-" where nothing is known of it.
std::string steps_text(const json& progress) {
  if (!progress.is_object() || !progress["step"].is_number()) return "-";
  return progress["step"].dump() + "/" + progress["steps"].dump();
}

std::string left_text(const json& progress) {
  if (!progress.is_object() || !progress["eta_seconds"].is_number()) return "-";
  return format_duration(progress["eta_seconds"].get<double>());
}

template <class T>
std::optional<T> known(const json& value) {
  return value.is_number() ? std::optional(value.get<T>()) : std::nullopt;
}

/// How far it is, and who holds it up.
void print_progress(const json& told) {
  if (!told.is_object()) return;
  RunProgress progress;
  progress.phase = told.value("phase", "");
  progress.step = known<int64_t>(told["step"]);
  progress.steps = known<int64_t>(told["steps"]);
  progress.loss = known<double>(told["loss"]);
  progress.samples_per_second = known<double>(told["samples_per_second"]);
  progress.eta_seconds = known<double>(told["eta_seconds"]);
  std::printf("now: %s\n", progress_text(progress).c_str());
  if (told["straggler"].is_object())
    std::printf("%s\n", told["straggler"].value("text", "").c_str());
}

class LsCommand final : public Command {
 public:
  void declare(CommandLine& line) override {
    line.option("--state", "STATE",
                "unfinished, finished, or one such as queued; else the newest of all", &state_)
        .completes({"unfinished", "finished", "waiting", "queued", "profiling", "planning",
                    "launching", "running", "stopping", "succeeded", "failed", "cancelled"})
        .option("--queue", "NAME", "of this queue", &queue_)
        .option("--name", "NAME", "of this name", &name_)
        .option("--user", "NAME", "of this user", &user_)
        .flag("--mine", "of the user that one asks as", &mine_)
        .option("--label", "NAME[=VALUE]", "with this label", &label_)
        .option("--array", "FIRST", "of the array with this first job", &array_)
        .option("--before", "N", "older than this job: the next page", &before_)
        .option("--limit", "N", "jobs at most, up to 200 (default: 50)", &limit_)
        .flag("--json", "one JSON object", &json_);
    declare_service(line, &service_);
  }

  Result<int> run() override {
    if (mine_ && !user_.empty()) return fail(ErrorCode::kUsage, "one of --user and --mine");
    MOTLEY_TRY(const json page, whole_page());
    if (json_) {
      std::printf("%s\n", page.dump().c_str());
      return 0;
    }
    TextTable table({{"job", Align::kRight},
                     {"name", Align::kLeft},
                     {"owner", Align::kLeft},
                     {"queue", Align::kLeft},
                     {"priority", Align::kRight},
                     {"state", Align::kLeft},
                     {"step", Align::kRight},
                     {"left", Align::kRight},
                     {"attempt", Align::kRight},
                     {"submitted", Align::kLeft}});
    for (const json& job : page["jobs"])
      table.add_row(
          {std::to_string(job.value("id", 0)), job.value("name", ""), job.value("owner", ""),
           job.value("queue", ""), std::to_string(job.value("priority", 0)), job.value("state", ""),
           steps_text(job.value("progress", json())), left_text(job.value("progress", json())),
           std::to_string(job.value("attempt", 0)), time_text(job["submitted"])});
    std::printf("%s", table.to_string().c_str());
    if (page["next"].is_number())
      std::fprintf(stderr, "more: --before %s\n", page["next"].dump().c_str());
    return 0;
  }

 private:
  /// The service looks at so many jobs at once: what it has found may be less than was asked for.
  Result<json> whole_page() {
    MOTLEY_TRY(const ServiceClient client, client_of(service_));
    if (mine_) {
      MOTLEY_TRY(const json who, client.get("/v1/whoami"));
      user_ = who.value("user", "");
    }
    const int64_t wanted = limit_.value_or(50);
    json jobs = json::array(), next;
    int64_t before = before_.value_or(0);
    do {
      const int64_t missing = wanted - static_cast<int64_t>(jobs.size());
      MOTLEY_TRY(const json page, client.get("/v1/jobs" + query(before, missing)));
      for (const json& job : page["jobs"]) jobs.push_back(job);
      next = page["next"];
      before = next.is_number() ? next.get<int64_t>() : 0;
    } while (before > 0 && static_cast<int64_t>(jobs.size()) < wanted);
    return json{{"jobs", jobs}, {"next", next}};
  }

  std::string query(int64_t before, int64_t limit) const {
    std::string query;
    const auto add = [&](const char* name, const std::string& value) {
      if (!value.empty())
        query += (query.empty() ? "?" : "&") + std::string(name) + "=" + percent_encoded(value);
    };
    add("state", state_);
    add("queue", queue_);
    add("name", name_);
    add("owner", user_);
    add("label", label_);
    if (array_) add("array", std::to_string(*array_));
    if (before > 0) add("before", std::to_string(before));
    add("limit", std::to_string(limit));
    return query;
  }

  std::string state_, queue_, name_, user_, label_;
  ServiceChoice service_;
  std::optional<int64_t> array_, before_, limit_;
  bool mine_ = false, json_ = false;
};

/// A question about one job.
class JobCommand : public Command {
 public:
  void declare(CommandLine& line) override {
    line.positional("JOB", "its number", &job_).flag("--json", "one JSON object", &json_);
    declare_service(line, &service_);
  }

  Result<int> run() override {
    MOTLEY_TRY(const std::string number, job_number(job_));
    MOTLEY_TRY(const ServiceClient client, client_of(service_));
    MOTLEY_TRY(const json answer, ask(client, "/v1/jobs/" + number));
    if (json_)
      std::printf("%s\n", answer.dump().c_str());
    else
      print(answer);
    return 0;
  }

 private:
  virtual Result<json> ask(const ServiceClient& client, const std::string& job) const = 0;
  virtual void print(const json& answer) const = 0;

  std::string job_;
  ServiceChoice service_;
  bool json_ = false;
};

/// From which it goes on; 0: none.
int64_t resumed_job(const json& spec) {
  const json resumes = spec.value("service", json::object()).value("resumes", json::object());
  return resumes.value("job", int64_t{0});
}

class ShowCommand final : public JobCommand {
  Result<json> ask(const ServiceClient& client, const std::string& job) const override {
    return client.get(job);
  }
  void print(const json& job) const override {
    std::printf("%s\n", shown_on(stdout, job_line(job)).c_str());
    print_progress(job.value("progress", json()));
    std::printf("submitted %s by %s, queue %s, priority %d\n", time_text(job["submitted"]).c_str(),
                job.value("owner", "").c_str(), job.value("queue", "").c_str(),
                job.value("priority", 0));
    if (const json& array = job["array"]; array.is_object())
      std::printf("index %d of array %d, of %d jobs\n", array.value("index", 0),
                  array.value("first", 0), array.value("size", 0));
    if (job["finished"].is_number())
      std::printf("finished %s\n", time_text(job["finished"]).c_str());
    if (const int64_t before = resumed_job(job["job"]); before > 0)
      std::printf("goes on from job %s\n", std::to_string(before).c_str());
    for (const json& attempt : job["attempts"]) {
      std::string devices;
      for (const json& device : attempt["devices"])
        devices += (devices.empty() ? "" : ", ") + device.get<std::string>();
      const std::string outcome = attempt.value("outcome", "");
      std::printf(
          "attempt %d on %s: %s%s\n", attempt.value("attempt", 0), devices.c_str(),
          outcome.empty()
              ? "under way"
              : (outcome + " after " + format_duration(attempt.value("seconds", 0.0))).c_str(),
          attempt.value("cause", "").empty()
              ? ""
              : (", " + shown_on(stdout, attempt.value("cause", ""))).c_str());
    }
    std::printf("runs in %s/motley/runs\n", job.value("directory", "").c_str());
  }
};

class WhyCommand final : public JobCommand {
  Result<json> ask(const ServiceClient& client, const std::string& job) const override {
    return client.get(job + "/why");
  }
  void print(const json& why) const override {
    std::printf("job %d is %s\n", why.value("id", 0), why.value("state", "").c_str());
    for (const json& reason : why["reasons"])
      std::printf("  %s\n", shown_on(stdout, reason.get<std::string>()).c_str());
    if (why["position"].is_number())
      std::printf("position in the queue: %d\n", why["position"].get<int>());
    if (why["estimated_start_seconds"].is_number())
      std::printf("estimated start: in about %s\n",
                  format_duration(why["estimated_start_seconds"].get<double>()).c_str());
    if (why["remedy"].is_string())
      std::printf("it would start with: %s\n", why["remedy"].get<std::string>().c_str());
  }
};

/// What is asked of one job, or of several: one that refuses does not keep the others from it.
class JobsCommand : public Command {
 public:
  void declare(CommandLine& line) override {
    line.words("JOB", "its number; also several, and ranges such as 12..21", &jobs_)
        .flag("--json", "a JSON object for each", &json_);
    declare_service(line, &service_);
  }

  Result<int> run() override {
    MOTLEY_TRY(std::vector<std::string> numbers, job_numbers(jobs_));
    if (last_first()) std::reverse(numbers.begin(), numbers.end());
    MOTLEY_TRY(const ServiceClient client, client_of(service_));
    int status = 0;
    for (const std::string& number : numbers) {
      const Result<json> answer = ask(client, "/v1/jobs/" + number);
      if (answer) {
        std::printf("%s\n", json_ ? answer->dump().c_str() : line_of(*answer).c_str());
        continue;
      }
      if (numbers.size() == 1) return fail(answer.error());
      std::fprintf(stderr, "motley: %s\n", answer.error().to_string().c_str());
      if (status == 0) status = exit_code(answer.error().code);
    }
    return status;
  }

 private:
  virtual Result<json> ask(const ServiceClient& client, const std::string& job) const = 0;
  virtual std::string line_of(const json& answer) const { return job_line(answer); }
  virtual bool last_first() const { return false; }

  std::vector<std::string> jobs_;
  ServiceChoice service_;
  bool json_ = false;
};

class RequestCommand final : public JobsCommand {
 public:
  explicit RequestCommand(std::string what) : what_(std::move(what)) {}

 private:
  Result<json> ask(const ServiceClient& client, const std::string& job) const override {
    return client.post(job + "/" + what_);
  }
  /// What is stopped leaves room for the next of the queue, which is to be stopped as well: from
  /// its end none of them begins.
  bool last_first() const override { return what_ == "cancel" || what_ == "hold"; }

  std::string what_;
};

class UpdateCommand final : public JobsCommand {
 public:
  void declare(CommandLine& line) override {
    JobsCommand::declare(line);
    line.option("--set", "KEY=VALUE",
                "a new value, e.g. priority=70; also of queue, labels, max_duration, preemptible, "
                "stop_grace, after, any_of, resources.devices and retry.max_restarts",
                &set_);
  }

  Result<int> run() override {
    MOTLEY_TRY(const std::vector<Override> changes, parse_overrides(set_));
    if (changes.empty())
      return fail(ErrorCode::kUsage, "nothing to change: --set KEY=VALUE, e.g. --set priority=70");
    for (const Override& change : changes) changes_[change.path] = change.value;
    return JobsCommand::run();
  }

 private:
  Result<json> ask(const ServiceClient& client, const std::string& job) const override {
    return client.patch(job, changes_.dump());
  }

  std::vector<std::string> set_;
  json changes_;
};

class RmCommand final : public JobsCommand {
  Result<json> ask(const ServiceClient& client, const std::string& job) const override {
    return client.remove(job);
  }
  std::string line_of(const json& job) const override {
    return "job " + std::to_string(job.value("id", 0)) + " is removed";
  }
};

}  // namespace

std::unique_ptr<Command> make_rm_command() { return std::make_unique<RmCommand>(); }
std::unique_ptr<Command> make_ls_command() { return std::make_unique<LsCommand>(); }
std::unique_ptr<Command> make_show_command() { return std::make_unique<ShowCommand>(); }
std::unique_ptr<Command> make_why_command() { return std::make_unique<WhyCommand>(); }
std::unique_ptr<Command> make_cancel_command() {
  return std::make_unique<RequestCommand>("cancel");
}
std::unique_ptr<Command> make_hold_command() { return std::make_unique<RequestCommand>("hold"); }
std::unique_ptr<Command> make_release_command() {
  return std::make_unique<RequestCommand>("release");
}
std::unique_ptr<Command> make_update_command() { return std::make_unique<UpdateCommand>(); }
std::unique_ptr<Command> make_requeue_command() {
  return std::make_unique<RequestCommand>("requeue");
}

}  // namespace motley
