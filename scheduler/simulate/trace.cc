#include "scheduler/simulate/trace.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/file_system.h"
#include "core/json_fields.h"
#include "core/json_file.h"
#include "scheduler/simulate/csv.h"

namespace motley {
namespace {

using nlohmann::json;

constexpr Bytes kLargestTrace{256 << 20};
constexpr int kMostDevices = 1'000'000;
constexpr double kMostWork = 1e18;

void read_devices(JsonFields& fields, TraceJob* job) {
  const json* devices = fields.member("devices");
  if (devices == nullptr) return;
  if (!devices->is_array()) {
    fields.read_between("devices", job->least, 1, kMostDevices);
    job->most = job->least;
    return;
  }
  std::vector<int64_t> range;
  fields.read("devices", range);
  if (range.size() != 2 || range[0] < 1 || range[1] < range[0] || range[1] > kMostDevices)
    return fields.fault("devices", "expected a number, or [least, most]");
  job->least = static_cast<int>(range[0]);
  job->most = static_cast<int>(range[1]);
}

void read_speeds(JsonFields& fields, TraceJob* job) {
  const json* table = fields.member("speeds");
  if (table == nullptr) return;
  const std::string expected = "expected {type: {devices: rate}}, rates above 0";
  if (!table->is_object()) return fields.fault("speeds", expected);
  for (const auto& [type, rates] : table->items()) {
    if (!rates.is_object() || rates.empty()) return fields.fault("speeds", expected);
    for (const auto& [devices, rate] : rates.items()) {
      const int count = devices.size() < 8 ? std::atoi(devices.c_str()) : 0;
      if (count < 1 || !rate.is_number() || !(rate.get<double>() > 0))
        return fields.fault("speeds", expected);
      job->speeds[type][count] = rate.get<double>();
    }
  }
}

Result<TraceJob> job_of(const json& document) {
  TraceJob job;
  JsonFields fields(document);
  fields.read("name", job.name)
      .read_between("arrival_seconds", job.arrival_seconds, 0, kMostSeconds)
      .read_between("work", job.work, 1e-9, kMostWork)
      .read_if("owner", job.owner)
      .read_if("mix", job.mix)
      .read_if("preemptible", job.preemptible);
  read_devices(fields, &job);
  if (fields.has("priority")) fields.read_between("priority", job.priority, 0, 100);
  job.most_of_each = job.most;
  if (fields.has("most_of_each"))
    fields.read_between("most_of_each", job.most_of_each, job.least, kMostDevices);
  if (fields.has("weight")) fields.read_between("weight", job.weight, 1e-6, 1e6);
  if (fields.has("switch_seconds"))
    fields.read_between("switch_seconds", job.switch_seconds, 0, kMostSeconds);
  read_speeds(fields, &job);
  MOTLEY_TRY_VOID(fields.done());
  if (job.owner.empty()) job.owner = job.name;
  return job;
}

json to_json(const TraceJob& job) {
  json speeds = json::object();
  for (const auto& [type, rates] : job.speeds)
    for (const auto& [devices, rate] : rates) speeds[type][std::to_string(devices)] = rate;
  return {{"name", job.name},
          {"owner", job.owner},
          {"arrival_seconds", job.arrival_seconds},
          {"work", job.work},
          {"devices", job.least == job.most ? json(job.least) : json{job.least, job.most}},
          {"most_of_each", job.most_of_each},
          {"mix", job.mix},
          {"priority", job.priority},
          {"weight", job.weight},
          {"preemptible", job.preemptible},
          {"switch_seconds", job.switch_seconds},
          {"speeds", speeds}};
}

/// A number, a truth, or a word.
json value_of(const std::string& text) {
  const json parsed = json::parse(text, nullptr, false);
  return parsed.is_number() || parsed.is_boolean() ? parsed : json(text);
}

/// The cells of a line as the object that a line of JSON would be.
json object_of(const std::vector<std::string>& titles, const std::vector<std::string>& cells) {
  json object = json::object();
  for (size_t i = 0; i < titles.size(); ++i) {
    const std::string& title = titles[i];
    if (cells[i].empty()) continue;
    if (title.rfind("speed:", 0) == 0) {  // speed:TYPE:DEVICES
      const size_t colon = title.rfind(':');
      object["speeds"][title.substr(6, colon > 6 ? colon - 6 : std::string::npos)]
            [title.substr(colon + 1)] = value_of(cells[i]);
    } else if (title == "least" || title == "most") {
      object["devices"][title == "least" ? 0 : 1] = value_of(cells[i]);
    } else {
      object[title] = title == "name" || title == "owner" ? json(cells[i]) : value_of(cells[i]);
    }
  }
  return object;
}

Result<std::vector<TraceJob>> read_csv(const std::string& text, const std::string& path) {
  MOTLEY_TRY(const auto lines, csv_lines(text, ',', path));
  std::vector<TraceJob> jobs;
  for (size_t i = 1; i < lines.size(); ++i) {
    const SourcePlace place{path, lines[i].number, 0};
    if (lines[i].cells.size() != lines[0].cells.size())
      return fail(ErrorCode::kInvalidSpec,
                  "expected " + std::to_string(lines[0].cells.size()) +
                      " cells as in line 1, found " + std::to_string(lines[i].cells.size()),
                  place);
    auto job = job_of(object_of(lines[0].cells, lines[i].cells));
    if (!job) return fail(ErrorCode::kInvalidSpec, job.error().message, place);
    jobs.push_back(std::move(*job));
  }
  return jobs;
}

Result<std::vector<TraceJob>> read_json_lines(const std::string& text, const std::string& path) {
  std::vector<TraceJob> jobs;
  int number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const SourcePlace place{path, number, 0};
    const json document = json::parse(line, nullptr, false);
    if (document.is_discarded()) return fail(ErrorCode::kInvalidSpec, "not JSON", place);
    auto job = job_of(document);
    if (!job) return fail(ErrorCode::kInvalidSpec, job.error().message, place);
    jobs.push_back(std::move(*job));
  }
  return jobs;
}

/// job_type, command, working_directory, num_steps_arg, needs_data_dir, total_steps, scale_factor,
/// priority_weight, SLO, arrival_time; seconds from the trace's begin.
Result<json> object_of_gavel(const std::vector<std::string>& cells, size_t number,
                             const json& speeds) {
  constexpr size_t kType = 0, kSteps = 5, kDevices = 6, kWeight = 7, kArrival = 9, kCells = 10;
  if (cells.size() != kCells)
    return fail(ErrorCode::kInvalidSpec,
                "expected 10 tab-separated cells, found " + std::to_string(cells.size()));
  json object{{"name", "job-" + std::to_string(number)},
              {"arrival_seconds", value_of(cells[kArrival])},
              {"work", value_of(cells[kSteps])},
              {"devices", value_of(cells[kDevices])},
              {"weight", value_of(cells[kWeight])},
              {"mix", false},
              {"speeds", json::object()}};
  for (const auto& [type, jobs] : speeds.items()) {
    if (!jobs.is_object() || !jobs.contains(cells[kType])) continue;
    for (const auto& [devices, rate] : jobs[cells[kType]].items())
      if (rate.is_number() && rate.get<double>() > 0) object["speeds"][type][devices] = rate;
  }
  if (object["speeds"].empty())
    return fail(ErrorCode::kInvalidSpec, "no speed of job type '" + cells[kType] + "'");
  return object;
}

Result<std::vector<TraceJob>> read_gavel(const std::string& text, const std::string& path,
                                         const std::string& speeds_path) {
  if (speeds_path.empty())
    return fail(ErrorCode::kUsage,
                "a trace of tab-separated lines needs --speeds FILE, the table of "
                "steps a second by device type");
  MOTLEY_TRY(const json speeds,
             read_json_file(real_file_system(), speeds_path, ErrorCode::kInvalidSpec));
  if (!speeds.is_object())
    return fail(ErrorCode::kInvalidSpec, "expected {device type: {job type: {devices: steps/s}}}",
                {speeds_path, 0, 0});
  MOTLEY_TRY(const auto lines, csv_lines(text, '\t', path));
  std::vector<TraceJob> jobs;
  for (const CsvLine& line : lines) {
    const SourcePlace place{path, line.number, 0};
    const auto object = object_of_gavel(line.cells, jobs.size() + 1, speeds);
    if (!object) return fail(object.error().code, object.error().message, place);
    auto job = job_of(*object);
    if (!job) return fail(ErrorCode::kInvalidSpec, job.error().message, place);
    jobs.push_back(std::move(*job));
  }
  return jobs;
}

bool ends_with(const std::string& path, const std::string& ending) {
  return path.size() > ending.size() &&
         path.compare(path.size() - ending.size(), ending.size(), ending) == 0;
}

}  // namespace

void let_mix(TraceJob* job) {
  job->mix = true;
  job->most_of_each = job->least;
  job->most = job->least * static_cast<int>(job->speeds.size());
}

Result<std::vector<TraceJob>> read_trace(const std::string& path, const std::string& speeds_path) {
  const bool gavel = ends_with(path, ".tsv");
  if (!gavel && !ends_with(path, ".csv") && !ends_with(path, ".jsonl"))
    return fail(ErrorCode::kUsage, "a trace ends in .jsonl, .csv or .tsv: " + path);
  if (!gavel && !speeds_path.empty())
    return fail(ErrorCode::kUsage, "--speeds is for .tsv traces; others have speeds in them");
  MOTLEY_TRY(const std::string text, read_text(real_file_system(), path, kLargestTrace));
  MOTLEY_TRY(auto jobs, gavel                     ? read_gavel(text, path, speeds_path)
                        : ends_with(path, ".csv") ? read_csv(text, path)
                                                  : read_json_lines(text, path));
  if (jobs.empty()) return fail(ErrorCode::kInvalidSpec, "the trace has no job", {path, 0, 0});
  std::stable_sort(jobs.begin(), jobs.end(), [](const TraceJob& a, const TraceJob& b) {
    return a.arrival_seconds < b.arrival_seconds;
  });
  return jobs;
}

std::string trace_text(const std::vector<TraceJob>& jobs) {
  std::string text;
  for (const TraceJob& job : jobs) text += to_json(job).dump() + "\n";
  return text;
}

}  // namespace motley
