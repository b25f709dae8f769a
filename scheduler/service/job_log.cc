#include "scheduler/service/job_log.h"

#include <fcntl.h>
#include <unistd.h>

#include <charconv>

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

Result<LogPiece> read_job_log(const Database& kept, const ServiceDirectory& directory, int64_t job,
                              LogPlace place, bool only, size_t most) {
  MOTLEY_TRY(const std::optional<StoredJob> stored, find_job(kept, job));
  if (!stored) return fail(ErrorCode::kNotFound, "there is no job " + std::to_string(job));
  MOTLEY_TRY(const auto attempts, list_attempts(kept, job));
  LogPiece piece;
  while (true) {
    const auto index = static_cast<size_t>(place.attempt - 1);
    const bool known = index < attempts.size();
    // Asked before the log is read: what was written until the end is then there.
    const bool ended = known && attempts[index].ended != 0;
    if (known) {
      const AttemptFiles files(directory.attempt({job, Epoch(place.attempt)}));
      piece.text = read_from(files.log(), place.offset, most);
      if (!ended || piece.text.size() == most) keep_whole_lines(&piece.text, most);
    }
    piece.attempt = place.attempt;
    place.offset += static_cast<int64_t>(piece.text.size());
    piece.next = place;
    const bool last = only || index + 1 >= attempts.size();
    piece.over = piece.text.empty() && last && (only ? ended : is_final(stored->status.state));
    if (!piece.text.empty() || !ended || last) return piece;
    place = {place.attempt + 1, 0};
  }
}

}  // namespace motley
