#include "tests/support/fault_file_system.h"

#include <algorithm>
#include <filesystem>
#include <random>

#include "core/check.h"

namespace motley::testing {
namespace {

using Random = std::mt19937_64;

auto io_error(const std::string& what, const std::string& path) {
  return fail(ErrorCode::kIo, what + " " + path + ": injected fault");
}

auto missing(const std::string& path) {
  return fail(ErrorCode::kNotFound, path + ": no such file or directory");
}

std::string name_of_path(const std::string& path) {
  return std::filesystem::path(path).filename().string();
}

/// What the unsynced end of a file may become.
void tear(std::vector<std::byte>& data, size_t synced, uint64_t seed, Random& random) {
  if (seed == 1 || synced == data.size()) return;
  const size_t unsynced = data.size() - synced;
  const uint64_t kind = seed == 0 ? 0 : random() % 4;
  if (kind == 0) data.resize(synced);
  if (kind == 1) data.resize(synced + random() % unsynced);
  if (kind == 2) {  // its length became durable, some of its content did not
    const size_t begin = synced + random() % unsynced;
    std::fill(data.begin() + static_cast<std::ptrdiff_t>(begin), data.end(), std::byte{0});
  }
}

}  // namespace

struct FaultFileSystem::Node {
  bool is_directory = false;

  // Of a file:
  std::vector<std::byte> data;
  size_t synced = 0;

  // Of a directory: what it holds, what it surely holds on disk, and the changes between these.
  using Entries = std::map<std::string, NodePtr>;
  struct Change {
    std::string removed;  ///< empty: nothing
    std::string added;
    NodePtr node;  ///< under `added`
  };
  Entries entries;
  Entries durable;
  std::vector<Change> pending;

  void add(const std::string& name, NodePtr node) {
    entries[name] = node;
    pending.push_back({"", name, std::move(node)});
  }
  void remove(const std::string& name) {
    entries.erase(name);
    pending.push_back({name, "", nullptr});
  }
  /// Atomic: both happen or neither.
  void rename(const std::string& from, const std::string& to) {
    NodePtr node = entries.at(from);
    entries.erase(from);
    entries[to] = node;
    pending.push_back({from, to, std::move(node)});
  }
  void sync() {
    durable = entries;
    pending.clear();
  }

  Entries after_power_cut(uint64_t seed, Random& random) const {
    if (seed == 1) return entries;
    Entries left = durable;
    if (seed == 0) return left;
    for (const Change& change : pending) {
      if (random() % 2 == 0) continue;
      if (!change.removed.empty() && left.erase(change.removed) == 0) continue;
      if (!change.added.empty()) left[change.added] = change.node;
    }
    return left;
  }

  NodePtr copy_after_power_cut(uint64_t seed, Random& random) const {
    auto copy = std::make_shared<Node>();
    copy->is_directory = is_directory;
    copy->data = data;
    tear(copy->data, synced, seed, random);
    copy->synced = copy->data.size();
    for (const auto& [name, node] : after_power_cut(seed, random))
      copy->entries[name] = node->copy_after_power_cut(seed, random);
    copy->durable = copy->entries;
    return copy;
  }
};

class FaultFileSystem::OpenFile final : public WritableFile, public ReadableFile {
 public:
  OpenFile(FaultFileSystem& fs, NodePtr node, std::string path)
      : fs_(fs), node_(std::move(node)), path_(std::move(path)) {}

  Result<Unit> append(std::span<const std::byte> bytes) override {
    const Fate fate = fs_.begin("append");
    const std::lock_guard lock(fs_.mutex_);
    size_t count = bytes.size();
    if (fate == Fate::kIoError || fate == Fate::kCrashed) count = 0;
    if (fate == Fate::kNoSpace) count /= 2;
    if (fate == Fate::kShortWrite && count > 0) --count;
    node_->data.insert(node_->data.end(), bytes.begin(),
                       bytes.begin() + static_cast<std::ptrdiff_t>(count));
    if (fate == Fate::kFine) return Unit{};
    return io_error("cannot write", path_);
  }

  Result<Unit> sync() override {
    const Fate fate = fs_.begin("sync");
    const std::lock_guard lock(fs_.mutex_);
    if (fate == Fate::kIoError || fate == Fate::kCrashing || fate == Fate::kCrashed)
      return io_error("cannot sync", path_);
    node_->synced = node_->data.size();
    return Unit{};
  }

  Result<Unit> close() override {
    const Fate fate = fs_.begin("close");
    if (fate == Fate::kIoError || fate == Fate::kCrashing || fate == Fate::kCrashed)
      return io_error("cannot close", path_);
    return Unit{};
  }

  Bytes size() const override {
    const std::lock_guard lock(fs_.mutex_);
    return Bytes(static_cast<int64_t>(node_->data.size()));
  }

  Result<Unit> read_at(int64_t offset, std::span<std::byte> out) const override {
    if (fs_.begin("read") != Fate::kFine) return io_error("cannot read", path_);
    const std::lock_guard lock(fs_.mutex_);
    const size_t size = node_->data.size();
    if (static_cast<size_t>(offset) > size || out.size() > size - static_cast<size_t>(offset))
      return fail(ErrorCode::kCorrupt, path_ + ": too short");
    std::copy_n(node_->data.begin() + offset, out.size(), out.begin());
    return Unit{};
  }

 private:
  FaultFileSystem& fs_;
  NodePtr node_;
  std::string path_;
};

FaultFileSystem::FaultFileSystem() : root_(std::make_shared<Node>()) { root_->is_directory = true; }
FaultFileSystem::~FaultFileSystem() = default;

int FaultFileSystem::operations() const {
  const std::lock_guard lock(mutex_);
  return operations_;
}

void FaultFileSystem::arm(int operation, Fault fault) {
  const std::lock_guard lock(mutex_);
  armed_operation_ = operation;
  armed_fault_ = fault;
}

void FaultFileSystem::disarm() { arm(-1, Fault::kIoError); }

void FaultFileSystem::on_operation(std::function<void(const std::string&)> hook) {
  const std::lock_guard lock(mutex_);
  hook_ = std::move(hook);
}

void FaultFileSystem::set_free_space(Bytes bytes) {
  const std::lock_guard lock(mutex_);
  free_space_ = bytes;
}

std::unique_ptr<FaultFileSystem> FaultFileSystem::after_power_cut(uint64_t seed) const {
  const std::lock_guard lock(mutex_);
  auto disk = std::make_unique<FaultFileSystem>();
  Random random(seed);
  disk->root_ = root_->copy_after_power_cut(seed, random);
  return disk;
}

std::vector<std::byte>& FaultFileSystem::content(const std::string& path) {
  const std::lock_guard lock(mutex_);
  const NodePtr node = find(path);
  MOTLEY_CHECK(node && !node->is_directory, path);
  return node->data;
}

FaultFileSystem::Fate FaultFileSystem::begin(const std::string& name) {
  std::function<void(const std::string&)> hook;
  {
    const std::lock_guard lock(mutex_);
    hook = hook_;
  }
  if (hook) hook(name);
  const std::lock_guard lock(mutex_);
  if (crashed_) return Fate::kCrashed;
  if (operations_++ != armed_operation_) return Fate::kFine;
  switch (armed_fault_) {
    case Fault::kIoError:
      return Fate::kIoError;
    case Fault::kNoSpace:
      return name == "append" || name == "create" || name == "make_directories" ? Fate::kNoSpace
                                                                                : Fate::kFine;
    case Fault::kShortWrite:
      return name == "append" ? Fate::kShortWrite : Fate::kFine;
    case Fault::kCrash:
      crashed_ = true;
      return Fate::kCrashing;
  }
  return Fate::kFine;
}

FaultFileSystem::NodePtr FaultFileSystem::find(const std::string& path) const {
  NodePtr node = root_;
  for (const auto& part : std::filesystem::path(path)) {
    if (part == "/" || part == "." || part.empty()) continue;
    if (!node->is_directory) return nullptr;
    const auto entry = node->entries.find(part.string());
    if (entry == node->entries.end()) return nullptr;
    node = entry->second;
  }
  return node;
}

Result<FaultFileSystem::NodePtr> FaultFileSystem::parent_of(const std::string& path) const {
  NodePtr parent = find(parent_directory(path));
  if (!parent || !parent->is_directory) return missing(parent_directory(path));
  return parent;
}

Result<std::unique_ptr<WritableFile>> FaultFileSystem::create(const std::string& path) {
  const Fate fate = begin("create");
  const std::lock_guard lock(mutex_);
  if (fate != Fate::kFine && fate != Fate::kCrashing) return io_error("cannot create", path);
  MOTLEY_TRY(const NodePtr parent, parent_of(path));
  const std::string name = name_of_path(path);
  if (parent->entries.count(name)) return fail(ErrorCode::kIo, path + ": exists");
  auto node = std::make_shared<Node>();
  parent->add(name, node);
  if (fate == Fate::kCrashing) return io_error("cannot create", path);
  return std::make_unique<OpenFile>(*this, std::move(node), path);
}

Result<std::unique_ptr<ReadableFile>> FaultFileSystem::open(const std::string& path) {
  const Fate fate = begin("open");
  const std::lock_guard lock(mutex_);
  if (fate != Fate::kFine) return io_error("cannot open", path);
  NodePtr node = find(path);
  if (!node) return missing(path);
  if (node->is_directory) return fail(ErrorCode::kIo, path + ": not a regular file");
  return std::make_unique<OpenFile>(*this, std::move(node), path);
}

Result<std::unique_ptr<ReadableFile>> FaultFileSystem::open_within(const std::string& directory,
                                                                   const std::string& name) {
  if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos)
    return fail(ErrorCode::kCorrupt, directory + "/" + name + ": not a name");
  return open(directory + "/" + name);
}

Result<Unit> FaultFileSystem::make_directories(const std::string& path) {
  const Fate fate = begin("make_directories");
  const std::lock_guard lock(mutex_);
  if (fate != Fate::kFine && fate != Fate::kCrashing) return io_error("cannot make", path);
  NodePtr node = root_;
  for (const auto& part : std::filesystem::path(path)) {
    if (part == "/" || part == "." || part.empty()) continue;
    const auto entry = node->entries.find(part.string());
    if (entry != node->entries.end()) {
      node = entry->second;
      if (!node->is_directory) return fail(ErrorCode::kIo, path + ": not a directory");
      continue;
    }
    auto made = std::make_shared<Node>();
    made->is_directory = true;
    node->add(part.string(), made);
    if (fate == Fate::kFine) node->sync();
    node = made;
  }
  if (fate == Fate::kCrashing) return io_error("cannot make", path);
  return Unit{};
}

Result<Unit> FaultFileSystem::sync_directory(const std::string& path) {
  const Fate fate = begin("sync_directory");
  const std::lock_guard lock(mutex_);
  if (fate != Fate::kFine) return io_error("cannot sync", path);
  const NodePtr node = find(path);
  if (!node || !node->is_directory) return missing(path);
  node->sync();
  return Unit{};
}

Result<Unit> FaultFileSystem::rename_new(const std::string& from, const std::string& to) {
  if (exists(to)) return fail(ErrorCode::kIo, to + ": exists");
  return rename(from, to);
}

Result<Unit> FaultFileSystem::rename_over(const std::string& from, const std::string& to) {
  return rename(from, to);
}

Result<Unit> FaultFileSystem::rename(const std::string& from, const std::string& to) {
  MOTLEY_CHECK_EQ(parent_directory(from), parent_directory(to));  // all that is modelled
  const Fate fate = begin("rename");
  const std::lock_guard lock(mutex_);
  if (fate != Fate::kFine && fate != Fate::kCrashing) return io_error("cannot rename", from);
  MOTLEY_TRY(const NodePtr parent, parent_of(from));
  if (!parent->entries.count(name_of_path(from))) return missing(from);
  parent->rename(name_of_path(from), name_of_path(to));
  if (fate == Fate::kCrashing) return io_error("cannot rename", from);
  return Unit{};
}

Result<Unit> FaultFileSystem::remove_all(const std::string& path) {
  const Fate fate = begin("remove_all");
  const std::lock_guard lock(mutex_);
  if (fate != Fate::kFine && fate != Fate::kCrashing) return io_error("cannot remove", path);
  const NodePtr node = find(path);
  if (!node) return Unit{};
  const std::function<void(Node&)> empty = [&](Node& directory) {
    const Node::Entries entries = directory.entries;
    for (const auto& [name, child] : entries) {
      empty(*child);
      directory.remove(name);
    }
  };
  empty(*node);
  MOTLEY_TRY(const NodePtr parent, parent_of(path));
  parent->remove(name_of_path(path));
  if (fate == Fate::kCrashing) return io_error("cannot remove", path);
  return Unit{};
}

Result<std::vector<std::string>> FaultFileSystem::list(const std::string& path) {
  const Fate fate = begin("list");
  const std::lock_guard lock(mutex_);
  if (fate != Fate::kFine) return io_error("cannot list", path);
  const NodePtr node = find(path);
  if (!node) return missing(path);
  if (!node->is_directory) return fail(ErrorCode::kIo, path + ": not a directory");
  std::vector<std::string> names;
  for (const auto& [name, entry] : node->entries) names.push_back(name);
  return names;
}

bool FaultFileSystem::exists(const std::string& path) {
  const std::lock_guard lock(mutex_);
  return find(path) != nullptr;
}

Result<Bytes> FaultFileSystem::free_space(const std::string& path) {
  const Fate fate = begin("free_space");
  const std::lock_guard lock(mutex_);
  if (fate != Fate::kFine) return io_error("cannot read free space of", path);
  if (!find(path)) return missing(path);
  return free_space_;
}

}  // namespace motley::testing
