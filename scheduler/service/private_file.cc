#include "scheduler/service/private_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/file_system.h"
#include "scheduler/launch/child_process.h"

namespace motley {
namespace {

Result<Unit> write_new(const std::string& path, std::string_view text) {
  const Fd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  bool written = file.valid();
  while (written && !text.empty()) {
    const ssize_t size = ::write(file.get(), text.data(), text.size());
    written = size > 0;
    if (written) text.remove_prefix(static_cast<size_t>(size));
  }
  if (!written || ::fsync(file.get()) != 0)
    return fail(ErrorCode::kIo, "cannot write " + path + ": " + std::strerror(errno));
  return Unit{};
}

}  // namespace

Result<Unit> write_private_file(const std::string& path, std::string_view text) {
  FileSystem& fs = real_file_system();
  const std::string temporary = path + ".tmp";
  MOTLEY_TRY_VOID(fs.remove_all(temporary));  // left by a crash
  auto done = write_new(temporary, text);
  if (done) done = fs.rename_over(temporary, path);
  if (!done) {
    (void)fs.remove_all(temporary);
    return done;
  }
  return fs.sync_directory(parent_directory(path));
}

}  // namespace motley
