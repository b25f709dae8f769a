#include "scheduler/run/run_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/clock.h"
#include "core/debug_env.h"
#include "core/file_system.h"
#include "core/json_file.h"
#include "core/json_place.h"
#include "core/spec/json.h"
#include "core/user_directories.h"
#include "scheduler/run/metrics_log.h"
#include "scheduler/run/process_directory.h"

namespace motley {
namespace {

constexpr Bytes kLargestDocument{256 << 20};
constexpr double kDeadHolderSeconds = 15;  // its runner may need 10 to end everything

std::string runs_of(const std::string& name) { return state_directory() + "/runs/" + name; }

/// The number a directory name spells; 0 for anything else.
int64_t number_of(const std::string& name) {
  int64_t number = 0;
  const char* end = name.data() + name.size();
  const auto parsed = std::from_chars(name.data(), end, number);
  return parsed.ec == std::errc() && parsed.ptr == end && number > 0 ? number : 0;
}

/// The largest number among the names of a directory; 0 when there is none.
int64_t largest_number(const std::string& directory) {
  const auto names = real_file_system().list(directory);
  int64_t largest = 0;
  if (names)
    for (const std::string& name : *names) largest = std::max(largest, number_of(name));
  return largest;
}

bool is_run(const std::string& path) { return real_file_system().exists(path + "/job.json"); }

/// Of a lock file; 0 when it holds none.
pid_t holder_of(int fd) {
  char text[32] = "";
  const ssize_t size = ::pread(fd, text, sizeof text - 1, 0);
  if (size <= 0) return 0;
  return static_cast<pid_t>(number_of(std::string(text, static_cast<size_t>(size))));
}

/// A run before it has its number: a directory beside the others and, where the job keeps its
/// checkpoints elsewhere, another there. Both go unless published.
class DraftRun {
 public:
  explicit DraftRun(const JobSpec& job)
      : runs_(runs_of(job.name)),
        saves_(job.checkpoint.dir.empty() ? "" : job.checkpoint.dir + "/" + job.name) {
    const std::string name = draft_name();
    draft_.path = runs_ + "/" + name;
    draft_.checkpoints = saves_.empty() ? draft_.path + "/checkpoints" : saves_ + "/" + name;
  }
  ~DraftRun() { (void)remove(); }
  DraftRun(const DraftRun&) = delete;

  const RunDirectory::Draft& draft() const { return draft_; }

  Result<Unit> begin() {
    MOTLEY_TRY_VOID(make_state_directory(fs_, runs_));
    sweep_drafts(runs_);
    if (!saves_.empty()) sweep_drafts(saves_);
    MOTLEY_TRY_VOID(remove());
    return fs_.make_directories(draft_.path);
  }

  /// Checkpoints first: a run that is there has them. Of two that begin at the same time the loser
  /// takes the next number.
  Result<std::string> publish() {
    for (int attempt = 0; attempt < 100; ++attempt) {
      const int64_t last =
          std::max(largest_number(runs_), saves_.empty() ? 0 : largest_number(saves_));
      const std::string number = std::to_string(last + 1);
      if (!saves_.empty() && fs_.exists(draft_.checkpoints)) {
        if (!fs_.rename_new(draft_.checkpoints, saves_ + "/" + number)) continue;
        MOTLEY_TRY_VOID(fs_.sync_directory(saves_));
        draft_.checkpoints = saves_ + "/" + number;
      }
      if (!fs_.rename_new(draft_.path, runs_ + "/" + number)) continue;
      draft_ = {};
      MOTLEY_TRY_VOID(fs_.sync_directory(runs_));
      return runs_ + "/" + number;
    }
    return fail(ErrorCode::kIo, "cannot make a new run in " + runs_);
  }

 private:
  Result<Unit> remove() {
    if (draft_.path.empty()) return Unit{};
    MOTLEY_TRY_VOID(fs_.remove_all(draft_.checkpoints));
    return fs_.remove_all(draft_.path);
  }

  FileSystem& fs_ = real_file_system();
  std::string runs_;
  std::string saves_;  ///< of all runs of the job; empty: each in its run
  RunDirectory::Draft draft_;
};

/// What `from_json` makes of a document of a run; its errors name the file and the line.
template <class T>
Result<T> read_document(const std::string& path, Result<T> (*from_json)(const nlohmann::json&)) {
  MOTLEY_TRY(const std::string text, read_text(real_file_system(), path, kLargestDocument));
  MOTLEY_TRY(const nlohmann::json document, parse_json_file(text, path, ErrorCode::kCorrupt));
  Result<T> read = from_json(document);
  if (!read) return fail(placed_in(std::move(read).error(), text, path));
  return read;
}

/// Where `job` has `key`: in the YAML it was read from, else in the run's job.json.
SourcePlace place_in_run(const RunDirectory& run, const JobSpec& job, const std::string& key) {
  if (!job.places.empty()) return place_of(job, key);
  std::string pointer = "/" + key;
  std::replace(pointer.begin(), pointer.end(), '.', '/');
  SourcePlace place;
  const auto text = run.read("job.json");
  if (text && nlohmann::json::accept(*text)) place = place_in_json(*text, pointer);
  place.file = run.file("job.json");
  return place;
}

}  // namespace

Result<RunDirectory> RunDirectory::create(const JobSpec& job,
                                          const std::function<Result<Unit>(const Draft&)>& fill) {
  DraftRun run(job);
  MOTLEY_TRY_VOID(run.begin());
  const std::string job_path = run.draft().path + "/job.json";
  MOTLEY_TRY_VOID(write_text_durably(real_file_system(), job_path, to_json(job).dump(2) + "\n"));
  if (fill) MOTLEY_TRY_VOID(fill(run.draft()));
  MOTLEY_TRY(std::string path, run.publish());
  return RunDirectory(std::move(path));
}

Result<std::optional<RunDirectory>> RunDirectory::newest(const JobSpec& job) {
  const std::string runs = runs_of(job.name);
  const int64_t number = largest_number(runs);
  if (number == 0) return std::optional<RunDirectory>();
  std::optional<RunDirectory> run = RunDirectory(runs + "/" + std::to_string(number));
  MOTLEY_TRY(const JobSpec before, run->job());
  if (before.is_program() != job.is_program())
    return fail(ErrorCode::kInvalidSpec,
                "run " + run->title() + " is " +
                    (job.is_program() ? "of a model" : "of a program") +
                    "; --fresh starts a new run, another name keeps both",
                place_of(job, job.is_program() ? "run" : "model"));
  const std::string key = first_incompatible_key(before, job);
  if (!key.empty() && !(run->untouched(before) && run->untouched(job)))
    return fail(ErrorCode::kInvalidSpec,
                (key == "run" ? "the command (run)" : key) + " has changed since run " +
                    run->title() +
                    " was started; --fresh starts a new run, another name keeps both",
                place_of(job, key));
  return run;
}

Result<RunDirectory> RunDirectory::find(const std::string& run) {
  if (run.find('/') != std::string::npos && is_run(run))
    return RunDirectory(std::filesystem::canonical(run).string());
  if (is_run(runs_of(run))) return RunDirectory(runs_of(run));  // name/n
  const int64_t newest = run.find("..") == std::string::npos ? largest_number(runs_of(run)) : 0;
  if (newest > 0) return RunDirectory(runs_of(run) + "/" + std::to_string(newest));
  if (is_run(run)) return RunDirectory(std::filesystem::canonical(run).string());
  if (real_file_system().exists(run))
    return fail(ErrorCode::kNotFound, run + " is no run: it has no job.json");
  return fail(ErrorCode::kNotFound,
              "no run '" + run + "' (looked in " + state_directory() + "/runs)");
}

std::string newest_run(const std::string& state, const std::string& name) {
  const std::string runs = state + "/runs/" + name;
  const int64_t newest = largest_number(runs);
  return newest > 0 ? runs + "/" + std::to_string(newest) : "";
}

std::string RunDirectory::title() const {
  const std::filesystem::path path(path_);
  return path.parent_path().filename().string() + "/" + path.filename().string();
}

std::string RunDirectory::checkpoints(const JobSpec& job) const {
  return job.checkpoint.dir.empty() ? file("checkpoints") : job.checkpoint.dir + "/" + title();
}

std::string RunDirectory::attempt_directory(Epoch epoch) const {
  return file("attempts/" + std::to_string(epoch.value()));
}

Result<Unit> RunDirectory::lock() {
  const std::string path = file("lock");
  Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!fd.valid()) return fail(ErrorCode::kIo, "cannot open " + path + ": " + std::strerror(errno));
  const Nanos until = steady_clock().now() + nanos_of_seconds(kDeadHolderSeconds);
  while (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    const pid_t holder = holder_of(fd.get());
    if (is_alive(holder) || steady_clock().now() > until)
      return fail(ErrorCode::kNotPermitted, "run " + title() + " is in use by process " +
                                                std::to_string(holder) +
                                                "; wait for it, or end it");
    steady_clock().sleep_until(steady_clock().now() + nanos_of_seconds(0.05));
  }
  const std::string pid = std::to_string(::getpid());
  if (::ftruncate(fd.get(), 0) != 0 ||
      ::pwrite(fd.get(), pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size()))
    return fail(ErrorCode::kIo, "cannot write " + path + ": " + std::strerror(errno));
  lock_ = std::move(fd);
  return real_file_system().remove_all(file("progress.json"));  // of a holder that was killed
}

bool RunDirectory::in_use() const {
  if (lock_.valid()) return false;
  const Fd fd(::open(file("lock").c_str(), O_RDONLY | O_CLOEXEC));
  return fd.valid() && ::flock(fd.get(), LOCK_SH | LOCK_NB) != 0;
}

Result<Epoch> RunDirectory::next_epoch(const JobSpec& job) {
  FileSystem& fs = real_file_system();
  int64_t last = last_epoch();
  for (const CheckpointName& name : committed(job))
    last = std::max<int64_t>(last, name.epoch.value());
  const Epoch epoch(static_cast<int>(last) + 1);
  MOTLEY_TRY_VOID(fs.make_directories(attempt_directory(epoch)));
  MOTLEY_TRY_VOID(fs.sync_directory(file("attempts")));
  MOTLEY_TRY_VOID(fs.sync_directory(path_));
  return epoch;
}

int RunDirectory::last_epoch() const { return static_cast<int>(largest_number(file("attempts"))); }

bool RunDirectory::untouched(const JobSpec& job) const {
  if (job.is_program()) return last_epoch() == 0;  // nobody else knows what it has done
  return read_metrics(file("metrics.jsonl")).empty() && committed(job).empty();
}

Result<Unit> RunDirectory::check_continues(const JobSpec& job) const {
  const std::string path = attempt_directory(Epoch(last_epoch())) + "/attempt.json";
  const auto document = read_json_file(real_file_system(), path, ErrorCode::kCorrupt);
  if (!document || !document->is_object() || !document->contains("job") || untouched(job))
    return Unit{};
  MOTLEY_TRY(const JobSpec trained, job_from_json((*document)["job"]));
  const std::string key = first_incompatible_key(trained, job);
  if (key.empty()) return Unit{};
  return fail(ErrorCode::kInvalidSpec,
              key + " is not what run " + title() + " has trained with (" + path +
                  "): put it back, or start a new run with --fresh",
              place_in_run(*this, job, key));
}

Result<Unit> RunDirectory::begin_again_with(const JobSpec& job) const {
  const auto before = this->job();
  if (!untouched(job) || (before && first_incompatible_key(*before, job).empty())) return Unit{};
  for (const char* name : {"plan.json", "profile.json", "equal_split.json", "report.json"})
    MOTLEY_TRY_VOID(real_file_system().remove_all(file(name)));
  return Unit{};
}

Result<JobSpec> RunDirectory::job() const { return read_document(file("job.json"), job_from_json); }

Result<FleetSpec> RunDirectory::fleet() const {
  if (!real_file_system().exists(file("fleet.json")))
    return fail(ErrorCode::kNotFound,
                "run " + title() +
                    " was started by hand: continue with the same mpirun line, or give --fleet");
  return read_document(file("fleet.json"), fleet_from_json);
}

Result<Profile> RunDirectory::profile() const {
  return read_document(file("profile.json"), profile_from_json);
}

Result<Plan> RunDirectory::plan() const {
  const std::string newest = attempt_directory(Epoch(last_epoch())) + "/plan.json";
  const std::string path = real_file_system().exists(newest) ? newest : file("plan.json");
  return read_document(path, plan_from_json);
}

Result<Unit> RunDirectory::write(const std::string& name, const std::string& text) const {
  return write_text_durably(real_file_system(), file(name), text);
}

Result<std::string> RunDirectory::read(const std::string& name) const {
  return read_text(real_file_system(), file(name), kLargestDocument);
}

std::vector<CheckpointName> RunDirectory::committed(const JobSpec& job) const {
  FileSystem& fs = real_file_system();
  std::vector<CheckpointName> found;
  const std::string directory = checkpoints(job);
  const auto names = fs.list(directory);
  if (!names) return found;
  for (const std::string& name : *names) {
    CheckpointName parsed;
    if (parse_checkpoint_directory_name(name, &parsed) &&
        fs.exists(directory + "/" + name + "/manifest.json"))
      found.push_back(parsed);
  }
  std::sort(found.begin(), found.end(), [](const CheckpointName& a, const CheckpointName& b) {
    return a.epoch != b.epoch ? a.epoch > b.epoch : a.step > b.step;
  });
  return found;
}

}  // namespace motley
