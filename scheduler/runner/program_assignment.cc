#include "scheduler/runner/program_assignment.h"

#include <unistd.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>

#include "core/file_system.h"
#include "core/json_fields.h"
#include "core/json_file.h"
#include "core/module.h"
#include "core/spec/json.h"
#include "scheduler/launch/child_process.h"
#include "scheduler/launch/remote_hosts.h"
#include "scheduler/launch/this_host.h"
#include "scheduler/launch/worker_program.h"

namespace motley {
namespace {

using nlohmann::json;

constexpr int kVersion = 1;

constexpr Bytes kLargestEnd{1 << 20};

constexpr const char* kSearchPaths[] = {"PATH", "LD_LIBRARY_PATH"};

/// What is only said where it applies: of a motley around this one it would be wrong here.
constexpr const char* kSometimes[] = {
    "MOTLEY_MEASURE",      "MOTLEY_PLAN",        "MOTLEY_GLOBAL_BATCH", "MOTLEY_GRAIN",
    "MOTLEY_GRAINS",       "MOTLEY_MICRO_BATCH", "MOTLEY_SAMPLES",      "MOTLEY_SHARE",
    "MOTLEY_PACE",         "MOTLEY_SAVE_EVERY",  "MOTLEY_ARRAY_INDEX",  "MOTLEY_ARRAY_SIZE",
    "MOTLEY_TRAINED_STEPS"};

std::string process_path(const std::string& directory, int rank) {
  return directory + "/rank-" + std::to_string(rank) + ".pid";
}

std::string measured_path(const std::string& directory, int rank) {
  return directory + "/rank-" + std::to_string(rank) + ".measured.json";
}

std::string end_path(const std::string& directory, int rank) {
  return directory + "/rank-" + std::to_string(rank) + ".end.json";
}

int rank_count(const ProgramAssignment& assignment) {
  return static_cast<int>(assignment.fleet.devices.size());
}

/// Where a rank stands among those of its host, and which host that is. GPUs come first, so that a
/// rank's is the one of that number.
struct Place {
  int local = 0, of_host = 0, host = 0;
};

Place place_of_rank(const FleetSpec& fleet, int rank) {
  const DeviceSpec& device = fleet.devices[static_cast<size_t>(rank)];
  const std::string& host = device.host;
  const bool on_gpu = device.kind == DeviceKind::kCuda;
  std::vector<std::string> hosts;
  Place place;
  for (int i = 0; i < static_cast<int>(fleet.devices.size()); ++i) {
    const DeviceSpec& other = fleet.devices[static_cast<size_t>(i)];
    if (std::find(hosts.begin(), hosts.end(), other.host) == hosts.end())
      hosts.push_back(other.host);
    if (other.host != host) continue;
    ++place.of_host;
    const bool other_on_gpu = other.kind == DeviceKind::kCuda;
    if (other_on_gpu != on_gpu ? other_on_gpu : i < rank) ++place.local;
  }
  place.host = static_cast<int>(std::find(hosts.begin(), hosts.end(), host) - hosts.begin());
  return place;
}

/// Sets what the job has not set itself.
class Setter {
 public:
  Setter(const JobSpec& job, Environment environment)
      : job_(job), environment_(std::move(environment)) {
    for (const char* name : kSometimes) environment_.unset(name);
    for (const auto& [name, value] : job.program.env) environment_.set(name, value);
  }
  void set(const std::string& name, const std::string& value) {
    if (job_.program.env.count(name) == 0) environment_.set(name, value);
  }
  void set(const std::string& name, int64_t value) { set(name, std::to_string(value)); }
  /// Behind what anybody has said of it.
  void append_path(const std::string& name, const std::string& value) {
    const std::string before = environment_.value(name);
    environment_.set(name, before.empty() ? value : before + ":" + value);
  }
  void set_default(const std::string& name, const std::string& value) {
    environment_.set_default(name, value);
  }
  Environment take() { return std::move(environment_); }

 private:
  const JobSpec& job_;
  Environment environment_;
};

/// As torchrun does.
void set_torchrun(const ProgramAssignment& assignment, int rank, Setter* out) {
  const Place place = place_of_rank(assignment.fleet, rank);
  out->set("RANK", rank);
  out->set("WORLD_SIZE", rank_count(assignment));
  out->set("LOCAL_RANK", place.local);
  out->set("LOCAL_WORLD_SIZE", place.of_host);
  out->set("GROUP_RANK", place.host);
  out->set("ROLE_RANK", rank);
  out->set("ROLE_WORLD_SIZE", rank_count(assignment));
  out->set("TORCHELASTIC_RESTART_COUNT", assignment.epoch.value() - 1);
  out->set("TORCHELASTIC_MAX_RESTARTS", assignment.job.retry.max_restarts);
  out->set("TORCHELASTIC_RUN_ID", assignment.run);
  out->set("MASTER_ADDR", assignment.master_address);
  out->set("MASTER_PORT", assignment.master_port);
}

void set_array(const ArrayTask& array, Setter* out) {
  if (array.size == 0) return;
  out->set("MOTLEY_ARRAY_INDEX", array.index);
  out->set("MOTLEY_ARRAY_SIZE", array.size);
}

void set_shares(const ProgramAssignment& assignment, int rank, Setter* out) {
  const int batch = assignment.job.train.global_batch;
  if (batch == 0) return;
  const int grain = assignment.job.train.grain.value_or(1);
  const RankShare& share = assignment.shares[static_cast<size_t>(rank)];
  out->set("MOTLEY_GLOBAL_BATCH", batch);
  out->set("MOTLEY_GRAIN", grain);
  out->set("MOTLEY_GRAINS", (share.samples + grain - 1) / grain);
  out->set("MOTLEY_MICRO_BATCH", share.micro_batch);
  out->set("MOTLEY_SAMPLES", share.samples);
  out->set("MOTLEY_SHARE", json(static_cast<double>(share.samples) / batch).dump());
}

void set_checkpoints(const ProgramAssignment& assignment, Setter* out) {
  out->set("MOTLEY_CHECKPOINT_DIR", assignment.checkpoints);
  out->set("MOTLEY_KEEP", assignment.job.checkpoint.keep);
  if (assignment.trained_steps > 0) out->set("MOTLEY_TRAINED_STEPS", assignment.trained_steps);
  if (assignment.job.checkpoint.every_steps > 0)
    out->set("MOTLEY_SAVE_EVERY", assignment.job.checkpoint.every_steps);
}

/// As torchrun leaves them: all that ranks of the host have, LOCAL_RANK the number of one's own.
/// What the host shows is narrowed to those; one without a UUID is the first that it shows.
void set_gpus(const FleetSpec& fleet, const DeviceSpec& own, Setter* out) {
  std::string uuids;
  for (const DeviceSpec& device : fleet.devices) {
    if (device.host != own.host || own.kind != DeviceKind::kCuda || device.kind != own.kind)
      continue;
    if (device.uuid.empty()) return out->set_default("CUDA_VISIBLE_DEVICES", "0");
    uuids += (uuids.empty() ? "" : ",") + device.uuid;
  }
  out->set("CUDA_VISIBLE_DEVICES", uuids);
}

/// An emulated device waits in the program itself.
void set_pace(const FleetSpec& fleet, const DeviceSpec& device, Setter* out) {
  if (!device.paced) return;
  out->set("MOTLEY_PACE", json{{"flops", fleet.pace_flops},
                               {"speed", device.paced->speed},
                               {"overhead_seconds", seconds_of(device.paced->overhead)},
                               {"half_batch", device.paced->half_batch}}
                              .dump());
}

}  // namespace

Environment program_environment(const ProgramAssignment& assignment, int rank,
                                const Environment& inherited) {
  const DeviceSpec& device = assignment.fleet.devices[static_cast<size_t>(rank)];
  Environment surroundings = inherited;
  if (own_host_name() == assignment.launched_on)
    for (const auto& [name, value] : assignment.search_paths) surroundings.set(name, value);
  Setter out(assignment.job, std::move(surroundings));
  set_torchrun(assignment, rank, &out);
  out.set("MOTLEY_JOB", assignment.job.name);
  out.set("MOTLEY_RUN", assignment.run);
  out.set("MOTLEY_ATTEMPT", assignment.epoch.value());
  set_checkpoints(assignment, &out);
  set_pace(assignment.fleet, device, &out);
  if (assignment.job.train.global_batch > 0)
    out.set("MOTLEY_PLAN", plan_path(assignment.directory));
  out.set("MOTLEY_CONTROL", assignment.control);
  out.set("MOTLEY_KEY_FILE", assignment.key_file);
  out.append_path("PYTHONPATH", path_beside_modules("motley_torch.py").parent_path().string());
  if (const auto worker = worker_program()) out.set("MOTLEY_WORKER", *worker);
  if (assignment.measure) out.set("MOTLEY_MEASURE", measured_path(assignment.directory, rank));
  out.set("MOTLEY_DEVICE", device.id);
  out.set("MOTLEY_DEVICE_TYPE", device.type);
  set_array(assignment.job.array, &out);
  set_shares(assignment, rank, &out);
  out.set_default("CUDA_DEVICE_ORDER", "PCI_BUS_ID");
  set_gpus(assignment.fleet, device, &out);
  out.set_default("PYTHONUNBUFFERED", "1");  // its output is a pipe, and nobody's the less now
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  const int threads = device.threads > 0
                          ? device.threads
                          : std::max(1, cores / place_of_rank(assignment.fleet, rank).of_host);
  out.set_default("OMP_NUM_THREADS", std::to_string(threads));
  return out.take();
}

void search_as_here(ProgramAssignment* assignment) {
  assignment->launched_on = own_host_name();
  const Environment ours = Environment::inherited();
  for (const char* name : kSearchPaths) assignment->search_paths[name] = ours.value(name);
}

std::string plan_path(const std::string& directory) { return directory + "/plan.json"; }

Result<Unit> write_program(const ProgramAssignment& assignment, const std::string& path) {
  json shares = json::array();
  for (const RankShare& share : assignment.shares)
    shares.push_back({{"samples", share.samples}, {"micro_batch", share.micro_batch}});
  const json document = {{"version", kVersion},
                         {"epoch", assignment.epoch.value()},
                         {"run", assignment.run},
                         {"directory", assignment.directory},
                         {"checkpoints", assignment.checkpoints},
                         {"master_addr", assignment.master_address},
                         {"master_port", assignment.master_port},
                         {"job", to_json(assignment.job)},
                         {"fleet", to_json(assignment.fleet)},
                         {"shares", shares},
                         {"launched_on", assignment.launched_on},
                         {"search_paths", assignment.search_paths},
                         {"control", assignment.control},
                         {"key_file", assignment.key_file},
                         {"trained_steps", assignment.trained_steps},
                         {"log_limit", assignment.log_limit.value()},
                         {"measure", assignment.measure}};
  return write_text_durably(real_file_system(), path, document.dump(1) + "\n");
}

Result<ProgramAssignment> read_program(const std::string& path) {
  MOTLEY_TRY(const json document,
             read_json_file(real_file_system(), path, ErrorCode::kInvalidSpec));
  ProgramAssignment assignment;
  json job, fleet;
  JsonFields fields(document);
  fields.read_version(kVersion);
  fields.read("epoch", assignment.epoch)
      .read("run", assignment.run)
      .read("directory", assignment.directory)
      .read("checkpoints", assignment.checkpoints)
      .read("master_addr", assignment.master_address)
      .read("master_port", assignment.master_port)
      .read("launched_on", assignment.launched_on)
      .read("control", assignment.control)
      .read("key_file", assignment.key_file)
      .read("trained_steps", assignment.trained_steps)
      .read_if("log_limit", assignment.log_limit)
      .read("measure", assignment.measure);
  fields.each("shares", [&](JsonFields& share) {
    RankShare& read = assignment.shares.emplace_back();
    share.read("samples", read.samples).read("micro_batch", read.micro_batch);
  });
  fields.object("search_paths", [&](JsonFields& paths) {
    for (const char* name : kSearchPaths)
      if (paths.has(name)) paths.read(name, assignment.search_paths[name]);
  });
  if (const json* member = fields.member("job")) job = *member;
  if (const json* member = fields.member("fleet")) fleet = *member;
  MOTLEY_TRY_VOID(fields.done());
  MOTLEY_TRY(assignment.job, job_from_json(job));
  MOTLEY_TRY(assignment.fleet, fleet_from_json(fleet));
  if (!assignment.job.is_program() || assignment.fleet.devices.empty())
    return fail(ErrorCode::kInvalidSpec, path + " names no program, or no device");
  if (assignment.job.train.global_batch > 0 &&
      assignment.shares.size() != assignment.fleet.devices.size())
    return fail(ErrorCode::kInvalidSpec, path + " has not a share for each device");
  return assignment;
}

Result<std::string> read_measured(const std::string& directory, int rank) {
  return read_text(real_file_system(), measured_path(directory, rank), kLargestEnd);
}

std::string ProgramEnd::to_string() const {
  return ExitStatus{signal != 0 ? 128 + signal : status, signal}.to_string();
}

Result<Unit> write_program_end(const std::string& directory, const ProgramEnd& end) {
  json document = {{"version", kVersion},
                   {"rank", end.rank},
                   {"status", end.status},
                   {"signal", end.signal},
                   {"at_ns", end.at}};
  if (!end.missing.empty()) document["missing"] = end.missing;
  if (!end.measured.empty()) document["measured"] = end.measured;
  return write_text_durably(real_file_system(), end_path(directory, end.rank),
                            document.dump() + "\n");
}

Result<ProgramEnd> read_program_end(const std::string& directory, int rank) {
  MOTLEY_TRY(const std::string text,
             read_text(real_file_system(), end_path(directory, rank), kLargestEnd));
  return program_end_of(text);
}

Result<ProgramEnd> program_end_of(const std::string& text) {
  MOTLEY_TRY(const json document, parse_json(text));
  ProgramEnd end;
  JsonFields fields(document);
  fields.read_version(kVersion);
  fields.read("rank", end.rank)
      .read("status", end.status)
      .read("signal", end.signal)
      .read("at_ns", end.at);
  fields.read_if("missing", end.missing);
  if (fields.has("measured")) fields.read("measured", end.measured);
  MOTLEY_TRY_VOID(fields.done());
  return end;
}

Result<Unit> write_rank_process(const std::string& directory, int rank) {
  return write_text_durably(real_file_system(), process_path(directory, rank),
                            std::to_string(::getpid()) + "\n");
}

void remove_rank_process(const std::string& directory, int rank) {
  (void)real_file_system().remove_all(process_path(directory, rank));
}

std::string stop_command(const std::string& directory, const std::vector<int>& ranks) {
  std::string command = "cd " + shell_quoted(directory) + " || exit 1; missing=0; for r in";
  for (const int rank : ranks) command += " " + std::to_string(rank);
  return command +
         "; do [ -e rank-$r.end.json ] || [ -e rank-$r.asked ] || { "
         "p=$(cat rank-$r.pid) && mv rank-$r.pid rank-$r.asked && kill -TERM $p; } || missing=1; "
         "done; exit $missing";
}

std::string ends_command(const std::string& directory, const std::vector<int>& ranks) {
  std::string command = "cd " + shell_quoted(directory) + " && for r in";
  for (const int rank : ranks) command += " " + std::to_string(rank);
  return command + "; do cat rank-$r.end.json 2>/dev/null; done; true";
}

std::vector<std::string> files_of_rank(const std::string& directory, int rank) {
  const std::string name = directory + "/rank-" + std::to_string(rank);
  return {end_path(directory, rank), process_path(directory, rank), name + ".asked",
          measured_path(directory, rank)};
}
}  // namespace motley
