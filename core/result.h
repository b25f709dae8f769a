#pragma once
// Errors a caller is expected to handle. Programmer's mistakes are MOTLEY_CHECK (core/check.h).

#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

namespace motley {

/// What went wrong, as far as it decides what the caller does next. exit_code() gives the
/// documented process exit code.
enum class ErrorCode {
  kRunFailed,      ///< the training itself failed (a rank died)
  kDiverged,       ///< its loss or gradient is not finite: the job's fault, no device's
  kUsage,          ///< command line
  kInvalidSpec,    ///< bad YAML, bad plan, or a resume with changed keys
  kNoPlan,         ///< nothing fits the devices
  kNotFound,       ///< a file the user named
  kNoDevice,       ///< no such device, host or service
  kDeviceLost,     ///< a device failed
  kOutOfMemory,    ///< a device, or the host for it, has no such memory: less of the work may fit
  kPeerLost,       ///< another rank or the runner went away
  kCorrupt,        ///< a file's content contradicts its checksum or format
  kUnsupported,    ///< not built in, or not possible on this hardware
  kIo,             ///< the operating system refused (disk full, permission on a run directory)
  kInternal,       ///< a bug
  kStopped,        ///< stopped on request with a checkpoint saved: run again
  kNotPermitted,   ///< not allowed (key, token, owner)
  kBrokenInstall,  ///< mpirun or worker missing, hosts differ in version or data
};

/// Exit codes of DESIGN.md §4: 1, 2, 65, 66, 69, 70, 75, 77, 78.
int exit_code(ErrorCode code);

/// The inverse, for a child process's exit status; kRunFailed for anything unknown.
ErrorCode error_code_of_exit(int status);

/// "run_failed", "peer_lost", …: how processes name a code to each other.
const char* name_of(ErrorCode code);

/// The inverse; kInternal for anything unknown.
ErrorCode error_code_of_name(std::string_view name);

/// Where a user's mistake stands. line and column count from 1; 0 means unknown.
struct SourcePlace {
  std::string file;
  int line = 0;
  int column = 0;
};

struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string
      message;  ///< one line, no full stop; names the thing and, where there is one, the remedy
  SourcePlace place;  ///< empty file: none

  /// "file:line:column: message", or just the message.
  std::string to_string() const;
};

template <class T>
using Result = tl::expected<T, Error>;

/// The value of a successful call that returns nothing.
struct Unit {
  bool operator==(const Unit&) const = default;
};

inline tl::unexpected<Error> fail(ErrorCode code, std::string message, SourcePlace place = {}) {
  return tl::unexpected<Error>(Error{code, std::move(message), std::move(place)});
}
inline tl::unexpected<Error> fail(Error error) { return tl::unexpected<Error>(std::move(error)); }

}  // namespace motley

#define MOTLEY_CONCAT_INNER(a, b) a##b
#define MOTLEY_CONCAT(a, b) MOTLEY_CONCAT_INNER(a, b)

/// `MOTLEY_TRY(auto x, call());` declares x from a Result or returns its error from the enclosing
/// function.
#define MOTLEY_TRY(declaration, ...)                                                \
  auto MOTLEY_CONCAT(try_result_, __LINE__) = (__VA_ARGS__);                        \
  if (!MOTLEY_CONCAT(try_result_, __LINE__))                                        \
    return ::motley::fail(std::move(MOTLEY_CONCAT(try_result_, __LINE__)).error()); \
  declaration = std::move(*MOTLEY_CONCAT(try_result_, __LINE__))

/// `MOTLEY_TRY_VOID(call());` for a Result whose value is not needed.
#define MOTLEY_TRY_VOID(...)                                               \
  do {                                                                     \
    auto try_result = (__VA_ARGS__);                                       \
    if (!try_result) return ::motley::fail(std::move(try_result).error()); \
  } while (false)
