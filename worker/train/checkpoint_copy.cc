#include "worker/train/checkpoint_copy.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/hash.h"
#include "worker/checkpoint/store.h"
#include "worker/checkpoint/transfer.h"

namespace motley {
namespace {

/// Before each chunk on its way; an empty name ends the copy.
struct ChunkHeader {
  std::array<char, 56> file{};
  int64_t bytes = 0;
};

std::span<const std::byte> bytes_of(const ChunkHeader& header) {
  return std::as_bytes(std::span(&header, 1));
}

/// What `checkpoint` contains here, as a hash of its manifest; an error when it is not here, or not
/// whole.
Result<std::string> content_hash(FileSystem& fs, const std::string& directory,
                                 const std::string& checkpoint) {
  MOTLEY_TRY(const auto found, open_checkpoint(fs, directory, checkpoint));
  return xxh3_128_hex(to_text(found.manifest));
}

Result<Unit> send_copy(Communicator& world, FileSystem& fs, const std::string& directory,
                       const std::string& checkpoint, int to) {
  const auto exported = export_checkpoint(
      fs, directory, checkpoint, kTransferChunkBytes,
      [&](std::string_view file, std::span<const std::byte> chunk) -> Result<Unit> {
        ChunkHeader header;
        if (file.size() >= header.file.size()) return fail(ErrorCode::kCorrupt, "file name");
        std::copy(file.begin(), file.end(), header.file.begin());
        header.bytes = static_cast<int64_t>(chunk.size());
        MOTLEY_TRY_VOID(world.send(bytes_of(header), to));
        return world.send(chunk, to);
      });
  // The end is sent in any case; after a failed export the importer finds its copy incomplete.
  MOTLEY_TRY_VOID(world.send(bytes_of(ChunkHeader{}), to));
  return exported;
}

/// Receives everything that is sent, also when it cannot be written here.
Result<Unit> receive_copy(Communicator& world, FileSystem& fs, const std::string& directory,
                          const std::string& checkpoint) {
  auto import = CheckpointImport::begin(fs, directory, checkpoint);
  Result<Unit> written = Unit{};
  if (!import) written = fail(import.error());
  std::vector<std::byte> chunk;
  while (true) {
    ChunkHeader header;
    MOTLEY_TRY_VOID(world.receive(std::as_writable_bytes(std::span(&header, 1)), 0));
    if (header.file[0] == '\0') break;
    if (header.bytes < 0 || header.bytes > static_cast<int64_t>(kTransferChunkBytes))
      return fail(ErrorCode::kInternal, "a chunk of a checkpoint is larger than agreed");
    chunk.resize(static_cast<size_t>(header.bytes));
    MOTLEY_TRY_VOID(world.receive(chunk, 0));
    if (written) written = (*import)->append(header.file.data(), chunk);
  }
  if (!written) return written;
  return (*import)->finish();
}

}  // namespace

Result<Unit> copy_checkpoint(Communicator& world, const Storage& storage, FileSystem& fs,
                             const std::string& directory, const std::string& checkpoint) {
  const std::vector<int> leaders = storage.other_leaders();
  if (leaders.empty()) return Unit{};
  Result<std::string> mine = "";
  if (storage.leads(world.rank())) mine = content_hash(fs, directory, checkpoint);
  MOTLEY_TRY(const std::vector<std::string> contents, world.all_gather(mine.value_or("")));
  if (!mine && world.rank() == 0) return fail(mine.error());
  if (contents[0].empty())
    return fail(ErrorCode::kPeerLost, "checkpoint " + checkpoint + " cannot be read by rank 0");
  Result<Unit> copied = Unit{};
  for (const int leader : leaders) {
    if (contents[static_cast<size_t>(leader)] == contents[0]) continue;
    if (world.rank() == 0) {
      const auto sent = send_copy(world, fs, directory, checkpoint, leader);
      if (!sent) copied = sent;
    } else if (world.rank() == leader) {
      copied = receive_copy(world, fs, directory, checkpoint);
    }
  }
  return copied;
}

}  // namespace motley
