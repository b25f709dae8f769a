#include "scheduler/service/attempt_files.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>

#include "core/file_system.h"
#include "core/json_fields.h"
#include "core/json_file.h"
#include "core/spec/json.h"
#include "scheduler/runner/attempt_key.h"

namespace motley {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr int kRecordVersion = 1;
constexpr Bytes kMostKeyBytes{256};
constexpr const char* kStops[] = {"none",    "cancel",     "hold", "preempt",
                                  "requeue", "time limit", "drain"};

/// A document of ours; nothing where there is none yet.
template <class T, class Read>
Result<std::optional<T>> read_record(const std::string& path, Read read) {
  if (!real_file_system().exists(path)) return std::optional<T>();
  MOTLEY_TRY(const json document, read_json_file(real_file_system(), path, ErrorCode::kCorrupt));
  T record;
  JsonFields fields(document);
  fields.read_version(kRecordVersion);
  read(fields, record);
  if (const auto whole = fields.done(); !whole)
    return fail(whole.error().code, path + ": " + whole.error().message);
  return std::optional<T>(std::move(record));
}

Nanos since(fs::file_time_type when) {
  const auto passed = fs::file_time_type::clock::now() - when;
  const auto nanos = std::chrono::duration_cast<std::chrono::nanoseconds>(passed).count();
  return Nanos(std::max<int64_t>(0, nanos));
}

struct OrderTexts {
  AttemptId id;
  json job, fleet;
  std::vector<std::string> agents;
  bool measure = false;
  Bytes log_limit{0};
  std::string from;
};

void read_order(JsonFields& fields, OrderTexts& order) {
  fields.read("id", order.id.job).read("epoch", order.id.epoch);
  if (const json* job = fields.member("job")) order.job = *job;
  if (const json* fleet = fields.member("fleet")) order.fleet = *fleet;
  fields.read_if("agents", order.agents);  // orders were written without
  fields.read_if("measure", order.measure).read_if("log_limit", order.log_limit);
  fields.read_if("from", order.from);
}

void read_begun(JsonFields& fields, AttemptBegun& begun) {
  fields.read("pid", begun.process.pid)
      .read("start_ticks", begun.process.start_ticks)
      .read("boot", begun.process.boot)
      .read("saved_step", begun.saved_step)
      .read_if("first_epoch", begun.first_epoch);
}

void read_ended(JsonFields& fields, AttemptEnded& ended) {
  fields.read("status", ended.status)
      .read("cause", ended.cause)
      .read("progressed", ended.progressed)
      .read_if("hopeless", ended.hopeless)
      .read_if("saved_step", ended.saved_step)
      .read_if("speeds", ended.speeds)
      .read_if("blameless", ended.blameless)
      .read_if("elsewhere", ended.elsewhere);
}

}  // namespace

Result<Unit> AttemptFiles::write_order(const AttemptOrder& order) const {
  MOTLEY_TRY_VOID(real_file_system().make_directories(directory_));
  json document = {{"version", kRecordVersion},       {"id", order.id.job},
                   {"epoch", order.id.epoch.value()}, {"job", to_json(order.job)},
                   {"fleet", to_json(order.fleet)},   {"agents", order.agents},
                   {"measure", order.measure},        {"log_limit", order.log_limit.value()}};
  if (!order.from.empty()) document["from"] = order.from;
  if (!order.agents.empty()) MOTLEY_TRY_VOID(make_key());
  return write_text_durably(real_file_system(), directory_ + "/order.json", document.dump(1));
}

/// Only once: whoever has read it goes on using it.
Result<Unit> AttemptFiles::make_key() const {
  const std::string path = directory_ + "/key";
  if (real_file_system().exists(path)) return Unit{};
  MOTLEY_TRY(const AttemptKey key, AttemptKey::generate());
  return key.write(path);
}

Result<std::string> AttemptFiles::key() const {
  return read_text(real_file_system(), directory_ + "/key", kMostKeyBytes);
}

Result<bool> AttemptFiles::key_matches(const std::string& offered) const {
  MOTLEY_TRY(const std::string text, key());
  return AttemptKey::from_text(text).matches(offered);
}

Result<AttemptOrder> AttemptFiles::order() const {
  const std::string path = directory_ + "/order.json";
  MOTLEY_TRY(const std::optional<OrderTexts> texts, read_record<OrderTexts>(path, read_order));
  if (!texts) return fail(ErrorCode::kNotFound, "no " + path);
  AttemptOrder order;
  order.id = texts->id;
  order.agents = texts->agents;
  order.measure = texts->measure;
  order.log_limit = texts->log_limit;
  order.from = texts->from;
  MOTLEY_TRY(order.job, job_from_json(texts->job));
  MOTLEY_TRY(order.fleet, fleet_from_json(texts->fleet));
  return order;
}

Nanos written_ago(const std::vector<std::string>& directories) {
  std::optional<fs::file_time_type> newest;
  for (const std::string& directory : directories) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(directory, error)) {
      if (!entry.is_regular_file(error)) continue;
      const auto written = entry.last_write_time(error);
      if (!error && (!newest || written > *newest)) newest = written;
    }
  }
  return newest ? since(*newest) : Nanos(0);
}

Result<bool> AttemptFiles::claim(const AttemptBegun& begun) const {
  FileSystem& fs = real_file_system();
  const json document = {{"version", kRecordVersion},
                         {"pid", begun.process.pid},
                         {"start_ticks", begun.process.start_ticks},
                         {"boot", begun.process.boot},
                         {"saved_step", begun.saved_step},
                         {"first_epoch", begun.first_epoch}};
  const std::string draft = directory_ + "/begun." + std::to_string(::getpid());
  MOTLEY_TRY_VOID(write_text_durably(fs, draft, document.dump(1)));
  const bool ours = fs.rename_new(draft, directory_ + "/begun.json").has_value();
  if (!ours) {
    MOTLEY_TRY_VOID(fs.remove_all(draft));
    if (!fs.exists(directory_ + "/begun.json"))
      return fail(ErrorCode::kIo, "cannot write " + directory_ + "/begun.json");
  }
  return ours;
}

Result<std::optional<AttemptBegun>> AttemptFiles::begun() const {
  return read_record<AttemptBegun>(directory_ + "/begun.json", read_begun);
}

Nanos AttemptFiles::begun_ago() const {
  std::error_code error;
  const auto claimed = fs::last_write_time(directory_ + "/begun.json", error);
  return error ? Nanos(0) : since(claimed);
}

Result<Unit> AttemptFiles::write_end(const AttemptEnded& ended) const {
  const json document = {{"version", kRecordVersion},   {"status", ended.status},
                         {"cause", ended.cause},        {"progressed", ended.progressed},
                         {"hopeless", ended.hopeless},  {"saved_step", ended.saved_step},
                         {"speeds", ended.speeds},      {"blameless", ended.blameless},
                         {"elsewhere", ended.elsewhere}};
  return write_text_durably(real_file_system(), directory_ + "/ended.json", document.dump(1));
}

Result<Unit> AttemptFiles::write_stop(StopWhy why) const {
  const json document = {{"version", kRecordVersion}, {"why", kStops[static_cast<size_t>(why)]}};
  return write_text_durably(real_file_system(), directory_ + "/stop.json", document.dump());
}

StopWhy AttemptFiles::stop() const {
  const auto why = read_record<std::string>(
      directory_ + "/stop.json",
      [](JsonFields& fields, std::string& text) { fields.read("why", text); });
  if (!why || !*why) return StopWhy::kNone;
  const auto* found = std::find(std::begin(kStops), std::end(kStops), **why);
  return found == std::end(kStops) ? StopWhy::kNone : static_cast<StopWhy>(found - kStops);
}

Result<std::optional<AttemptEnded>> AttemptFiles::ended() const {
  return read_record<AttemptEnded>(directory_ + "/ended.json", read_ended);
}

}  // namespace motley
