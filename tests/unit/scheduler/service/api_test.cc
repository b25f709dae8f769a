#include "scheduler/service/api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/manifest.h"
#include "scheduler/service/attempt_files.h"
#include "scheduler/service/job_log.h"
#include "tests/support/temporary_directory.h"
#include "tests/unit/scheduler/service/fake_service.h"

namespace motley {
namespace {

using nlohmann::json;
using testing::fleet_of;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kJob = R"(version: 1
name: tiny
model: {type: gpt, layers: 1, heads: 1, width: 8, context: 8}
data: {text: [text.txt]}
train: {global_batch: 4, steps: 10}
resources: {devices: {count: 1}}
)";

class ApiTest : public ::testing::Test {
 protected:
  ApiTest()
      : service_(fleet_of({"a"})),
        directory_(std::move(*ServiceDirectory::open(temporary_.path() + "/state"))),
        access_({service_.database(), service_.writer(), [] { return int64_t{1'000}; }, "ana"}),
        retention_({service_.coordinator(), service_.database(), service_.writer(), directory_,
                    service_.remover, [this] { return service_.wall_time; }},
                   nanos_of_seconds(100)),
        api_(service_.coordinator(), retention_, service_.database(), directory_, access_) {
    std::ofstream(temporary_.path() + "/text.txt") << std::string(5000, 'x');
  }

  HttpResponse ask(const std::string& method, const std::string& target,
                   const std::string& body = "", const std::string& key = "") {
    HttpRequest request;
    request.method = method;
    request.body = body;
    request.idempotency_key = key;
    request.local = true;
    EXPECT_TRUE(read_target(target, &request));
    HttpResponse answer;
    answer.status = 0;
    api_.handle(std::move(request), [&](HttpResponse response) { answer = std::move(response); });
    service_.run();
    return answer;
  }
  static HttpRequest following(const std::string& target, const std::string& last_id) {
    HttpRequest request;
    request.method = "GET";
    request.accept = "text/event-stream";
    request.last_event_id = last_id;
    request.local = true;
    EXPECT_TRUE(read_target(target, &request));
    return request;
  }
  HttpResponse submit(const std::string& job, const std::string& key = "") {
    return ask("POST", "/v1/jobs?source=" + percent_encoded(temporary_.path() + "/job.yaml"), job,
               key);
  }
  static json parsed(const HttpResponse& response) { return json::parse(response.body); }
  static std::string message_of(const HttpResponse& response) {
    return parsed(response)["error"]["message"];
  }

  /// What the attempt under way of job 1 says of itself.
  void write_progress(const std::string& text) {
    const std::string run = directory_.job(1) + "/motley/runs/tiny/1";
    std::filesystem::create_directories(run);
    std::ofstream(run + "/progress.json") << text;
  }

  /// Of job 1.
  void save_checkpoint(int step, const std::string& name = "tiny") {
    const std::string run = directory_.job(1) + "/motley/runs/" + name + "/1";
    const std::string saved = run + "/checkpoints/" + checkpoint_directory_name(step, Epoch(1));
    std::filesystem::create_directories(saved);
    std::ofstream(run + "/job.json") << "{}";
    std::ofstream(saved + "/manifest.json") << "{}";
  }

  testing::TemporaryDirectory temporary_;
  testing::FakeService service_;
  ServiceDirectory directory_;
  Access access_;
  Retention retention_;
  Api api_;
};

TEST_F(ApiTest, ASubmittedJobIsShownAndListed) {
  const HttpResponse submitted = submit(kJob, "k");
  ASSERT_EQ(submitted.status, 201) << submitted.body;
  EXPECT_EQ(parsed(submitted)["id"], 1);
  EXPECT_EQ(parsed(submit(kJob, "k"))["id"], 1);
  EXPECT_EQ(parsed(submit(kJob))["id"], 2);
  const json job = parsed(ask("GET", "/v1/jobs/1"));
  EXPECT_EQ(job["state"], "running");
  EXPECT_EQ(job["owner"], "ana");
  EXPECT_EQ(job["attempts"][0]["devices"], json({"here/0"}));
  EXPECT_EQ(job["job"]["name"], "tiny");
  const json page = parsed(ask("GET", "/v1/jobs?state=queued"));
  ASSERT_EQ(page["jobs"].size(), 1u);
  EXPECT_EQ(page["jobs"][0]["id"], 2);
  EXPECT_TRUE(page["next"].is_null());
  EXPECT_EQ(parsed(ask("GET", "/v1/jobs?limit=1"))["next"], 2);
  EXPECT_THAT(ask("GET", "/v1/jobs/2/why").body, HasSubstr("job 1 holds here/0"));
  EXPECT_THAT(ask("GET", "/metrics").body, HasSubstr("motley_jobs{state=\"running\"} 1\n"));
}

TEST_F(ApiTest, AnInvalidJobIsAnsweredWithItsPlace) {
  const HttpResponse refused = submit(std::string(kJob) + "queue: a b\n");
  EXPECT_EQ(refused.status, 422);
  EXPECT_EQ(parsed(refused)["error"]["code"], "invalid_spec");
  EXPECT_THAT(message_of(refused), HasSubstr("/job.yaml:7:8: 'queue': expected up to 64 letters"));
  EXPECT_EQ(submit("").status, 422);
  EXPECT_EQ(ask("POST", "/v1/jobs?source=job.yaml", kJob).status, 422);
  EXPECT_EQ(ask("POST", "/v1/jobs?hold=yes", kJob).status, 422);
  ASSERT_EQ(submit(kJob, "k").status, 201);
  EXPECT_EQ(submit(std::string(kJob) + "priority: 3\n", "k").status, 409);
}

TEST_F(ApiTest, LabelsAndQueuesAreAskedFor) {
  submit(std::string(kJob) + "queue: night\nlabels: {team.a: vision}\n");
  submit(kJob);
  const auto found = [&](const std::string& query) {
    return parsed(ask("GET", "/v1/jobs?" + query))["jobs"].size();
  };
  EXPECT_EQ(found("queue=night"), 1u);
  EXPECT_EQ(found("label=team.a"), 1u);
  EXPECT_EQ(found("label=team.a%3Dvision"), 1u);
  EXPECT_EQ(found("label=team.a%3Dtext"), 0u);
  EXPECT_EQ(found("name=tiny&state=unfinished"), 2u);
  EXPECT_EQ(found("label=%22"), 0u);
}

TEST_F(ApiTest, RequestsGoToTheirJob) {
  submit(kJob);
  EXPECT_EQ(parsed(ask("POST", "/v1/jobs/1/hold"))["state"], "stopping");
  service_.end(1, AttemptOutcome::kStopped);
  EXPECT_EQ(parsed(ask("POST", "/v1/jobs/1/release"))["state"], "queued");
  EXPECT_EQ(parsed(ask("POST", "/v1/jobs/1/cancel"))["state"], "stopping");
  service_.end(1, AttemptOutcome::kStopped);
  EXPECT_EQ(ask("POST", "/v1/jobs/1/requeue").status, 409);
  EXPECT_EQ(ask("POST", "/v1/jobs/9/cancel").status, 404);
}

TEST_F(ApiTest, WhatHasEndedWithACheckpointGoesOnInANewJob) {
  submit(kJob + std::string("labels: {team: vision}\n"));
  EXPECT_EQ(ask("POST", "/v1/jobs/9/resume").status, 404);
  EXPECT_THAT(message_of(ask("POST", "/v1/jobs/1/resume")), HasSubstr("job 1 has not ended"));
  ask("POST", "/v1/jobs/1/cancel");
  service_.end(1, AttemptOutcome::kStopped);
  const HttpResponse nothing = ask("POST", "/v1/jobs/1/resume");
  EXPECT_EQ(nothing.status, 409);
  EXPECT_THAT(message_of(nothing), HasSubstr("job 1 has saved no checkpoint"));
  save_checkpoint(5);
  const HttpResponse unknown = ask("POST", "/v1/jobs/1/resume?step=7");
  EXPECT_EQ(unknown.status, 404);
  EXPECT_THAT(message_of(unknown), HasSubstr("no checkpoint of step 7; it has: 5"));
  const HttpResponse resumed = ask("POST", "/v1/jobs/1/resume?step=5", "", "once");
  ASSERT_EQ(resumed.status, 201) << resumed.body;
  const json job = parsed(resumed);
  EXPECT_EQ(job["id"], 2);
  EXPECT_EQ(job["job"]["service"]["resumes"], (json{{"job", 1}, {"step", 5}}));
  EXPECT_EQ(job["job"]["service"]["labels"]["team"], "vision");
  EXPECT_EQ(service_.events(2).front(), "submitted by ana to go on from job 1, step 5");
  EXPECT_EQ(parsed(ask("POST", "/v1/jobs/1/resume?step=5", "", "once"))["id"], 2);
  const HttpResponse needed = ask("DELETE", "/v1/jobs/1");
  EXPECT_EQ(needed.status, 409);
  EXPECT_THAT(message_of(needed), HasSubstr("job 2, which has not ended"));
  ask("POST", "/v1/jobs/2/cancel");
  service_.end(2, AttemptOutcome::kStopped);
  EXPECT_EQ(ask("DELETE", "/v1/jobs/1").status, 200);
}

TEST_F(ApiTest, AJobThatHasSucceededGoesOnFromAnEarlierStepOnly) {
  submit(kJob);
  save_checkpoint(5);
  service_.end(1, AttemptOutcome::kDone);
  EXPECT_THAT(message_of(ask("POST", "/v1/jobs/1/resume")), HasSubstr("has succeeded"));
  EXPECT_EQ(ask("POST", "/v1/jobs/1/resume?step=5").status, 201);
}

TEST_F(ApiTest, WhatGoesOnFromATaskOfAnArrayIsAlone) {
  submit(kJob + std::string("array: {index: 3..4}\n"));
  ask("POST", "/v1/jobs/1/cancel");
  service_.end(1, AttemptOutcome::kStopped);
  save_checkpoint(5, "tiny-3");
  const json job = parsed(ask("POST", "/v1/jobs/1/resume"));
  EXPECT_EQ(job["id"], 3) << job;
  EXPECT_TRUE(job["array"].is_null());
  EXPECT_EQ(job["job"]["array"]["index"], 3);
}

TEST_F(ApiTest, RefusesWhatItDoesNotKnow) {
  EXPECT_EQ(ask("GET", "/").status, 404);
  EXPECT_EQ(ask("GET", "/v1/jobs/0").status, 404);
  EXPECT_EQ(ask("GET", "/v1/jobs/1x").status, 404);
  EXPECT_EQ(ask("GET", "/v1/jobs/../lock").status, 404);
  EXPECT_EQ(ask("GET", "/v1/jobs/99999999999999999999").status, 404);
  EXPECT_EQ(ask("GET", "/v1/jobs?limit=201").status, 400);
  for (const char* target : {"/v1/jobs", "/v1/jobs/1/logs", "/v1/jobs/1/why", "/v1/fleet"})
    EXPECT_EQ(ask("GET", std::string(target) + "?nothing=1").status, 400) << target;
  EXPECT_EQ(ask("POST", "/v1/jobs?nothing=1", kJob).status, 400);
  const HttpResponse other = ask("PUT", "/v1/jobs");
  EXPECT_EQ(other.status, 405);
  EXPECT_EQ(other.allow, "GET, HEAD, POST");
  EXPECT_EQ(ask("GET", "/v1/jobs/1/hold").allow, "POST");
  EXPECT_EQ(ask("HEAD", "/v1/jobs/1/hold").status, 405);
  EXPECT_EQ(ask("HEAD", "/healthz").status, 200);
  EXPECT_EQ(ask("HEAD", "/v1/jobs").status, 200);
}

TEST_F(ApiTest, APriorityBesideTheJobIsNamedAsItWasGiven) {
  const HttpResponse refused = ask("POST", "/v1/jobs?priority=101&source=%2Fjob.yaml", kJob);
  EXPECT_EQ(refused.status, 422);
  EXPECT_THAT(message_of(refused), HasSubstr("--priority: "));
  EXPECT_THAT(message_of(refused), ::testing::Not(HasSubstr("--set")));
}

TEST_F(ApiTest, WhatCannotBeKeptIsRefusedAndTheRestIsAnswered) {
  submit(kJob);
  service_.writer().fail_all(Error{ErrorCode::kIo, "disk full", {}});
  EXPECT_EQ(submit(kJob).status, 507);
  EXPECT_EQ(ask("POST", "/v1/jobs/1/cancel").status, 507);
  EXPECT_EQ(ask("GET", "/readyz").status, 503);
  EXPECT_EQ(ask("GET", "/healthz").status, 200);
  EXPECT_EQ(parsed(ask("GET", "/v1/jobs"))["jobs"].size(), 1u);
  service_.writer().fail_all(std::nullopt);
  service_.pass(1);
  EXPECT_EQ(ask("GET", "/readyz").status, 200);
  EXPECT_EQ(submit(kJob).status, 201);
}

TEST_F(ApiTest, StrangersAreNotToldWhatLiesWhere) {
  const auto ready = [&](bool local) {
    HttpRequest request;
    request.method = "GET";
    request.path = "/readyz";
    request.local = local;
    std::string told;
    api_.handle(request, [&](const HttpResponse& response) { told = message_of(response); });
    return told;
  };
  service_.writer().fail_all(
      Error{ErrorCode::kIo, "cannot write /srv/secret: No space left on device", {}});
  EXPECT_EQ(submit(kJob).status, 507);
  EXPECT_EQ(ready(false), "not ready: the disk is full");
  EXPECT_THAT(ready(true), HasSubstr("/srv/secret: No space"));
  service_.writer().fail_all(std::nullopt);
  service_.pass(1);
  service_.writer().fail_all(Error{ErrorCode::kIo, "/srv/secret: disk I/O error", {}});
  EXPECT_EQ(submit(kJob).status, 507);
  EXPECT_EQ(ready(false), "not ready: nothing can be kept");
}

TEST_F(ApiTest, OnlyWhatHasEndedIsRemoved) {
  submit(kJob, "k");
  EXPECT_EQ(ask("DELETE", "/v1/jobs/1").status, 409);
  EXPECT_EQ(ask("DELETE", "/v1/jobs/2").status, 404);
  service_.end(1, AttemptOutcome::kDone);
  EXPECT_EQ(ask("DELETE", "/v1/jobs/1").status, 200);
  EXPECT_THAT(service_.remover.asked, ::testing::ElementsAre(directory_.job(1)));
  EXPECT_EQ(ask("GET", "/v1/jobs/1").status, 404);
  EXPECT_EQ(ask("GET", "/v1/jobs/1/logs").status, 404);
  EXPECT_TRUE(parsed(ask("GET", "/v1/events"))["events"].empty());
  EXPECT_THAT(ask("GET", "/metrics").body, HasSubstr("motley_jobs{state=\"succeeded\"} 0\n"));
  EXPECT_EQ(parsed(submit(kJob, "k"))["id"], 2);  // its key and number are not used again
}

TEST_F(ApiTest, WhatIsOldGoesByItself) {
  const int64_t second = nanos_of_seconds(1).value();
  for (int i = 0; i < 40; ++i) {
    service_.wall_time = (i + 1) * second;
    submit(kJob);
    service_.end(i + 1, AttemptOutcome::kDone);
  }
  submit(kJob);
  const auto left = [&] {
    service_.run();
    return parsed(ask("GET", "/v1/jobs?limit=200"))["jobs"].size();
  };
  service_.wall_time = 100 * second;
  retention_.sweep();
  EXPECT_EQ(left(), 41u);
  service_.wall_time = 131 * second;  // 30 jobs have ended more than 100 s ago
  retention_.sweep();
  retention_.sweep();  // it is at it
  EXPECT_EQ(left(), 11u);
  service_.wall_time = 1000 * second;
  retention_.sweep();
  EXPECT_EQ(left(), 1u);  // it still runs
  EXPECT_EQ(service_.remover.asked.size(), 40u);
  EXPECT_TRUE(parsed(ask("GET", "/v1/events?job=41"))["events"].empty());
}

TEST_F(ApiTest, ALogThatIsBeingFollowedIsLookedAtOftenEventsAreNot) {
  submit(kJob);
  for (const auto& [path, often] : {std::pair("/v1/jobs/1/logs", true), {"/v1/events", false}}) {
    const HttpRequest request = following(path, "");
    std::shared_ptr<EventSource> events;
    api_.handle(request, [&](HttpResponse response) { events = response.events; });
    ASSERT_TRUE(events);
    EXPECT_EQ(events->patience() < std::chrono::seconds(1), often);
  }
}

TEST_F(ApiTest, TheLogIsReadInPiecesAcrossAttempts) {
  submit(kJob);
  const auto print = [&](int attempt, const std::string& text) {
    const std::string directory = directory_.attempt({1, Epoch(attempt)});
    std::filesystem::create_directories(directory);
    std::ofstream(directory + "/log", std::ios::app) << text;
  };
  print(1, "one\ntw");
  json piece = parsed(ask("GET", "/v1/jobs/1/logs"));
  EXPECT_EQ(piece["text"], "one\n");
  EXPECT_EQ(piece["over"], false);
  print(1, "o\nlast");
  service_.end(1, AttemptOutcome::kStopped);
  service_.pass(1);  // then it is given the device again
  print(2, "three\n");
  piece = parsed(ask("GET", "/v1/jobs/1/logs?after=" + std::string(piece["next"])));
  EXPECT_EQ(piece["text"], "two\nlast");
  piece = parsed(ask("GET", "/v1/jobs/1/logs?after=" + std::string(piece["next"])));
  EXPECT_EQ(piece["text"], "three\n");
  EXPECT_EQ(piece["attempt"], 2);
  service_.end(1, AttemptOutcome::kDone);
  piece = parsed(ask("GET", "/v1/jobs/1/logs?after=" + std::string(piece["next"])));
  EXPECT_EQ(piece["over"], true);
  EXPECT_EQ(parsed(ask("GET", "/v1/jobs/1/logs?attempt=2"))["text"], "three\n");
  EXPECT_EQ(ask("GET", "/v1/jobs/1/logs?after=1").status, 400);
  EXPECT_EQ(ask("GET", "/v1/jobs/7/logs").status, 404);
  const HttpResponse missing = ask("GET", "/v1/jobs/1/logs?attempt=3");
  EXPECT_EQ(missing.status, 404);
  EXPECT_EQ(message_of(missing), "job 1 has no attempt 3, but 2");
}

TEST_F(ApiTest, ARanksLogIsThatOfTheRunsAttempts) {
  submit(kJob);
  const AttemptFiles files(directory_.attempt({1, Epoch(1)}));
  std::filesystem::create_directories(files.directory());
  const std::string run = directory_.job(1) + "/motley/runs/tiny/1";
  for (const char* epoch : {"1", "2"}) {
    std::filesystem::create_directories(run + "/attempts/" + epoch);
    std::ofstream(run + "/attempts/" + epoch + "/rank-0000.log") << "in " << epoch << "\nand";
  }
  std::ofstream(run + "/job.json") << "{}";
  EXPECT_EQ(parsed(ask("GET", "/v1/jobs/1/logs?rank=0"))["text"], "") << "not begun";
  ASSERT_TRUE(files.claim({{}, 0, 1}));
  json piece = parsed(ask("GET", "/v1/jobs/1/logs?rank=0"));
  EXPECT_EQ(piece["text"], "in 1\nand") << "nothing comes to it any more";
  piece = parsed(ask("GET", "/v1/jobs/1/logs?rank=0&after=" + std::string(piece["next"])));
  EXPECT_EQ(piece["text"], "in 2\n");
  EXPECT_EQ(piece["over"], false);
  service_.end(1, AttemptOutcome::kDone);
  piece = parsed(ask("GET", "/v1/jobs/1/logs?rank=0&after=" + std::string(piece["next"])));
  EXPECT_EQ(piece["text"], "and");
  piece = parsed(ask("GET", "/v1/jobs/1/logs?rank=0&after=" + std::string(piece["next"])));
  EXPECT_EQ(piece["over"], true);
  const HttpResponse missing = ask("GET", "/v1/jobs/1/logs?rank=1");
  EXPECT_EQ(missing.status, 404);
  EXPECT_EQ(message_of(missing), "job 1 has no rank 1: the last one is 0");
  EXPECT_EQ(ask("GET", "/v1/jobs/1/logs?rank=0&attempt=1").status, 200);
  EXPECT_EQ(ask("GET", "/v1/jobs/1/logs?rank=x").status, 400);
}

TEST_F(ApiTest, TellsHowFarAJobIsWhileItRuns) {
  submit(kJob);
  EXPECT_TRUE(parsed(ask("GET", "/v1/jobs/1"))["progress"].is_null());
  EXPECT_TRUE(parsed(ask("GET", "/v1/jobs/1/progress"))["progress"].is_null());
  EXPECT_THAT(ask("GET", "/metrics").body, Not(HasSubstr("motley_job_step{")));
  RunProgress progress{.epoch = Epoch(1), .phase = "training", .begun = 5};
  progress.step = 4;
  progress.steps = 10;
  progress.step_seconds = 0.5;
  progress.samples_per_second = 8;
  progress.ranks = {{0, "here/0", "here", "a", 0.4, 0.1, 0.0, 0.0, Bytes(3), Bytes(7)}};
  write_progress(to_json(progress).dump());
  const json told = parsed(ask("GET", "/v1/jobs/1"))["progress"];
  EXPECT_EQ(told["step"], 4);
  EXPECT_EQ(told["steps"], 10);
  EXPECT_TRUE(told["eta_seconds"].is_null());
  EXPECT_TRUE(told["straggler"].is_null());
  EXPECT_FALSE(told.contains("ranks"));
  EXPECT_EQ(parsed(ask("GET", "/v1/jobs"))["jobs"][0]["progress"], told);
  const json whole = parsed(ask("GET", "/v1/jobs/1/progress"));
  EXPECT_EQ(whole["state"], "running");
  EXPECT_EQ(whole["progress"]["ranks"][0]["memory_limit_bytes"], 7);
  EXPECT_DOUBLE_EQ(whole["progress"]["ranks"][0]["waiting_share"], 0.2);
  const json device = parsed(ask("GET", "/v1/devices"))["devices"][0];
  EXPECT_EQ(device["job"], 1);
  EXPECT_EQ(device["job_name"], "tiny");
  EXPECT_EQ(device["memory_bytes"], 3);
  EXPECT_DOUBLE_EQ(device["busy_share"], 0.8);
  EXPECT_TRUE(device["temperature"].is_null());
  const std::string metrics = ask("GET", "/metrics").body;
  EXPECT_THAT(metrics, HasSubstr("motley_job_step{job=\"1\",name=\"tiny\"} 4\n"));
  EXPECT_THAT(metrics, HasSubstr("motley_job_samples_per_second{job=\"1\",name=\"tiny\"} 8\n"));
  EXPECT_THAT(metrics, HasSubstr("motley_device_waiting_share{device=\"here/0\",type=\"a\","
                                 "job=\"1\"} 0.2\n"));
  service_.end(1, AttemptOutcome::kDone);
  EXPECT_TRUE(parsed(ask("GET", "/v1/jobs/1"))["progress"].is_null()) << "what is over tells none";
  EXPECT_EQ(ask("GET", "/v1/jobs/7/progress").status, 404);
}

TEST_F(ApiTest, ProgressThatCannotBeReadIsNone) {
  submit(kJob);
  for (const char* text : {"", "{", "[]", "{\"version\": 1}", "{\"version\": 9}"}) {
    write_progress(text);
    const HttpResponse shown = ask("GET", "/v1/jobs/1");
    EXPECT_EQ(shown.status, 200) << text;
    EXPECT_TRUE(parsed(shown)["progress"].is_null()) << text;
    EXPECT_EQ(ask("GET", "/v1/devices").status, 200) << text;
    EXPECT_EQ(ask("GET", "/metrics").status, 200) << text;
  }
}

TEST_F(ApiTest, EventsArePagedAndFollowed) {
  submit(kJob);
  const json page = parsed(ask("GET", "/v1/events?limit=2"));
  ASSERT_EQ(page["events"].size(), 2u);
  EXPECT_EQ(page["events"][0]["text"], "submitted");
  const json newest = parsed(ask("GET", "/v1/events?last=1"));
  ASSERT_EQ(newest["events"].size(), 1u);
  EXPECT_EQ(newest["events"][0]["text"], "running attempt 1");
  EXPECT_EQ(parsed(ask("GET", "/v1/events?job=1&last=10000"))["events"][0]["text"], "submitted");
  EXPECT_TRUE(parsed(ask("GET", "/v1/events?last=0"))["events"].empty());
  EXPECT_EQ(ask("GET", "/v1/events?last=1&after=1").status, 400);
  const HttpRequest request = following("/v1/events?job=1&last=1", "2");
  std::shared_ptr<EventSource> events;
  api_.handle(request, [&](HttpResponse response) { events = response.events; });
  ASSERT_TRUE(events);
  EXPECT_THAT(events->next(), HasSubstr("id: 3\nevent: job\ndata: {"));
  EXPECT_EQ(events->next(), "");
  EXPECT_FALSE(events->over());
  service_.end(1, AttemptOutcome::kDone);
  EXPECT_THAT(events->next(), HasSubstr("\"succeeded\""));
  EXPECT_FALSE(events->over());
  EXPECT_EQ(events->next(), "event: end\ndata: {}\n\n");
  EXPECT_TRUE(events->over());
}

TEST_F(ApiTest, AFollowerOfALogThatComesBackGoesOnWhereItWas) {
  submit(kJob);
  const std::string directory = directory_.attempt({1, Epoch(1)});
  std::filesystem::create_directories(directory);
  std::ofstream(directory + "/log") << "one\ntwo\n";
  service_.end(1, AttemptOutcome::kDone);
  const HttpRequest request = following("/v1/jobs/1/logs?after=1%3A0", "1:4");
  std::shared_ptr<EventSource> log;
  api_.handle(request, [&](HttpResponse response) { log = response.events; });
  ASSERT_TRUE(log);
  EXPECT_EQ(log->next(), "id: 1:8\nevent: log\ndata: {\"attempt\":1,\"text\":\"two\\n\"}\n\n");
  EXPECT_EQ(log->next(), "event: end\ndata: {}\n\n");
  EXPECT_TRUE(log->over());
}

TEST(HttpTarget, IsReadStrictly) {
  HttpRequest request;
  ASSERT_TRUE(read_target("/a%2Fb?x=1%202&y&z=%C3%A9", &request));
  EXPECT_EQ(request.path, "/a/b");
  EXPECT_EQ(request.query.at("x"), "1 2");
  EXPECT_EQ(request.query.at("y"), "");
  for (const char* bad : {"", "a", "/%", "/%0", "/%zz", "/%00", "/?a=1&a=2", "*"}) {
    HttpRequest ignored;
    EXPECT_FALSE(read_target(bad, &ignored)) << bad;
  }
  ASSERT_TRUE(read_target("/p?x=" + percent_encoded("a&b=c d/%\xc3\xa9"), &(request = {})));
  EXPECT_EQ(request.query.at("x"), "a&b=c d/%\xc3\xa9");
}

}  // namespace
}  // namespace motley
