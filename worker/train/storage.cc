#include "worker/train/storage.h"

#include <random>

#include "worker/train/agreement.h"

namespace motley {
namespace {

std::string random_token() {
  std::random_device source;
  return std::to_string(source()) + std::to_string(source());
}

std::string probe_path(const std::string& directory, const std::string& token, int rank) {
  return directory + "/.probe-" + token + "-" + std::to_string(rank);
}

Result<Unit> write_probe(FileSystem& fs, const std::string& directory, const std::string& path) {
  MOTLEY_TRY_VOID(fs.make_directories(directory));
  MOTLEY_TRY(const auto file, fs.create(path));
  return file->close();
}

}  // namespace

std::vector<int> Storage::other_leaders() const {
  std::vector<int> others;
  for (int rank = 1; rank < static_cast<int>(leaders.size()); ++rank)
    if (leads(rank)) others.push_back(rank);
  return others;
}

Result<Storage> probe_storage(Communicator& world, FileSystem& fs, const std::string& directory) {
  std::string token = world.rank() == 0 ? random_token() : "";
  MOTLEY_TRY_VOID(world.broadcast(token, 0));
  const std::string mine = probe_path(directory, token, world.rank());
  MOTLEY_TRY_VOID(all_succeeded(world, write_probe(fs, directory, mine)));
  int leader = world.rank();
  for (int rank = world.rank() - 1; rank >= 0; --rank)
    if (fs.exists(probe_path(directory, token, rank))) leader = rank;
  MOTLEY_TRY(const std::vector<std::string> leaders, world.all_gather(std::to_string(leader)));
  MOTLEY_TRY_VOID(fs.remove_all(mine));
  Storage storage;
  for (const std::string& text : leaders) storage.leaders.push_back(std::stoi(text));
  return storage;
}

}  // namespace motley
