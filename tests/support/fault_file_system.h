#pragma once
// A file system in memory that fails on command, and that knows what a disk may hold after a power
// cut: data that was not synced may be lost or torn, and so may each change of a directory that was
// not synced. Links are not modelled.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "core/file_system.h"

namespace motley::testing {

enum class Fault {
  kIoError,     ///< nothing happens, kIo
  kNoSpace,     ///< an append writes half; creating fails; others succeed, as they need no space
  kShortWrite,  ///< an append writes all but one byte and fails; others succeed
  kCrash,       ///< this operation may have happened; every later one fails
};

/// Thread-safe.
class FaultFileSystem final : public FileSystem {
 public:
  FaultFileSystem();
  ~FaultFileSystem() override;

  /// Operations so far: every call on this and its files, but exists().
  int operations() const;
  /// Operation number `operation`, counted from 0, suffers `fault`. One at a time.
  void arm(int operation, Fault fault);
  void disarm();
  /// Called before each operation, outside the lock, with its name ("create", "append", …).
  void on_operation(std::function<void(const std::string&)> hook);
  void set_free_space(Bytes bytes);

  /// What may be found after a power cut at this moment. Seed 0: nothing unsynced survived; 1: all
  /// of it did; others: parts, in any combination.
  std::unique_ptr<FaultFileSystem> after_power_cut(uint64_t seed) const;
  /// The same with everything as it is now.
  std::unique_ptr<FaultFileSystem> copy() const { return after_power_cut(1); }

  /// Content of a file, to read or to spoil; aborts if there is none.
  std::vector<std::byte>& content(const std::string& path);

  Result<std::unique_ptr<WritableFile>> create(const std::string& path) override;
  Result<std::unique_ptr<ReadableFile>> open(const std::string& path) override;
  Result<std::unique_ptr<ReadableFile>> open_within(const std::string& directory,
                                                    const std::string& name) override;
  Result<Unit> make_directories(const std::string& path) override;
  Result<Unit> sync_directory(const std::string& path) override;
  Result<Unit> rename_new(const std::string& from, const std::string& to) override;
  Result<Unit> rename_over(const std::string& from, const std::string& to) override;
  Result<Unit> remove_all(const std::string& path) override;
  Result<std::vector<std::string>> list(const std::string& path) override;
  bool exists(const std::string& path) override;
  Result<Bytes> free_space(const std::string& path) override;

 private:
  struct Node;
  class OpenFile;
  using NodePtr = std::shared_ptr<Node>;

  /// Counts an operation. Returns the fault it suffers, if any; kCrash also for all after it.
  enum class Fate { kFine, kIoError, kNoSpace, kShortWrite, kCrashing, kCrashed };
  Fate begin(const std::string& name);
  NodePtr find(const std::string& path) const;
  Result<NodePtr> parent_of(const std::string& path) const;
  Result<Unit> rename(const std::string& from, const std::string& to);

  mutable std::mutex mutex_;
  NodePtr root_;
  int operations_ = 0;
  int armed_operation_ = -1;
  Fault armed_fault_ = Fault::kIoError;
  bool crashed_ = false;
  Bytes free_space_{INT64_MAX};
  std::function<void(const std::string&)> hook_;
};

}  // namespace motley::testing
