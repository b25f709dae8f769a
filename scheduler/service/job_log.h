#pragma once
// What the attempts of a job have printed, one after the other, read in pieces.

#include <optional>
#include <string>
#include <string_view>

#include "core/result.h"
#include "scheduler/service/service_directory.h"
#include "scheduler/store/job_store.h"

namespace motley {

/// A place in the log: the attempt, and the bytes of it that have been read.
struct LogPlace {
  int attempt = 1;
  int64_t offset = 0;

  std::string to_string() const;  ///< "2:4096"
  static std::optional<LogPlace> parse(std::string_view text);
};

struct LogPiece {
  std::string text;  ///< whole lines, but for the last of an attempt and for longer ones
  LogPlace next;
  int attempt = 1;    ///< whose text it is
  bool over = false;  ///< nothing is missing, and the job has ended
};

struct LogChoice {
  int64_t job = 0;
  bool only = false;             ///< of no attempt but that of the place
  std::optional<int> rank = {};  ///< what that rank has printed, as far as this machine has it
};

/// From `place` on, at most `most` bytes, of one attempt. kNotFound where there is no such job,
/// attempt or rank.
Result<LogPiece> read_job_log(const Database& kept, const ServiceDirectory& directory,
                              const LogChoice& choice, LogPlace place, size_t most);

}  // namespace motley
