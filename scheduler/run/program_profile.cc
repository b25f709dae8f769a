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
constexpr int kMostEntries = 4096, kDeepest = 3;

namespace fs = std::filesystem;

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

/// Python files that the command names, as paths or by `-m package.module`.
std::vector<fs::path> scripts_of(const ProgramSpec& program) {
  const fs::path workdir = program.workdir;
  std::vector<fs::path> scripts;
  bool is_module = false;
  for (std::string word : program.command) {
    if (is_module) {
      std::replace(word.begin(), word.end(), '.', '/');
      for (const char* rest : {".py", "/__main__.py"})
        if (is_file(workdir / (word + rest))) scripts.push_back(workdir / (word + rest));
    } else if (word.ends_with(".py") && is_file(workdir / word)) {
      scripts.push_back(workdir / word);
    }
    is_module = word == "-m";
  }
  return scripts;
}

/// What lies in a directory that is not a script's to import from.
bool is_apart(const fs::path& directory) {
  const std::string name = directory.filename().string();
  return name.starts_with(".") || name == "__pycache__" || name == "site-packages";
}

/// Python files in and below a directory, as far as packages are usually deep.
void add_below(const fs::path& directory, std::set<fs::path>* files) {
  std::error_code error;
  int seen = 0;
  for (fs::recursive_directory_iterator at(directory, error), end; !error && at != end;
       at.increment(error)) {
    if (++seen > kMostEntries) return;
    if (at->is_directory(error) && (is_apart(at->path()) || at.depth() >= kDeepest))
      at.disable_recursion_pending();
    if (at->path().extension() == ".py") files->insert(at->path());
  }
}

/// What the scripts may import or read: Python files where they are, and files that the command
/// names; in the order of their names.
std::set<fs::path> files_of(const ProgramSpec& program) {
  std::set<fs::path> files;
  for (const fs::path& script : scripts_of(program)) add_below(script.parent_path(), &files);
  for (const std::string& word : program.command) {
    if (word == "-m") add_below(program.workdir, &files);
    for (const std::string& name : {word, word.substr(word.find('=') + 1)})  // --config=FILE
      if (is_file(fs::path(program.workdir) / name)) files.insert(fs::path(program.workdir) / name);
  }
  return files;
}

std::string text_of(const fs::path& path) {
  auto text = read_text(real_file_system(), path.string(), kLargestScript);
  return text ? std::move(*text) : "";
}

/// The names in its import statements: import torch, motley_torch as motley
std::set<std::string> imports_of(const std::string& script) {
  std::set<std::string> names;
  std::istringstream lines(script);
  std::string line, word;
  while (std::getline(lines, line)) {
    for (char& letter : line)
      if (std::string_view(",.()").find(letter) != std::string_view::npos) letter = ' ';
    std::istringstream words(line);
    if (!(words >> word) || (word != "import" && word != "from")) continue;
    while (words >> word) names.insert(word);
  }
  return names;
}

std::string module_of(const fs::path& file) {
  return file.stem() == "__init__" ? file.parent_path().filename() : file.stem();
}

/// Whether the scripts import motley_torch, or modules of theirs that do.
bool uses_bridge(const ProgramSpec& program) {
  const std::set<fs::path> files = files_of(program);
  std::vector<fs::path> next = scripts_of(program);
  std::set<fs::path> seen;
  while (!next.empty()) {
    const fs::path file = next.back();
    next.pop_back();
    if (!seen.insert(file).second) continue;
    const std::set<std::string> names = imports_of(text_of(file));
    if (names.contains(kBridge)) return true;
    for (const fs::path& other : files)
      if (other.extension() == ".py" && names.contains(module_of(other))) next.push_back(other);
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
  for (const fs::path& path : files_of(program)) add(text_of(path));
  for (const auto& [name, value] : program.env) add(name + "=" + value);
  add(text_of(path_beside_modules(std::string(kBridge) + ".py")));
  return stream.hex();
}

}  // namespace

Result<Unit> can_be_measured(const JobSpec& job) {
  if (job.train.global_batch == 0)
    return fail(ErrorCode::kNoPlan,
                "nobody has measured the program, as train.global_batch is not set");
  if (uses_bridge(job.program)) return Unit{};
  return fail(ErrorCode::kNoPlan, std::string("nobody has measured the program, as `run` names no "
                                              "Python file that imports ") +
                                      kBridge + ", itself or in a module of its own");
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
