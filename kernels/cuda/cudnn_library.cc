#include "kernels/cuda/cudnn_library.h"

#include <dlfcn.h>

#include <array>
#include <map>
#include <mutex>

namespace motley::cudnn {
namespace {

constexpr size_t kFirstVersion = 91000;

std::string dotted(size_t version) {
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

std::string find_all(void* library, Library* cudnn) {
  Symbols symbols(library);
  symbols.find(cudnn->get_version, "cudnnGetVersion")
      .find(cudnn->error_string, "cudnnGetErrorString")
      .find(cudnn->last_error, "cudnnGetLastErrorString")
      .find(cudnn->create, "cudnnCreate")
      .find(cudnn->destroy, "cudnnDestroy")
      .find(cudnn->set_stream, "cudnnSetStream")
      .find(cudnn->create_descriptor, "cudnnBackendCreateDescriptor")
      .find(cudnn->destroy_descriptor, "cudnnBackendDestroyDescriptor")
      .find(cudnn->finalize, "cudnnBackendFinalize")
      .find(cudnn->set_attribute, "cudnnBackendSetAttribute")
      .find(cudnn->get_attribute, "cudnnBackendGetAttribute")
      .find(cudnn->execute, "cudnnBackendExecute");
  return symbols.missing();
}

Result<Library> load(const std::string& name) {
  void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);  // for the life of the process
  if (library == nullptr)
    return fail(ErrorCode::kUnsupported, std::string("no cuDNN: ") + dlerror());
  Library cudnn;
  const std::string missing = find_all(library, &cudnn);
  if (cudnn.get_version == nullptr)
    return fail(ErrorCode::kUnsupported, name + " is no cuDNN: it does not tell its version");
  cudnn.version = cudnn.get_version();
  if (cudnn.version < kFirstVersion)
    return fail(ErrorCode::kUnsupported, "cuDNN " + cudnn.version_text() + " is too old: " +
                                             dotted(kFirstVersion) + " is the first that serves");
  if (!missing.empty())
    return fail(ErrorCode::kUnsupported,
                "cuDNN " + cudnn.version_text() + " lacks the function " + missing);
  return cudnn;
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

std::string Library::reason(Status status) const {
  std::array<char, 1024> last{};
  last_error(last.data(), last.size());
  std::string text = error_string(status);
  if (last[0] != '\0') text += std::string(" (") + last.data() + ")";
  return text;
}

}  // namespace motley::cudnn
