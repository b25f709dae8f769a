#include "core/user_directories.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "core/utf8.h"

namespace motley {
namespace {

Result<Unit> make(FileSystem& fs, const std::string& path, const std::string& variable) {
  const auto refused = [&](const std::string& why) {
    return fail(ErrorCode::kNotPermitted,
                why + "; set " + variable + " to a directory that you may write");
  };
  if (!is_utf8(path)) return refused("the path " + path + " is not UTF-8");
  const auto made = fs.make_directories(path);
  if (!made) return refused(made.error().message);
  if (::access(path.c_str(), W_OK | X_OK) != 0)
    return refused("cannot write in " + path + ": " + std::strerror(errno));
  return Unit{};
}

}  // namespace

Result<Unit> make_state_directory(FileSystem& fs, const std::string& path) {
  return make(fs, path, "XDG_STATE_HOME");
}

Result<Unit> make_cache_directory(FileSystem& fs, const std::string& path) {
  return make(fs, path, "XDG_CACHE_HOME");
}

}  // namespace motley
