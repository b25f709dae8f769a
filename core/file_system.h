#pragma once
// The operations durability depends on, as a seam: the real ones, and fault_injecting ones for
// tests (tests/support). Paths are UTF-8. Every call returns kIo with the path and the system's
// reason on failure.

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/ids.h"
#include "core/result.h"

namespace motley {

/// An open file being written from its beginning; what was appended may be buffered until sync() or
/// close(). Destroying it without close() abandons it (file stays, unsynced).
class WritableFile {
 public:
  virtual ~WritableFile() = default;
  virtual Result<Unit> append(std::span<const std::byte> data) = 0;
  /// fsync. A failed sync is final: the caller abandons the file and never retries.
  virtual Result<Unit> sync() = 0;
  virtual Result<Unit> close() = 0;
};

class ReadableFile {
 public:
  virtual ~ReadableFile() = default;
  virtual Bytes size() const = 0;
  /// Fills `out` from `offset`; a short read is kCorrupt. Thread-safe.
  virtual Result<Unit> read_at(int64_t offset, std::span<std::byte> out) const = 0;
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;
  /// O_EXCL, 0644: kIo if it exists.
  virtual Result<std::unique_ptr<WritableFile>> create(const std::string& path) = 0;
  /// A regular file the user or we ourselves named; links are followed. Missing file: kNotFound.
  virtual Result<std::unique_ptr<ReadableFile>> open(const std::string& path) = 0;
  /// A file whose name was read from another file: neither `directory` nor `name` may be a link,
  /// and `name` is one path component.
  virtual Result<std::unique_ptr<ReadableFile>> open_within(const std::string& directory,
                                                            const std::string& name) = 0;
  /// Also its missing parents, durably: the parent of each directory made is synced. kIo when
  /// something else has the name.
  virtual Result<Unit> make_directories(const std::string& path) = 0;
  virtual Result<Unit> sync_directory(const std::string& path) = 0;
  /// For directories: renameat2(RENAME_NOREPLACE), kIo if `to` exists.
  virtual Result<Unit> rename_new(const std::string& from, const std::string& to) = 0;
  virtual Result<Unit> rename_over(const std::string& from, const std::string& to) = 0;
  /// Links are removed, not followed. Nothing there: success.
  virtual Result<Unit> remove_all(const std::string& path) = 0;
  /// Names (not paths), sorted; kNotFound when nothing is there, kIo when it is no directory.
  virtual Result<std::vector<std::string>> list(const std::string& path) = 0;
  virtual bool exists(const std::string& path) = 0;
  virtual Result<Bytes> free_space(const std::string& path) = 0;
};

FileSystem& real_file_system();  ///< thread-safe

/// Whether an error, of whichever process, says that a file system or a quota is full: kIo in the
/// system's words, SQLite's or our own.
bool is_disk_full(const Error& error);

/// The directory a path lies in: "." for a bare name.
std::string parent_directory(const std::string& path);

/// Reads a whole text file of at most `limit` bytes; kNotFound if missing, kInvalidSpec if larger.
Result<std::string> read_text(FileSystem& fs, const std::string& path, Bytes limit);

/// Writes so that a reader sees the old content or the new, also after a power cut:
/// temporary file beside it, sync, rename over, sync of the directory.
Result<Unit> write_text_durably(FileSystem& fs, const std::string& path, std::string_view text);

}  // namespace motley
