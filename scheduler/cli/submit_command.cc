#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/file_system.h"
#include "scheduler/cli/service_command.h"
#include "scheduler/service/http_message.h"

namespace motley {
namespace {

constexpr Bytes kLargestJob{256 << 10};

class SubmitCommand final : public Command {
 public:
  void declare(CommandLine& line) override {
    line.positional("JOB", "job file (YAML)", &job_)
        .flag("--follow", "print its log as it comes, until it ends", &follow_)
        .option("--priority", "N", "0 to 100, instead of the job's own", &priority_)
        .flag("--hold", "it waits until `motley release`", &hold_)
        .option("--key", "KEY", "a second submission with the same key is the same job", &key_)
        .flag("--json", "one JSON object on stdout", &json_);
    declare_service(line, &service_);
  }

  Result<int> run() override {
    if (follow_ && json_) return fail(ErrorCode::kUsage, "--follow and --json exclude each other");
    MOTLEY_TRY(const std::string text, read_text(real_file_system(), job_, kLargestJob));
    MOTLEY_TRY(const ServiceClient client, client_of(service_));
    MOTLEY_TRY(const nlohmann::json job, submit(client, text));
    warn_of_fleet(job);
    const int64_t first = job.value("id", int64_t{0});
    const int64_t last = first + (job["array"].is_object() ? job["array"].value("size", 1) : 1) - 1;
    if (json_) {
      std::printf("%s\n", job.dump().c_str());
      return 0;
    }
    if (!follow_) {
      say_submitted(first, last);
      return 0;
    }
    int status = 0;
    for (int64_t number = first; number <= last; ++number) {
      std::fprintf(stderr, "job %s\n", std::to_string(number).c_str());
      MOTLEY_TRY(const int ended, follow_job(client, std::to_string(number), ""));
      if (status == 0) status = ended;
    }
    return status;
  }

 private:
  /// On stdout what other commands take.
  static void say_submitted(int64_t first, int64_t last) {
    const std::string from = std::to_string(first), to = std::to_string(last);
    if (first == last) {
      std::printf("%s\n", from.c_str());
      std::fprintf(stderr, "submitted; motley logs -f %s follows it\n", from.c_str());
      return;
    }
    std::printf("%s..%s\n", from.c_str(), to.c_str());
    std::fprintf(stderr, "submitted as jobs %s to %s; motley ls --array %s lists them\n",
                 from.c_str(), to.c_str(), from.c_str());
  }

  Result<nlohmann::json> submit(const ServiceClient& client, const std::string& text) const {
    const std::string key = key_.empty() ? new_submission_key() : key_;
    auto job = client.post("/v1/jobs?" + query(), text, key);
    if (!job && job.error().code == ErrorCode::kPeerLost)
      return fail(ErrorCode::kPeerLost,
                  job.error().message +
                      "; whether the job is kept is not known: the same command "
                      "with --key " +
                      key + " submits it once");
    return job;
  }

  static void warn_of_fleet(const nlohmann::json& job) {
    const std::string fleet = job["job"].value("fleet", "");
    if (!fleet.empty())
      std::fprintf(stderr, "fleet: %s is not used, the service gives its own devices\n",
                   fleet.c_str());
  }

  std::string query() const {
    std::error_code error;
    const std::string path = std::filesystem::absolute(job_, error).lexically_normal().string();
    std::string query = "source=" + percent_encoded(path);
    if (priority_) query += "&priority=" + std::to_string(*priority_);
    if (hold_) query += "&hold=true";
    return query;
  }

  std::string job_, key_;
  ServiceChoice service_;
  std::optional<int64_t> priority_;
  bool follow_ = false, hold_ = false, json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_submit_command() { return std::make_unique<SubmitCommand>(); }

}  // namespace motley
