#include "scheduler/run/progress_file.h"

#include <chrono>
#include <nlohmann/json.hpp>
#include <span>

#include "core/json_file.h"

namespace motley {
namespace {

constexpr Nanos kPause{1'000'000'000};
constexpr Bytes kLargest{16 << 20};  // of thousands of ranks

/// A reader sees the old content or the new.
Result<Unit> replace(FileSystem& fs, const std::string& path, const std::string& text) {
  const std::string draft = path + ".new";
  MOTLEY_TRY_VOID(fs.remove_all(draft));
  MOTLEY_TRY(const auto file, fs.create(draft));
  MOTLEY_TRY_VOID(file->append(std::as_bytes(std::span(text))));
  MOTLEY_TRY_VOID(file->close());
  return fs.rename_over(draft, path);
}

}  // namespace

ProgressFile::~ProgressFile() { (void)fs_.remove_all(path_); }

void ProgressFile::write(const RunProgress& progress) {
  next_ = clock_.now() + kPause;
  (void)replace(fs_, path_, to_json(progress).dump() + "\n");
}

void ProgressFile::offer(const std::function<RunProgress()>& progress) {
  if (clock_.now() >= next_) write(progress());
}

double unix_seconds() {
  using namespace std::chrono;
  return duration<double>(system_clock::now().time_since_epoch()).count();
}

Result<RunProgress> read_progress(FileSystem& fs, const std::string& path) {
  MOTLEY_TRY(const std::string text, read_text(fs, path, kLargest));
  MOTLEY_TRY(const auto document, parse_json_file(text, path, ErrorCode::kCorrupt));
  return run_progress_from_json(document);
}

}  // namespace motley
