#include "kernels/cuda/cudnn_library.h"

#include <array>

namespace motley::cudnn {

void Library::find_all(VendorSymbols& symbols) {
  symbols.find(get_version, "cudnnGetVersion")
      .find(error_string, "cudnnGetErrorString")
      .find(last_error, "cudnnGetLastErrorString")
      .find(create, "cudnnCreate")
      .find(destroy, "cudnnDestroy")
      .find(set_stream, "cudnnSetStream")
      .find(create_descriptor, "cudnnBackendCreateDescriptor")
      .find(destroy_descriptor, "cudnnBackendDestroyDescriptor")
      .find(finalize, "cudnnBackendFinalize")
      .find(set_attribute, "cudnnBackendSetAttribute")
      .find(get_attribute, "cudnnBackendGetAttribute")
      .find(execute, "cudnnBackendExecute");
}

int64_t Library::ask_version() {
  version = get_version != nullptr ? get_version() : 0;
  return static_cast<int64_t>(version);
}

Result<const Library*> Library::open(const char* name) {
  constexpr int64_t kFirstVersion = 91000;
  return open_vendor_library<Library>(name, {"cuDNN", kFirstVersion});
}

std::string Library::version_text() const { return dotted_version(static_cast<int64_t>(version)); }

std::string Library::reason(Status status) const {
  std::array<char, 1024> last{};
  last_error(last.data(), last.size());
  std::string text = error_string(status);
  if (last[0] != '\0') text += std::string(" (") + last.data() + ")";
  return text;
}

}  // namespace motley::cudnn
