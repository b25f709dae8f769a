#include "kernels/pcie.h"

#include <array>
#include <cmath>
#include <cstdio>

namespace motley {
namespace {

/// Of one lane: transfers a second, and bits of data in the bits that carry them (PCI Express base
/// specification: 8b/10b, from generation 3 on 128b/130b, in generation 6 flits of 256 bytes with
/// 14 of error correction).
struct LaneRate {
  double transfers;
  double share;
};
constexpr std::array<LaneRate, 6> kLanes = {{{2.5e9, 8.0 / 10},
                                             {5e9, 8.0 / 10},
                                             {8e9, 128.0 / 130},
                                             {16e9, 128.0 / 130},
                                             {32e9, 128.0 / 130},
                                             {64e9, 242.0 / 256}}};

/// Large copies of one device that has the link to itself reach more than this of it.
constexpr double kUsualShare = 0.7;

std::string gigabytes(double bytes_per_second) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f GB/s", bytes_per_second / 1e9);
  return text;
}

bool less(const std::optional<int>& now, const std::optional<int>& most) {
  return now && most && *now < *most;
}

/// Why the link is narrower or slower than card and slot: empty where it is neither.
std::string below_most(const GpuStatus& status) {
  std::string why;
  if (less(status.pcie_width, status.most_pcie_width))
    why = "x" + std::to_string(*status.pcie_width) + " of x" +
          std::to_string(*status.most_pcie_width) + ": an external dock or a slot with fewer lanes";
  if (less(status.pcie_generation, status.most_pcie_generation))
    why += (why.empty() ? "" : "; ") + std::string("generation ") +
           std::to_string(*status.pcie_generation) + " of " +
           std::to_string(*status.most_pcie_generation) +
           ": a riser, a cable or a firmware setting";
  return why;
}

}  // namespace

std::optional<double> pcie_bytes_per_second(int generation, int lanes) {
  if (generation < 1 || generation > static_cast<int>(kLanes.size()) || lanes < 1)
    return std::nullopt;
  const LaneRate& lane = kLanes[static_cast<size_t>(generation - 1)];
  return lane.transfers * lane.share / 8 * lanes;
}

std::string pcie_text(const GpuStatus& status) {
  std::string text;
  if (status.pcie_width) text = "x" + std::to_string(*status.pcie_width);
  if (status.pcie_generation)
    text += (text.empty() ? "" : " ") + std::string("generation ") +
            std::to_string(*status.pcie_generation);
  return text;
}

std::string pcie_verdict(const GpuStatus& status, double bytes_per_second) {
  const std::string why = below_most(status);
  const auto limit = status.pcie_width && status.pcie_generation
                         ? pcie_bytes_per_second(*status.pcie_generation, *status.pcie_width)
                         : std::nullopt;
  if (!limit) return why.empty() ? "the driver does not tell what its PCIe link is" : why;
  const double share = bytes_per_second / *limit;
  std::string text = gigabytes(bytes_per_second) + ", " + std::to_string(std::lround(100 * share)) +
                     " % of the " + gigabytes(*limit) + " of " + pcie_text(status);
  if (!why.empty()) text += " (" + why + ")";
  if (share < kUsualShare)
    text +=
        ": something takes the rest, as a Thunderbolt tunnel, other devices behind the same "
        "switch or a busy host do";
  return text;
}

}  // namespace motley
