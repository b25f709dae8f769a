// Also part of the CUDA module, whose devices are opened with shares.
#include "kernels/multiprocessor_share.h"

#include <algorithm>

namespace motley {
namespace {

std::string of_gpu(const MultiprocessorGroups& gpu) {
  return gpu.gpu + " has " + std::to_string(gpu.multiprocessors) + ", dealt out in " +
         std::to_string(gpu.groups) + " groups of " + std::to_string(gpu.group_size);
}

/// "24 or 32".
std::string nearest_shares(int wanted, int left, int group_size) {
  const int below = std::min(wanted, left) / group_size * group_size;
  const int above = below + group_size;
  if (below == 0) return std::to_string(above);
  return std::to_string(below) + (above <= left ? " or " + std::to_string(above) : "");
}

}  // namespace

Result<GroupRange> groups_of(const ShareSpec& share, const MultiprocessorGroups& gpu) {
  const int left = gpu.groups * gpu.group_size - share.first;
  const std::string wanted = "a share of " + std::to_string(share.sms) + " multiprocessors";
  if (share.first % gpu.group_size != 0 || left < gpu.group_size)
    return fail(ErrorCode::kInvalidSpec, wanted + " finds none left: the shares before it have " +
                                             std::to_string(share.first) + ", and " + of_gpu(gpu));
  if (share.sms % gpu.group_size != 0 || share.sms > left)
    return fail(ErrorCode::kInvalidSpec,
                wanted + " cannot be: " + of_gpu(gpu) +
                    (share.first > 0 ? ", " + std::to_string(left) + " left" : "") +
                    "; nearest: " + nearest_shares(share.sms, left, gpu.group_size));
  return GroupRange{share.first / gpu.group_size, share.sms / gpu.group_size};
}

}  // namespace motley
