#include "core/file_system.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "core/units.h"

namespace motley {
namespace {

/// One write, and the step between leaving the page cache alone (O_DIRECT) and using it: only files
/// larger than this are written directly.
constexpr size_t kBufferBytes = 4 << 20;
constexpr size_t kDirectAlignment = 4096;

auto io_error(const std::string& what, const std::string& path, int reason = errno) {
  const bool missing = reason == ENOENT || reason == ENOTDIR;
  return fail(missing ? ErrorCode::kNotFound : ErrorCode::kIo,
              what + " " + path + ": " + std::generic_category().message(reason));
}

bool is_directory(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  int get() const { return number_; }
  bool valid() const { return number_ >= 0; }
  int release() { return std::exchange(number_, -1); }

 private:
  int number_;
};

/// Collects 4 MiB in an aligned buffer and writes it past the page cache, so that a checkpoint does
/// not push out what training reads. The tail, small files and file systems without O_DIRECT go
/// through the cache.
class PosixWritableFile final : public WritableFile {
 public:
  PosixWritableFile(Descriptor file, std::string path)
      : file_(std::move(file)), path_(std::move(path)) {}
  ~PosixWritableFile() override { std::free(buffer_); }

  Result<Unit> append(std::span<const std::byte> data) override {
    if (buffer_ == nullptr) {
      buffer_ = static_cast<std::byte*>(std::aligned_alloc(kDirectAlignment, kBufferBytes));
      if (buffer_ == nullptr) return io_error("cannot write", path_, ENOMEM);
    }
    while (!data.empty()) {
      const size_t count = std::min(data.size(), kBufferBytes - filled_);
      std::memcpy(buffer_ + filled_, data.data(), count);
      filled_ += count;
      data = data.subspan(count);
      if (filled_ < kBufferBytes) continue;
      if (may_be_direct_) set_direct(true);
      MOTLEY_TRY_VOID(write_buffer());
    }
    return Unit{};
  }

  Result<Unit> sync() override {
    MOTLEY_TRY_VOID(write_tail());
    if (::fsync(file_.get()) != 0) return io_error("cannot sync", path_);
    return Unit{};
  }

  Result<Unit> close() override {
    MOTLEY_TRY_VOID(write_tail());
    if (::close(file_.release()) != 0) return io_error("cannot close", path_);
    return Unit{};
  }

 private:
  /// A file system that refuses O_DIRECT is no error: the page cache does as well.
  void set_direct(bool wanted) {
    if (direct_ == wanted) return;
    const int flags = ::fcntl(file_.get(), F_GETFL);
    const int changed = wanted ? flags | O_DIRECT : flags & ~O_DIRECT;
    if (flags >= 0 && ::fcntl(file_.get(), F_SETFL, changed) == 0)
      direct_ = wanted;
    else
      may_be_direct_ = false;
  }

  Result<Unit> write_tail() {
    if (filled_ == 0) return Unit{};
    set_direct(false);
    may_be_direct_ = false;  // what follows is not aligned any more
    return write_buffer();
  }

  Result<Unit> write_buffer() {
    for (size_t done = 0; done < filled_;) {
      const ssize_t count = ::write(file_.get(), buffer_ + done, filled_ - done);
      if (count >= 0) {
        done += static_cast<size_t>(count);
        // A short direct write leaves an offset that O_DIRECT would refuse.
        if (done < filled_ && done % kDirectAlignment != 0) set_direct(false);
      } else if (errno == EINVAL && direct_) {
        set_direct(false);  // taken by fcntl, refused by write: some network file systems
        may_be_direct_ = false;
      } else if (errno != EINTR) {
        return io_error("cannot write", path_);
      }
    }
    filled_ = 0;
    return Unit{};
  }

  Descriptor file_;
  std::string path_;
  std::byte* buffer_ = nullptr;
  size_t filled_ = 0;
  bool direct_ = false;
  bool may_be_direct_ = true;
};

class PosixReadableFile final : public ReadableFile {
 public:
  PosixReadableFile(Descriptor file, std::string path, Bytes size)
      : file_(std::move(file)), path_(std::move(path)), size_(size) {}

  Bytes size() const override { return size_; }

  Result<Unit> read_at(int64_t offset, std::span<std::byte> out) const override {
    for (size_t done = 0; done < out.size();) {
      const ssize_t count = ::pread(file_.get(), out.data() + done, out.size() - done,
                                    static_cast<off_t>(offset + static_cast<int64_t>(done)));
      if (count == 0)
        return fail(ErrorCode::kCorrupt,
                    path_ + ": ends before byte " +
                        std::to_string(offset + static_cast<int64_t>(out.size())));
      if (count > 0)
        done += static_cast<size_t>(count);
      else if (errno != EINTR)
        return io_error("cannot read", path_);
    }
    return Unit{};
  }

 private:
  Descriptor file_;
  std::string path_;
  Bytes size_;
};

Result<std::unique_ptr<ReadableFile>> readable(int opened, const std::string& path) {
  Descriptor file(opened);
  if (!file.valid()) return io_error("cannot open", path);
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return io_error("cannot open", path);
  if (!S_ISREG(status.st_mode))
    return fail(ErrorCode::kIo, "cannot open " + path + ": not a regular file");
  return std::make_unique<PosixReadableFile>(std::move(file), path, Bytes(status.st_size));
}

class PosixFileSystem final : public FileSystem {
 public:
  Result<std::unique_ptr<WritableFile>> create(const std::string& path) override {
    Descriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
    if (!file.valid()) return io_error("cannot create", path);
    return std::make_unique<PosixWritableFile>(std::move(file), path);
  }

  Result<std::unique_ptr<ReadableFile>> open(const std::string& path) override {
    // O_NONBLOCK: a FIFO is refused below instead of waited for.
    return readable(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK), path);
  }

  Result<std::unique_ptr<ReadableFile>> open_within(const std::string& directory,
                                                    const std::string& name) override {
    const std::string path = directory + "/" + name;
    if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos)
      return fail(ErrorCode::kCorrupt, path + ": not the name of a file in this directory");
    const Descriptor folder(
        ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!folder.valid()) return io_error("cannot open", directory);
    return readable(
        ::openat(folder.get(), name.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK), path);
  }

  Result<Unit> make_directories(const std::string& path) override {
    if (is_directory(path)) return Unit{};
    const std::string parent = parent_directory(path);
    if (parent != path) MOTLEY_TRY_VOID(make_directories(parent));
    if (::mkdir(path.c_str(), 0755) != 0) {
      const int reason = errno;
      const bool another_was_quicker = reason == EEXIST && is_directory(path);
      if (!another_was_quicker) return io_error("cannot make directory", path, reason);
    }
    return sync_directory(parent);
  }

  Result<Unit> sync_directory(const std::string& path) override {
    const Descriptor directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!directory.valid()) return io_error("cannot open", path);
    if (::fsync(directory.get()) != 0) return io_error("cannot sync", path);
    return Unit{};
  }

  Result<Unit> rename_new(const std::string& from, const std::string& to) override {
    if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0)
      return Unit{};
    if (errno != EINVAL && errno != ENOSYS) return io_error("cannot rename to", to);
    // NFS and others lack the flag. Plain rename replaces no directory that holds anything.
    if (exists(to)) return io_error("cannot rename to", to, EEXIST);
    return rename_over(from, to);
  }

  Result<Unit> rename_over(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) return io_error("cannot rename to", to);
    return Unit{};
  }

  Result<Unit> remove_all(const std::string& path) override {
    std::error_code reason;
    std::filesystem::remove_all(path, reason);
    if (reason) return io_error("cannot remove", path, reason.value());
    return Unit{};
  }

  Result<std::vector<std::string>> list(const std::string& path) override {
    std::error_code reason;
    std::vector<std::string> names;
    for (std::filesystem::directory_iterator entry(path, reason), end; !reason && entry != end;
         entry.increment(reason))
      names.push_back(entry->path().filename().string());
    if (reason.value() == ENOTDIR)
      return fail(ErrorCode::kIo, "cannot list " + path + ": " + reason.message());
    if (reason) return io_error("cannot list", path, reason.value());
    std::sort(names.begin(), names.end());
    return names;
  }

  bool exists(const std::string& path) override {
    struct stat status {};
    return ::lstat(path.c_str(), &status) == 0;
  }

  Result<Bytes> free_space(const std::string& path) override {
    struct statvfs status {};
    if (::statvfs(path.c_str(), &status) != 0) return io_error("cannot read free space of", path);
    int64_t bytes = 0;
    if (__builtin_mul_overflow(status.f_bavail, status.f_frsize, &bytes)) bytes = INT64_MAX;
    return Bytes(bytes);
  }
};

}  // namespace

FileSystem& real_file_system() {
  static PosixFileSystem file_system;
  return file_system;
}

bool is_disk_full(const Error& error) {
  const std::string words[] = {std::generic_category().message(ENOSPC),
                               std::generic_category().message(EDQUOT), "disk is full",
                               "; make room"};
  return error.code == ErrorCode::kIo &&
         std::any_of(std::begin(words), std::end(words), [&](const std::string& each) {
           return error.message.find(each) != std::string::npos;
         });
}

std::string parent_directory(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

Result<std::string> read_text(FileSystem& fs, const std::string& path, Bytes limit) {
  MOTLEY_TRY(const auto file, fs.open(path));
  if (file->size() > limit)
    return fail(ErrorCode::kInvalidSpec,
                path + ": larger than " + format_bytes(limit) + ", the limit for such a file");
  std::string text(static_cast<size_t>(file->size().value()), '\0');
  MOTLEY_TRY_VOID(file->read_at(0, std::as_writable_bytes(std::span(text))));
  return text;
}

Result<Unit> write_text_durably(FileSystem& fs, const std::string& path, std::string_view text) {
  const std::string temporary = path + ".tmp";
  const auto write = [&]() -> Result<Unit> {
    MOTLEY_TRY_VOID(fs.remove_all(temporary));  // left by a crash
    MOTLEY_TRY(const auto file, fs.create(temporary));
    MOTLEY_TRY_VOID(file->append(std::as_bytes(std::span(text))));
    MOTLEY_TRY_VOID(file->sync());
    MOTLEY_TRY_VOID(file->close());
    MOTLEY_TRY_VOID(fs.rename_over(temporary, path));
    return fs.sync_directory(parent_directory(path));
  };
  auto written = write();
  if (!written) (void)fs.remove_all(temporary);
  return written;
}

}  // namespace motley
