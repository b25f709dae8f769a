#include "kernels/cuda_fit.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <vector>

namespace motley {
namespace {

/// The first drivers of a CUDA on Linux (CUDA release notes, "CUDA Toolkit and Minimum Required
/// Driver Versions").
struct FirstDriver {
  int cuda_major;
  const char* driver;
};
constexpr FirstDriver kFirstDrivers[] = {{12, "525"}, {13, "580"}};

constexpr int kOldestCapability = 70;    ///< what kernels are written for
constexpr int kOldestOfPresetCuda = 75;  ///< CUDA 13's oldest
/// Its list in cmake/MotleyCudaToolkit.cmake.
constexpr std::string_view kCodeOfPresetCuda =
    "sm_75 sm_80 sm_86 sm_89 sm_90 sm_100 sm_120 compute_120";

int major_of(std::string_view toolkit) {
  int major = 0;
  std::from_chars(toolkit.data(), toolkit.data() + toolkit.size(), major);
  return major;
}

/// "CUDA 13 (driver 580 or later)"
std::string need_of(int cuda_major) {
  const std::string cuda = "CUDA " + std::to_string(cuda_major);
  for (const FirstDriver& first : kFirstDrivers)
    if (first.cuda_major == cuda_major)
      return cuda + " (driver " + std::string(first.driver) + " or later)";
  return cuda;
}

/// A word of nvcc's `code=`.
struct Code {
  int capability = 0;
  bool ptx = false;
  bool exact = false;  ///< sm_90a: for this card only
};

std::optional<Code> parse_code(std::string_view word) {
  Code code;
  for (const std::string_view prefix : {"sm_", "compute_"}) {
    if (!word.starts_with(prefix)) continue;
    word.remove_prefix(prefix.size());
    code.ptx = prefix == "compute_";
    const auto end = word.data() + word.size();
    const auto [rest, error] = std::from_chars(word.data(), end, code.capability);
    if (error != std::errc()) return std::nullopt;
    code.exact = rest != end && *rest == 'a';
    return code;
  }
  return std::nullopt;
}

/// Without the words of CMake that nothing can be told from, such as "native".
std::vector<Code> parse_codes(std::string_view text) {
  std::vector<Code> codes;
  while (!text.empty()) {
    const size_t space = std::min(text.find(' '), text.size());
    if (const auto code = parse_code(text.substr(0, space))) codes.push_back(*code);
    text.remove_prefix(std::min(space + 1, text.size()));
  }
  return codes;
}

std::string sm(int capability) { return "sm_" + std::to_string(capability); }

/// "sm_75 to sm_120"
std::string range_of(const std::vector<Code>& codes) {
  const auto [low, high] =
      std::minmax_element(codes.begin(), codes.end(),
                          [](const Code& a, const Code& b) { return a.capability < b.capability; });
  return low->capability == high->capability ? sm(low->capability)
                                             : sm(low->capability) + " to " + sm(high->capability);
}

/// "libcublas.so.13" of "libcublas.so.13: cannot open shared object file: No such file …".
std::string missing_library(const std::string& reason) {
  const size_t end = reason.find(": cannot open shared object file");
  const std::string name = reason.substr(0, end);
  const bool is_name = end != std::string::npos && name.starts_with("lib") &&
                       name.find_first_of(" /") == std::string::npos;
  return is_name ? name : std::string();
}

/// As NVIDIA's repositories name it.
std::string package_of(const std::string& library, std::string_view toolkit) {
  const std::string major = std::to_string(major_of(toolkit));
  std::string release(toolkit.substr(0, toolkit.find('.', toolkit.find('.') + 1)));
  std::replace(release.begin(), release.end(), '.', '-');
  if (library.starts_with("libcublas")) return "libcublas-" + release;
  if (library.starts_with("libcudnn")) return "libcudnn9-cuda-" + major;
  if (library.starts_with("libnccl")) return "libnccl2";
  return "cuda-libraries-" + release;
}

}  // namespace

std::string driver_fault(const CudaBuild& build, const CudaDriver& driver) {
  const int needed = major_of(build.toolkit), found = driver.cuda / 1000;
  if (driver.cuda == 0)
    return "no NVIDIA driver is loaded; this build needs one for " + need_of(needed);
  if (found >= needed) return {};
  const std::string remedy = found == 12 && needed == 13
                                 ? "update the driver, or build with preset cuda12"
                                 : "update the driver";
  return "the NVIDIA driver" + (driver.version.empty() ? "" : " " + driver.version) +
         " supports CUDA " + std::to_string(found) + "." + std::to_string(driver.cuda % 1000 / 10) +
         ", this build needs " + need_of(needed) + "; " + remedy;
}

bool has_code_for(std::string_view code, int capability) {
  const std::vector<Code> codes = parse_codes(code);
  if (codes.empty()) return true;  // built for `native` and the like
  return std::any_of(codes.begin(), codes.end(), [&](const Code& one) {
    if (one.exact) return one.capability == capability;
    const bool reachable = one.ptx || one.capability / 10 == capability / 10;
    return reachable && one.capability <= capability;
  });
}

std::string card_fault(const CudaBuild& build, const std::string& name, int capability) {
  if (has_code_for(build.code, capability)) return {};
  const std::string fault = name + " (" + sm(capability) + "): this build has " +
                            range_of(parse_codes(build.code)) + "; ";
  if (capability < kOldestCapability) return fault + "Motley needs " + sm(kOldestCapability);
  if (capability < kOldestOfPresetCuda) return fault + "build with preset cuda12";
  if (has_code_for(kCodeOfPresetCuda, capability)) return fault + "build with preset cuda";
  return fault + "build with -DCMAKE_CUDA_ARCHITECTURES=" + std::to_string(capability);
}

std::string load_fault(const CudaBuild& build, const std::string& reason) {
  const std::string library = missing_library(reason);
  if (library.empty()) return "the CUDA module does not load: " + reason;
  return "the CUDA module does not load: " + library + " is missing; install " +
         package_of(library, build.toolkit) + " (CUDA " + std::string(build.toolkit) +
         "), or add its directory to LD_LIBRARY_PATH";
}

}  // namespace motley
