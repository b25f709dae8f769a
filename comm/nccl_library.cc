#include "comm/nccl_library.h"

#include <dlfcn.h>

#include <map>
#include <mutex>

namespace motley::nccl {
namespace {

constexpr int kFirstVersion = 21400;  // 2.14: communicators that do not block

std::string dotted(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

/// Looks functions up until one is missing.
class Symbols {
 public:
  explicit Symbols(void* library) : library_(library) {}

  template <class F>
  Symbols& find(F*& function, const char* name) {
    function = reinterpret_cast<F*>(dlsym(library_, name));
    if (function == nullptr && missing_.empty()) missing_ = name;
    return *this;
  }
  const std::string& missing() const { return missing_; }

 private:
  void* library_;
  std::string missing_;
};

std::string find_all(void* library, Library* nccl) {
  Symbols symbols(library);
  symbols.find(nccl->get_version, "ncclGetVersion")
      .find(nccl->get_unique_id, "ncclGetUniqueId")
      .find(nccl->init, "ncclCommInitRankConfig")
      .find(nccl->finalize, "ncclCommFinalize")
      .find(nccl->destroy, "ncclCommDestroy")
      .find(nccl->abort, "ncclCommAbort")
      .find(nccl->get_async_error, "ncclCommGetAsyncError")
      .find(nccl->error_string, "ncclGetErrorString")
      .find(nccl->last_error, "ncclGetLastError")
      .find(nccl->create_weighted_sum, "ncclRedOpCreatePreMulSum")
      .find(nccl->destroy_op, "ncclRedOpDestroy")
      .find(nccl->all_reduce, "ncclAllReduce")
      .find(nccl->reduce_scatter, "ncclReduceScatter")
      .find(nccl->all_gather, "ncclAllGather")
      .find(nccl->broadcast, "ncclBroadcast")
      .find(nccl->send, "ncclSend")
      .find(nccl->receive, "ncclRecv")
      .find(nccl->group_start, "ncclGroupStart")
      .find(nccl->group_end, "ncclGroupEnd");
  return symbols.missing();
}

Result<Library> load(const std::string& name) {
  void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);  // for the life of the process
  if (library == nullptr)
    return fail(ErrorCode::kUnsupported, std::string("no NCCL: ") + dlerror());
  Library nccl;
  const std::string missing = find_all(library, &nccl);
  if (nccl.get_version == nullptr || nccl.get_version(&nccl.version) != kSuccess)
    return fail(ErrorCode::kUnsupported, name + " is no NCCL: it does not tell its version");
  if (nccl.version < kFirstVersion)
    return fail(ErrorCode::kUnsupported, "NCCL " + nccl.version_text() + " is too old: " +
                                             dotted(kFirstVersion) + " is the first that serves");
  if (!missing.empty())
    return fail(ErrorCode::kUnsupported,
                "NCCL " + nccl.version_text() + " lacks the function " + missing);
  return nccl;
}

}  // namespace

Result<const Library*> Library::open(const char* name) {
  static std::mutex mutex;
  static std::map<std::string, Result<Library>> opened;  // its elements keep their places
  const std::lock_guard lock(mutex);
  auto found = opened.find(name);
  if (found == opened.end()) found = opened.emplace(name, load(name)).first;
  if (!found->second) return fail(found->second.error());
  return &*found->second;
}

std::string Library::version_text() const { return dotted(version); }

std::string Library::reason(Status status, Comm comm) const {
  std::string text = error_string(status);
  const char* last = comm == nullptr ? nullptr : last_error(comm);
  if (last != nullptr && *last != '\0') text += std::string(" (") + last + ")";
  return text;
}

}  // namespace motley::nccl
