#include "scheduler/cli/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "core/file_system.h"

namespace motley {
namespace {

namespace fs = std::filesystem;

constexpr int kMostLinks = 40;  // as the kernel follows

tl::unexpected<Error> refused(const std::string& path, int reason) {
  return fail(reason == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
              "cannot write " + path + ": " + std::generic_category().message(reason));
}

Result<Unit> write_into(int fd, const std::string& path, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(fd, text.data(), text.size());
    if (count >= 0)
      text.remove_prefix(static_cast<size_t>(count));
    else if (errno != EINTR)
      return refused(path, errno);
  }
  return Unit{};
}

/// The file behind links; it need not be there, its links may lead nowhere yet.
Result<std::string> behind_links(std::string path) {
  std::error_code error;
  for (int links = 0; fs::is_symlink(path, error); ++links) {
    if (links == kMostLinks) return refused(path, ELOOP);
    const fs::path target = fs::read_symlink(path, error);
    if (error) return refused(path, error.value());
    path = (fs::path(parent_directory(path)) / target).string();
  }
  return path;
}

/// stdout or stderr when the file is one of them: a second opening would begin at its beginning.
int own_stream(const struct stat& file) {
  for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) {
    struct stat own {};
    if (::fstat(fd, &own) == 0 && own.st_dev == file.st_dev && own.st_ino == file.st_ino) return fd;
  }
  return -1;
}

Result<Unit> write_stream(const std::string& path, int fd, std::string_view text) {
  if (fd >= 0) {
    std::fflush(fd == STDOUT_FILENO ? stdout : stderr);
    return write_into(fd, path, text);
  }
  fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY);
  if (fd < 0) return refused(path, errno);
  const auto written = write_into(fd, path, text);
  ::close(fd);
  return written;
}

/// A name beside `path` that nobody has.
std::string free_name_beside(FileSystem& files, const std::string& path) {
  const std::string stem = path + ".tmp-" + std::to_string(::getpid());
  std::string name = stem;
  for (int i = 1; files.exists(name); ++i) name = stem + "-" + std::to_string(i);
  return name;
}

Result<Unit> replace(const std::string& path, const struct stat* old, std::string_view text) {
  FileSystem& files = real_file_system();
  const std::string temporary = free_name_beside(files, path);
  MOTLEY_TRY(const auto file, files.create(temporary));  // whatever happens now, it is ours
  const auto write = [&]() -> Result<Unit> {
    if (old != nullptr && ::chmod(temporary.c_str(), old->st_mode & 07777) != 0)
      return refused(temporary, errno);
    MOTLEY_TRY_VOID(file->append(std::as_bytes(std::span(text))));
    MOTLEY_TRY_VOID(file->sync());
    MOTLEY_TRY_VOID(file->close());
    MOTLEY_TRY_VOID(files.rename_over(temporary, path));
    return files.sync_directory(parent_directory(path));
  };
  auto written = write();
  if (!written) ::unlink(temporary.c_str());
  return written;
}

}  // namespace

Result<Unit> check_output_file(const std::string& path) {
  std::error_code error;
  const bool is_there = fs::is_directory(parent_directory(path), error);
  return is_there ? Result<Unit>(Unit{}) : refused(path, error ? error.value() : ENOTDIR);
}

Result<Unit> write_output_file(const std::string& path, std::string_view text) {
  struct stat status {};
  const bool exists = ::stat(path.c_str(), &status) == 0;
  if (exists) {
    const int own = own_stream(status);
    if (own >= 0 || !S_ISREG(status.st_mode)) return write_stream(path, own, text);
    if (::access(path.c_str(), W_OK) != 0) return refused(path, errno);
  }
  MOTLEY_TRY(const std::string target, behind_links(path));
  MOTLEY_TRY_VOID(check_output_file(target));
  return replace(target, exists ? &status : nullptr, text);
}

}  // namespace motley
