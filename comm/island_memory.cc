#include "comm/island_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>

namespace motley {
namespace {

struct SlotHeader {
  uint64_t tag = 0;
  int64_t readers = 0;
};
static_assert(sizeof(SlotHeader) <= IslandMemoryShape::kHeader);

/// An open file; its path is for the others to find it by.
struct SharedFile {
  int descriptor = -1;
  std::string path = {};
  std::string why = {};  ///< it is not there
};

SharedFile create_in(const std::string& directory, size_t bytes) {
  uint64_t unique = 0;
  if (getrandom(&unique, sizeof unique, 0) != sizeof unique) return {.why = std::strerror(errno)};
  SharedFile file{.path = directory + "/motley-" + std::to_string(unique)};
  file.descriptor =
      open(file.path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (file.descriptor < 0) return {.why = directory + ": " + std::strerror(errno)};
  // Room is taken now: a full file system would otherwise end a rank by a signal later.
  const int error = posix_fallocate(file.descriptor, 0, static_cast<off_t>(bytes));
  if (error == 0) return file;
  close(file.descriptor);
  unlink(file.path.c_str());
  return {.why = directory + ": " + std::strerror(error)};
}

/// In memory, or where the host has none of that kind in a file that it keeps in memory.
SharedFile create(size_t bytes) {
  SharedFile file = create_in("/dev/shm", bytes);
  if (file.descriptor >= 0) return file;
  std::error_code none;
  SharedFile other = create_in(std::filesystem::temp_directory_path(none).string(), bytes);
  if (other.descriptor < 0) other.why = file.why + ", " + other.why;
  return other;
}

SharedFile open_existing(const std::string& path) {
  SharedFile file{.descriptor = open(path.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC), .path = path};
  if (file.descriptor < 0) file.why = path + ": " + std::strerror(errno);
  return file;
}

void* map(const SharedFile& file, size_t bytes) {
  if (file.descriptor < 0) return MAP_FAILED;
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.descriptor, 0);
  close(file.descriptor);
  return mapped;
}

}  // namespace

Result<std::unique_ptr<IslandMemory>> IslandMemory::open(Communicator& island,
                                                         const IslandMemoryShape& shape) {
  const size_t bytes = shape.total_bytes();
  SharedFile file;
  if (island.rank() == 0) file = create(bytes);
  std::string path = file.path;
  MOTLEY_TRY_VOID(island.broadcast(path, 0));
  if (island.rank() != 0 && !path.empty()) file = open_existing(path);
  void* const mapped = map(file, bytes);
  int64_t failed = mapped == MAP_FAILED ? 1 : 0;
  MOTLEY_TRY_VOID(island.all_reduce_max(std::span(&failed, 1)));
  if (island.rank() == 0 && !path.empty()) unlink(path.c_str());
  if (failed == 0)
    return std::unique_ptr<IslandMemory>(new IslandMemory(static_cast<std::byte*>(mapped), shape));
  if (mapped != MAP_FAILED) munmap(mapped, bytes);
  return fail(ErrorCode::kUnsupported,
              "ranks of this host share no memory: " +
                  (file.why.empty() ? "another rank could not" : file.why) + " (" +
                  std::to_string((bytes >> 20) + 1) + " MiB)");
}

IslandMemory::~IslandMemory() { munmap(mapped_, shape_.total_bytes()); }

IslandMemory::Slot IslandMemory::at(int row, int slot) const {
  std::byte* const begin =
      mapped_ + static_cast<size_t>(row * shape_.slots + slot) * shape_.slot_stride();
  auto* const header = reinterpret_cast<SlotHeader*>(begin);
  return {begin + IslandMemoryShape::kHeader, std::atomic_ref(header->tag),
          std::atomic_ref(header->readers)};
}

int IslandMemory::find(int row, uint64_t tag) const {
  for (int slot = 0; slot < shape_.slots; ++slot)
    if (at(row, slot).tag.load(std::memory_order_acquire) == tag) return slot;
  return -1;
}

}  // namespace motley
