#include "scheduler/service/private_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "core/file_system.h"
#include "scheduler/launch/child_process.h"

namespace motley {
namespace {

/// To a new file, whose name ends `path`.
Result<Unit> write_new(std::string* path, std::string_view text) {
  const Fd file(::mkostemp(path->data(), O_CLOEXEC));  // 0600, O_EXCL
  bool written = file.valid();
  while (written && !text.empty()) {
    const ssize_t size = ::write(file.get(), text.data(), text.size());
    written = size > 0;
    if (written) text.remove_prefix(static_cast<size_t>(size));
  }
  if (!written || ::fsync(file.get()) != 0)
    return fail(ErrorCode::kIo, "cannot write " + *path + ": " + std::strerror(errno));
  return Unit{};
}

}  // namespace

Result<Unit> write_private_file(const std::string& path, std::string_view text) {
  FileSystem& fs = real_file_system();
  std::string temporary = path + ".tmp-XXXXXX";  // each writer's own
  auto done = write_new(&temporary, text);
  if (done) done = fs.rename_over(temporary, path);
  if (!done) {
    (void)fs.remove_all(temporary);
    return done;
  }
  return fs.sync_directory(parent_directory(path));
}

}  // namespace motley
