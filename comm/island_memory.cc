#include "comm/island_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace motley {
namespace {

struct SlotHeader {
  uint64_t tag = 0;
  int64_t readers = 0;
};
static_assert(sizeof(SlotHeader) <= IslandMemoryShape::kHeader);

/// An open file that is in memory; its name is for the others to find it by.
struct SharedFile {
  int descriptor = -1;
  std::string name = {};
  std::string why = {};  ///< it is not there
};

SharedFile create(size_t bytes) {
  uint64_t unique = 0;
  if (getrandom(&unique, sizeof unique, 0) != sizeof unique) return {.why = std::strerror(errno)};
  SharedFile file;
  file.name = "/motley-" + std::to_string(unique);
  file.descriptor = shm_open(file.name.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
  if (file.descriptor < 0) return {.why = std::strerror(errno)};
  // Room is taken now: a full file system would otherwise end a rank by a signal later.
  if (const int error = posix_fallocate(file.descriptor, 0, static_cast<off_t>(bytes));
      error != 0) {
    close(file.descriptor);
    shm_unlink(file.name.c_str());
    return {.why = std::strerror(error)};
  }
  return file;
}

SharedFile open_existing(const std::string& name) {
  SharedFile file{.descriptor = shm_open(name.c_str(), O_RDWR, 0), .name = name, .why = {}};
  if (file.descriptor < 0) file.why = std::strerror(errno);
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
  std::string name = file.name;
  MOTLEY_TRY_VOID(island.broadcast(name, 0));
  if (island.rank() != 0 && !name.empty()) file = open_existing(name);
  void* const mapped = map(file, bytes);
  int64_t failed = mapped == MAP_FAILED ? 1 : 0;
  MOTLEY_TRY_VOID(island.all_reduce_max(std::span(&failed, 1)));
  if (island.rank() == 0 && !name.empty()) shm_unlink(name.c_str());
  if (failed == 0)
    return std::unique_ptr<IslandMemory>(new IslandMemory(static_cast<std::byte*>(mapped), shape));
  if (mapped != MAP_FAILED) munmap(mapped, bytes);
  return fail(ErrorCode::kUnsupported,
              "ranks of this host share no memory: " +
                  (file.why.empty() ? "another rank could not" : file.why) + " (" +
                  std::to_string(bytes >> 20) + " MiB in /dev/shm)");
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
