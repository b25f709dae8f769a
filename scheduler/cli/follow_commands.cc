// logs, events: what is read in pieces, and followed with -f.

#include <cstdio>
#include <nlohmann/json.hpp>

#include "scheduler/cli/service_command.h"
#include "scheduler/run/terminal.h"

namespace motley {
namespace {

using nlohmann::json;

class LogsCommand final : public Command {
 public:
  void declare(CommandLine& line) override {
    line.positional("JOB", "its number", &job_)
        .flag("-f,--follow", "go on until the job ends", &follow_)
        .option("--attempt", "N", "of this attempt only", &attempt_)
        .option("--rank", "R",
                "what this rank has printed, as far as the coordinator's machine has it", &rank_)
        .flag("--json", "one JSON object a piece", &json_);
    declare_service(line, &service_);
  }

  Result<int> run() override {
    MOTLEY_TRY(const std::string number, job_number(job_));
    std::string query = attempt_ ? "?attempt=" + std::to_string(*attempt_) : "";
    if (rank_) query += (attempt_ ? "&rank=" : "?rank=") + std::to_string(*rank_);
    MOTLEY_TRY(const ServiceClient client, client_of(service_));
    const std::string target = "/v1/jobs/" + number + "/logs" + query;
    if (!follow_) return print_pieces(client, target, query.empty() ? "?" : "&");
    MOTLEY_TRY(const json first, client.get(target));
    if (first.value("text", "").empty()) MOTLEY_TRY_VOID(say_nothing_yet(client));
    if (!json_) return follow_job(client, number, query);
    MOTLEY_TRY_VOID(client.follow(target, [](const json& piece) {
      std::printf("%s\n", piece.dump().c_str());
      return std::fflush(stdout) == 0;
    }));
    return 0;
  }

 private:
  Result<int> print_pieces(const ServiceClient& client, const std::string& target,
                           const std::string& separator) const {
    std::string after;
    while (true) {
      MOTLEY_TRY(const json piece,
                 client.get(target + (after.empty() ? "" : separator + "after=" + after)));
      const std::string text = piece.value("text", "");
      if (json_)
        std::printf("%s\n", piece.dump().c_str());
      else
        std::fputs(shown_on(stdout, text).c_str(), stdout);
      if (text.empty() && after.empty()) MOTLEY_TRY_VOID(say_nothing_yet(client));
      if (text.empty()) return 0;
      after = piece.value("next", "");
    }
  }

  /// "rank 1 of job 2 has printed nothing yet: it is held"
  Result<Unit> say_nothing_yet(const ServiceClient& client) const {
    MOTLEY_TRY(const json job, client.get("/v1/jobs/" + job_));
    const std::string state = job.value("state", "");
    const bool held = state == "waiting" && job.value("held", false);
    std::fprintf(stderr, "%s%sjob %s has printed nothing%s: it is %s\n",
                 rank_ ? ("rank " + std::to_string(*rank_) + " of ").c_str() : "",
                 attempt_ ? ("attempt " + std::to_string(*attempt_) + " of ").c_str() : "",
                 job_.c_str(), job["finished"].is_null() ? " yet" : "",
                 held ? "held" : state.c_str());
    return Unit{};
  }

  std::string job_;
  ServiceChoice service_;
  std::optional<int64_t> attempt_, rank_;
  bool follow_ = false, json_ = false;
};

/// "job 7", "node a1", "service"
std::string subject_of(const json& event) {
  if (event["job"].is_number()) return "job " + event["job"].dump();
  return event["node"].is_string() ? "node " + event["node"].get<std::string>() : "service";
}

class EventsCommand final : public Command {
 public:
  void declare(CommandLine& line) override {
    line.flag("-f,--follow", "go on as they come", &follow_)
        .option("-n,--last", "N", "begin with the newest so many (default: 50)", &last_)
        .flag("--all", "begin with the first there is", &all_)
        .option("--after", "N", "those with higher numbers", &after_)
        .option("--job", "N", "of this job only", &job_)
        .flag("--json", "one JSON object an event", &json_);
    declare_service(line, &service_);
  }

  Result<int> run() override {
    if (int{last_.has_value()} + int{after_.has_value()} + int{all_} > 1)
      return fail(ErrorCode::kUsage, "one of --last, --all and --after");
    MOTLEY_TRY(const ServiceClient client, client_of(service_));
    const std::string target =
        "/v1/events?limit=200" + (job_ ? "&job=" + std::to_string(*job_) : std::string());
    if (follow_) {
      MOTLEY_TRY_VOID(client.follow(target + begin(), [this](const json& event) {
        print(event);
        return std::fflush(stdout) == 0;
      }));
      return 0;
    }
    MOTLEY_TRY(json page, client.get(target + begin()));
    while (!page["events"].empty()) {
      for (const json& event : page["events"]) print(event);
      MOTLEY_TRY(page, client.get(target + "&after=" + page["next"].dump()));
    }
    return 0;
  }

 private:
  std::string begin() const {
    if (all_ || after_) return "&after=" + std::to_string(after_.value_or(0));
    return "&last=" + std::to_string(last_.value_or(50));
  }

  void print(const json& event) const {
    if (json_)
      std::printf("%s\n", event.dump().c_str());
    else
      std::printf("%s  %s  %s  %s\n", time_text(event["time"]).c_str(), event["id"].dump().c_str(),
                  subject_of(event).c_str(), shown_on(stdout, event.value("text", "")).c_str());
  }

  ServiceChoice service_;
  std::optional<int64_t> job_, last_, after_;
  bool follow_ = false, all_ = false, json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_logs_command() { return std::make_unique<LogsCommand>(); }
std::unique_ptr<Command> make_events_command() { return std::make_unique<EventsCommand>(); }

}  // namespace motley
