#include "worker/train/directory_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/clock.h"
#include "core/file_system.h"

namespace motley {
namespace {

constexpr Nanos kDyingHolder{2'000'000'000};
constexpr Nanos kLockPollInterval{50'000'000};

auto lock_error(const std::string& what, const std::string& path) {
  return fail(ErrorCode::kIo, what + " " + path + ": " + std::strerror(errno));
}

}  // namespace

Result<std::unique_ptr<DirectoryLock>> DirectoryLock::take(const std::string& directory) {
  MOTLEY_TRY_VOID(real_file_system().make_directories(directory));
  const std::string path = directory + "/lock";
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return lock_error("cannot open", path);
  std::unique_ptr<DirectoryLock> lock(new DirectoryLock(fd));
  const Nanos until = steady_clock().now() + kDyingHolder;
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return lock_error("cannot lock", path);
    if (steady_clock().now() > until)
      return fail(ErrorCode::kNotPermitted, directory +
                                                " is in use by another run or process: wait for "
                                                "it, end it, or choose another directory");
    steady_clock().sleep_until(steady_clock().now() + kLockPollInterval);
  }
  const std::string pid = std::to_string(::getpid());
  if (::ftruncate(fd, 0) != 0 ||
      ::pwrite(fd, pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size()))
    return lock_error("cannot write", path);
  return lock;
}

DirectoryLock::~DirectoryLock() { ::close(fd_); }

}  // namespace motley
