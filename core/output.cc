#include "core/output.h"

#include <cerrno>
#include <cstdio>
#include <iostream>
#include <system_error>

#include "core/log.h"

namespace motley {

Result<Unit> flush_output() {
  errno = 0;
  std::cout.flush();
  const bool flushed = std::fflush(stdout) == 0;
  if (flushed && std::ferror(stdout) == 0 && std::cout.good()) return Unit{};
  // An earlier write may have failed: then the reason is no longer known.
  const std::string reason = errno != 0 ? std::generic_category().message(errno) : "write error";
  return fail(ErrorCode::kIo, "cannot write to stdout: " + reason);
}

Error own_fault(const std::exception& exception) {
  return {ErrorCode::kInternal,
          "a fault of this program, please report it: " + one_line(exception.what()),
          {}};
}

}  // namespace motley
