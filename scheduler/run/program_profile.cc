#include "scheduler/run/program_profile.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "core/debug_env.h"
#include "core/file_system.h"
#include "core/hash.h"
#include "core/json_fields.h"
#include "core/json_file.h"
#include "core/module.h"
#include "core/spec/device_identity.h"
#include "core/user_directories.h"
#include "scheduler/launch/this_host.h"

namespace motley {
namespace {

using nlohmann::json;

constexpr int kVersion = 1;
constexpr Bytes kLargestScript{16 << 20};
constexpr const char* kBridge = "motley_torch";

namespace fs = std::filesystem;

/// Python files that the command names.
std::vector<fs::path> scripts_of(const ProgramSpec& program) {
  std::vector<fs::path> scripts;
  for (const std::string& word : program.command) {
    const fs::path path = fs::path(program.workdir) / word;
    std::error_code error;
    if (path.extension() == ".py" && fs::is_regular_file(path, error)) scripts.push_back(path);
  }
  return scripts;
}

/// What the scripts may import from where they are, and the scripts; in the order of their names.
std::set<fs::path> with_neighbours(const std::vector<fs::path>& scripts) {
  std::set<fs::path> files(scripts.begin(), scripts.end());
  for (const fs::path& script : scripts) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(script.parent_path(), error))
      if (entry.path().extension() == ".py") files.insert(entry.path());
  }
  return files;
}

std::string text_of(const fs::path& path) {
  auto text = read_text(real_file_system(), path.string(), kLargestScript);
  return text ? std::move(*text) : "";
}

bool imports_bridge(const std::string& script) {
  std::istringstream lines(script);
  std::string line, word, module;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    if (words >> word >> module && (word == "import" || word == "from") && module == kBridge)
      return true;
  }
  return false;
}

/// Of everything that may decide how fast it is, each with its length before it.
std::string hash_of(const JobSpec& job) {
  const ProgramSpec& program = job.program;
  Xxh3Stream stream(Xxh3Stream::Width::k128);
  const auto add = [&stream](const std::string& text) {
    const std::string size = std::to_string(text.size()) + ":";
    stream.add(size.data(), size.size());
    stream.add(text.data(), text.size());
  };
  add(program.workdir);
  add(std::to_string(job.train.global_batch));
  for (const std::string& word : program.command) add(word);
  for (const fs::path& path : with_neighbours(scripts_of(program))) add(text_of(path));
  for (const auto& [name, value] : program.env) add(name + "=" + value);
  add(text_of(path_beside_modules(std::string(kBridge) + ".py")));
  return stream.hex();
}

}  // namespace

bool can_be_measured(const JobSpec& job) {
  if (job.train.global_batch == 0) return false;
  const std::vector<fs::path> scripts = scripts_of(job.program);
  return std::any_of(scripts.begin(), scripts.end(),
                     [](const fs::path& script) { return imports_bridge(text_of(script)); });
}

Result<DeviceProfile> program_profile_of(const std::string& text) {
  MOTLEY_TRY(const json document, parse_json(text));
  DeviceProfile profile;
  LayerCurve curve;
  JsonFields fields(document);
  fields.read_version(kVersion);
  fields.read("update_seconds", profile.update_seconds);
  fields.each("points", [&](JsonFields& point) {
    CurvePoint& read = curve.points.emplace_back();
    point.read("micro_batch", read.micro_batch)
        .read("seconds", read.seconds)
        .read("spread", read.spread)
        .read("repetitions", read.repetitions);
  });
  MOTLEY_TRY_VOID(fields.done());
  int before = 0;
  for (const CurvePoint& point : curve.points) {
    if (point.micro_batch <= before || !(point.seconds > 0))
      return fail(ErrorCode::kInvalidSpec, "what the program told of its times is no curve");
    before = point.micro_batch;
  }
  if (curve.points.empty() || !(profile.update_seconds >= 0))
    return fail(ErrorCode::kInvalidSpec, "the program told no times");
  curve.fit = fit_curve(curve.points);
  profile.curves.push_back(std::move(curve));
  return profile;
}

ProgramProfiles::ProgramProfiles(const JobSpec& job, const FleetSpec& fleet)
    : fleet_(fleet), directory_(cache_directory() + "/programs"), program_(hash_of(job)) {}

std::string ProgramProfiles::identity(const DeviceSpec& device) const {
  static const Machine own = this_machine();
  const Machine machine = is_this_host(device.host) ? own : Machine{device.host, ""};
  json identity = json::parse(device_identity(fleet_, device, machine));
  identity.erase("uuid");  // one of each kind is measured, not every card
  return identity.dump();
}

std::string ProgramProfiles::path(const DeviceSpec& device) const {
  const std::string key = program_ + identity(device) + device.type;
  return directory_ + "/" + xxh3_128_hex(key.data(), key.size()) + ".json";
}

std::optional<DeviceProfile> ProgramProfiles::find(const DeviceSpec& device) const {
  const auto text = read_text(real_file_system(), path(device), kLargestScript);
  if (!text) return std::nullopt;
  auto profile = program_profile_of(*text);
  if (!profile) return std::nullopt;
  profile->device = device.id;
  profile->type = device.type;
  profile->identity = identity(device);
  profile->evidence = evidence_of(device);
  return *profile;
}

Result<Unit> ProgramProfiles::keep(const DeviceSpec& device, const std::string& text) const {
  MOTLEY_TRY_VOID(program_profile_of(text));
  MOTLEY_TRY_VOID(make_cache_directory(real_file_system(), directory_));
  return write_text_durably(real_file_system(), path(device), text);
}

}  // namespace motley
