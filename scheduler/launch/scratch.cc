#include "scheduler/launch/scratch.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

namespace motley {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLongestBase = 60;  // a Unix socket's path may have 107 bytes
constexpr const char* kLockName = "lock";

tl::unexpected<Error> refused(const std::string& path, const std::string& why) {
  return fail(ErrorCode::kIo, "cannot use " + path + ": " + why);
}

/// <where>/motley-<uid>, ours alone.
Result<std::string> own_base(const std::string& where) {
  const std::string base = where + "/motley-" + std::to_string(::geteuid());
  if (::mkdir(base.c_str(), 0700) != 0 && errno != EEXIST)
    return refused(base, std::strerror(errno));
  struct stat info {};
  if (::lstat(base.c_str(), &info) != 0) return refused(base, std::strerror(errno));
  if (!S_ISDIR(info.st_mode) || info.st_uid != ::geteuid() || (info.st_mode & 077) != 0)
    return refused(base, "it is not a directory of this user alone; remove it");
  return base;
}

std::string temporary_base() {
  std::error_code error;
  const std::string chosen = fs::temp_directory_path(error).string();
  return error || chosen.size() > kLongestBase ? "/tmp" : chosen;
}

std::string shared_memory_base() {
  return ::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : temporary_base();
}

Fd open_lock(const std::string& directory) {
  return Fd(::open((directory + "/" + kLockName).c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW,
                   0600));
}

bool take(const Fd& lock, int how) { return lock.valid() && ::flock(lock.get(), how) == 0; }

/// Removes what processes that are gone have left. The caller holds the lock of the base, so no one
/// is between making a directory and locking it.
void sweep(const std::string& base, const std::string& shared_base) {
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(base, ignored)) {
    if (!entry.is_directory(ignored)) continue;
    const Fd lock = open_lock(entry.path().string());
    if (!take(lock, LOCK_EX | LOCK_NB)) continue;
    fs::remove_all(shared_base + "/" + entry.path().filename().string(), ignored);
    fs::remove_all(entry.path(), ignored);
  }
}

std::string random_name() {
  unsigned value = 0;
  if (::getrandom(&value, sizeof value, 0) != sizeof value)
    value = static_cast<unsigned>(::getpid());
  char text[16];
  std::snprintf(text, sizeof text, "%08x", value);
  return text;
}

}  // namespace

Result<Scratch> Scratch::create() {
  MOTLEY_TRY(const std::string base, own_base(temporary_base()));
  MOTLEY_TRY(const std::string shared_base, own_base(shared_memory_base()));
  const Fd base_lock = open_lock(base);
  if (!take(base_lock, LOCK_EX)) return refused(base, std::strerror(errno));
  sweep(base, shared_base);
  const std::string name = random_name();
  Scratch scratch;
  scratch.path_ = base + "/" + name;
  // Told apart from the first by its name where both lie in one directory.
  scratch.shared_memory_ = shared_base + "/" + name + (shared_base == base ? "/shm" : "");
  for (const std::string& path : {scratch.path_, scratch.shared_memory_})
    if (::mkdir(path.c_str(), 0700) != 0) return refused(path, std::strerror(errno));
  scratch.lock_ = open_lock(scratch.path_);
  if (!take(scratch.lock_, LOCK_EX | LOCK_NB)) return refused(scratch.path_, std::strerror(errno));
  return scratch;
}

Scratch::~Scratch() {
  if (!lock_.valid()) return;
  std::error_code ignored;
  fs::remove_all(shared_memory_, ignored);
  fs::remove_all(path_, ignored);
}

}  // namespace motley
