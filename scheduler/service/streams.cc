#include "scheduler/service/streams.h"

#include <nlohmann/json.hpp>

#include "scheduler/service/job_json.h"

namespace motley {
namespace {

constexpr int kMostEvents = 100;
constexpr size_t kMostBytes = 64 << 10;
constexpr std::chrono::milliseconds kLogPatience{100};  // nobody says when a line is added
constexpr std::chrono::milliseconds kEventPatience{10'000};

/// By this a client tells an end from a connection that broke.
const std::string kEnd = "event: end\ndata: {}\n\n";

class EventFollower final : public EventSource {
 public:
  EventFollower(const Database& kept, int64_t job, int64_t after)
      : kept_(kept), job_(job), after_(after) {}

  std::string next() override {
    // Asked before its events are read: the last one is then among them.
    const bool ended = job_ != 0 && job_has_ended();
    const auto events = list_events(kept_, job_, after_, kMostEvents);
    std::string text;
    if (!events) {
      over_ = true;
      return text;
    }
    for (const StoredEvent& event : *events) {
      text += json_event_of(std::to_string(event.id), "job", to_json(event));
      after_ = event.id;
    }
    over_ = ended && events->empty();
    return over_ ? kEnd : text;
  }
  bool over() const override { return over_; }
  std::chrono::milliseconds patience() const override { return kEventPatience; }

 private:
  bool job_has_ended() const {
    const auto job = find_job(kept_, job_);
    return !job || is_final(job->status.state);
  }

  const Database& kept_;
  int64_t job_;
  int64_t after_;
  bool over_ = false;
};

class LogFollower final : public EventSource {
 public:
  LogFollower(const Database& kept, const ServiceDirectory& directory, LogChoice choice,
              LogPlace place)
      : kept_(kept), directory_(directory), choice_(choice), place_(place) {}

  std::string next() override {
    const auto piece = read_job_log(kept_, directory_, choice_, place_, kMostBytes);
    over_ = !piece || piece->over;
    if (!piece) return "";
    place_ = piece->next;
    if (over_) return kEnd;
    if (piece->text.empty()) return "";
    return json_event_of(place_.to_string(), "log",
                         {{"attempt", piece->attempt}, {"text", piece->text}});
  }
  bool over() const override { return over_; }
  std::chrono::milliseconds patience() const override { return kLogPatience; }

 private:
  const Database& kept_;
  const ServiceDirectory& directory_;
  const LogChoice choice_;
  LogPlace place_;
  bool over_ = false;
};

}  // namespace

std::shared_ptr<EventSource> follow_events(const Database& kept, int64_t job, int64_t after) {
  return std::make_shared<EventFollower>(kept, job, after);
}

std::shared_ptr<EventSource> follow_log(const Database& kept, const ServiceDirectory& directory,
                                        LogChoice choice, LogPlace place) {
  return std::make_shared<LogFollower>(kept, directory, choice, place);
}

}  // namespace motley
