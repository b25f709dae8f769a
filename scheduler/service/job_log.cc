#include "scheduler/service/job_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <vector>

#include "core/run_layout.h"
#include "scheduler/launch/log_file.h"
#include "scheduler/run/run_directory.h"
#include "scheduler/service/attempt_files.h"

namespace motley {
namespace {

template <class Number>
bool parse_whole(std::string_view text, Number* out) {
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, *out);
  return parsed.ec == std::errc() && parsed.ptr == end && *out >= 0;
}

/// Empty where there is nothing to be read.
std::string read_from(const std::string& path, int64_t offset, size_t most) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  std::string text(most, '\0');
  const ssize_t size = fd.valid() ? ::pread(fd.get(), text.data(), most, offset) : 0;
  text.resize(size > 0 ? static_cast<size_t>(size) : 0);
  return text;
}

/// Of files as if they were one.
struct Printed {
  std::string text;      ///< of one file
  bool of_last = false;  ///< of the last one, or none
};
Printed read_files(const std::vector<std::string>& paths, int64_t offset, size_t most) {
  for (const std::string& path : paths) {
    std::error_code missing;
    const auto size = static_cast<int64_t>(std::filesystem::file_size(path, missing));
    const bool last = &path == &paths.back();
    if (last || (!missing && offset < size)) return {read_from(path, offset, most), last};
    if (!missing) offset -= size;
  }
  return {"", true};
}

/// What an attempt prints, or a rank of it in each of the run's attempts that are of it.
std::vector<std::string> log_files(const ServiceDirectory& directory, const StoredJob& job,
                                   const LogChoice& choice, int attempt) {
  const auto files_of = [&](int number) {
    return AttemptFiles(directory.attempt({job.id, Epoch(number)}));
  };
  if (!choice.rank) return {files_of(attempt).log()};
  const auto begun = files_of(attempt).begun(), next = files_of(attempt + 1).begun();
  const std::string run = newest_run(directory.job(job.id) + "/motley", job.name);
  std::vector<std::string> paths;
  if (!begun || !*begun || (*begun)->first_epoch < 1 || run.empty()) return paths;
  const bool has_next = next && *next && (*next)->first_epoch > 0;
  const auto found = RunDirectory::find(run);
  const int end = has_next ? (*next)->first_epoch : found ? found->last_epoch() + 1 : 0;
  for (int epoch = (*begun)->first_epoch; epoch < end; ++epoch)
    paths.push_back(rank_log_path(attempt_directory(run, Epoch(epoch)), *choice.rank));
  return paths;
}

/// kNotFound for an attempt or a rank that there is not; of a job without attempts no rank is
/// known.
Result<Unit> check_is_there(const LogChoice& choice, int attempt,
                            const std::vector<StoredAttempt>& attempts) {
  const std::string job = "job " + std::to_string(choice.job);
  if (choice.only && attempt > std::ssize(attempts))
    return fail(ErrorCode::kNotFound,
                job + " has no attempt " + std::to_string(attempt) +
                    (attempts.empty() ? " yet" : ", but " + std::to_string(attempts.size())));
  if (!choice.rank || attempts.empty()) return Unit{};
  size_t ranks = 0;
  for (const StoredAttempt& each : attempts)
    if (!choice.only || each.epoch.value() == attempt) ranks = std::max(ranks, each.devices.size());
  if (static_cast<size_t>(*choice.rank) < ranks) return Unit{};
  return fail(ErrorCode::kNotFound, job + " has no rank " + std::to_string(*choice.rank) +
                                        ": the last one is " + std::to_string(ranks - 1));
}

/// Without the beginning of a line whose end is still to come.
void keep_whole_lines(std::string* text, size_t most) {
  const size_t end = text->rfind('\n');
  if (end != std::string::npos)
    text->resize(end + 1);
  else if (text->size() < most)
    text->clear();
}

}  // namespace

std::string LogPlace::to_string() const {
  return std::to_string(attempt) + ":" + std::to_string(offset);
}

std::optional<LogPlace> LogPlace::parse(std::string_view text) {
  const size_t colon = text.find(':');
  LogPlace place;
  if (colon == std::string_view::npos || !parse_whole(text.substr(0, colon), &place.attempt) ||
      !parse_whole(text.substr(colon + 1), &place.offset) || place.attempt < 1)
    return std::nullopt;
  return place;
}

Result<LogPiece> read_job_log(const Database& kept, const ServiceDirectory& directory,
                              const LogChoice& choice, LogPlace place, size_t most) {
  MOTLEY_TRY(const StoredJob stored, find_job(kept, choice.job));
  MOTLEY_TRY(const auto attempts, list_attempts(kept, choice.job));
  MOTLEY_TRY_VOID(check_is_there(choice, place.attempt, attempts));
  LogPiece piece;
  while (true) {
    const auto index = static_cast<size_t>(place.attempt - 1);
    const bool known = index < attempts.size();
    // Asked before the log is read: what was written until the end is then there.
    const bool ended = known && attempts[index].ended != 0;
    if (known) {
      const Printed printed =
          read_files(log_files(directory, stored, choice, place.attempt), place.offset, most);
      piece.text = printed.text;
      const bool may_grow = printed.of_last && !ended;
      if (may_grow || piece.text.size() == most) keep_whole_lines(&piece.text, most);
    }
    piece.attempt = place.attempt;
    place.offset += static_cast<int64_t>(piece.text.size());
    piece.next = place;
    const bool last = choice.only || index + 1 >= attempts.size();
    piece.over =
        piece.text.empty() && last && (choice.only ? ended : is_final(stored.status.state));
    if (!piece.text.empty() || !ended || last) return piece;
    place = {place.attempt + 1, 0};
  }
}

}  // namespace motley
