#include "scheduler/service/service_directory.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>

#include "core/debug_env.h"
#include "core/user_directories.h"

namespace motley {
namespace {

namespace fs = std::filesystem;

std::string holder_text(int fd) {
  char text[32] = "";
  const ssize_t size = ::pread(fd, text, sizeof text - 1, 0);
  return size > 0 ? "process " + std::string(text, static_cast<size_t>(size)) : "another process";
}

Result<Fd> lock_file(const std::string& directory) {
  const std::string path = directory + "/lock";
  Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd.valid()) return fail(ErrorCode::kIo, "cannot open " + path + ": " + std::strerror(errno));
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0)
    return fail(ErrorCode::kNotPermitted, "a coordinator serves from " + directory + " already (" +
                                              holder_text(fd.get()) +
                                              "); --state DIR keeps another one apart");
  const std::string pid = std::to_string(::getpid());
  if (::ftruncate(fd.get(), 0) != 0 ||
      ::pwrite(fd.get(), pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size()))
    return fail(ErrorCode::kIo, "cannot write " + path + ": " + std::strerror(errno));
  return fd;
}

/// A directory in use for something else, which others may enter, stays as it is.
Result<Unit> keep_to_ourselves(const std::string& directory) {
  struct stat status {};
  const bool read = ::stat(directory.c_str(), &status) == 0;
  if (read && (status.st_mode & 077) == 0) return Unit{};
  std::error_code error;
  const bool ours = fs::is_empty(directory, error) || fs::exists(directory + "/motley.db", error);
  if (!ours)
    return fail(ErrorCode::kNotPermitted, "others may enter " + directory +
                                              ", which holds other files: chmod 700 it, or " +
                                              "give --state DIR a directory of its own");
  if (::chmod(directory.c_str(), 0700) != 0)
    return fail(ErrorCode::kNotPermitted,
                "cannot keep " + directory + " to ourselves: " + std::strerror(errno));
  return Unit{};
}

/// Of its entries that are numbers; 0: none is.
int64_t greatest_number_in(const std::string& directory) {
  int64_t greatest = 0;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename().string();
    int64_t id = 0;
    const auto [end, fault] = std::from_chars(name.data(), name.data() + name.size(), id);
    if (fault == std::errc() && end == name.data() + name.size()) greatest = std::max(greatest, id);
  }
  return greatest;
}

}  // namespace

int64_t ServiceDirectory::greatest_job() const { return greatest_number_in(path_ + "/jobs"); }

Epoch ServiceDirectory::newest_attempt(int64_t id) const {
  return Epoch(static_cast<int>(greatest_number_in(job(id) + "/attempts")));
}

Result<ServiceDirectory> ServiceDirectory::open(const std::string& path) {
  std::error_code error;
  const std::string absolute = fs::absolute(path, error).lexically_normal().string();
  MOTLEY_TRY_VOID(make_state_directory(real_file_system(), absolute));
  MOTLEY_TRY_VOID(keep_to_ourselves(absolute));
  MOTLEY_TRY(Fd lock, lock_file(absolute));
  return ServiceDirectory(absolute, std::move(lock));
}

std::string default_service_directory() { return state_directory() + "/service"; }

std::string default_socket() {
  const std::string& chosen = debug_env().socket;
  return chosen.empty() ? default_service_directory() + "/socket" : chosen;
}

}  // namespace motley
