#pragma once
// Libraries of a device's vendor, found at run time because no machine needs to have them: opened
// once for the life of the process, their functions looked up by name.

#include <dlfcn.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "core/result.h"

namespace motley {

/// "2.28.9" of 22809
inline std::string dotted_version(int64_t version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

/// Looks functions up and remembers the first that is missing.
class VendorSymbols {
 public:
  explicit VendorSymbols(void* library) : library_(library) {}

  template <class F>
  VendorSymbols& find(F*& function, const char* name) {
    function = reinterpret_cast<F*>(dlsym(library_, name));
    if (function == nullptr && missing_.empty()) missing_ = name;
    return *this;
  }
  const std::string& missing() const { return missing_; }

 private:
  void* library_;
  std::string missing_;
};

/// What kUnsupported says of a library.
struct VendorNeed {
  std::string product;        ///< "NCCL"
  int64_t first_version = 0;  ///< that serves, as the library counts
};

/// A Library is a struct of functions with find_all(VendorSymbols&) and ask_version(), 0 where it
/// does not tell. kUnsupported with one line where there is no such library, it is older than
/// needed, or lacks a function. Any thread.
template <class Library>
Result<Library> load_vendor_library(const std::string& name, const VendorNeed& need) {
  void* opened = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr)
    return fail(ErrorCode::kUnsupported, "no " + need.product + ": " + dlerror());
  Library library;
  VendorSymbols symbols(opened);
  library.find_all(symbols);
  const int64_t version = library.ask_version();
  if (version == 0)
    return fail(ErrorCode::kUnsupported,
                name + " is no " + need.product + ": it does not tell its version");
  const std::string what = need.product + " " + dotted_version(version);
  if (version < need.first_version)
    return fail(
        ErrorCode::kUnsupported,
        what + " is too old: " + dotted_version(need.first_version) + " is the first that serves");
  if (!symbols.missing().empty())
    return fail(ErrorCode::kUnsupported, what + " lacks the function " + symbols.missing());
  return library;
}

/// The same, once for each name; an error is kept as well.
template <class Library>
Result<const Library*> open_vendor_library(const std::string& name, const VendorNeed& need) {
  static std::mutex mutex;
  static std::map<std::string, Result<Library>> opened;  // its elements keep their places
  const std::lock_guard lock(mutex);
  auto found = opened.find(name);
  if (found == opened.end())
    found = opened.emplace(name, load_vendor_library<Library>(name, need)).first;
  if (!found->second) return fail(found->second.error());
  return &*found->second;
}

}  // namespace motley
