#pragma once
// What a GPU's PCIe link can carry, and what keeps it from that.

#include <optional>
#include <string>

#include "core/nvml.h"

namespace motley {

/// Bytes per second each way of `lanes` lanes of a generation (1 to 6) after line coding, before
/// the headers of packets, which take 10 to 20 % more; nothing for any other generation.
std::optional<double> pcie_bytes_per_second(int generation, int lanes);

/// What the link of `status` carries, "x16 generation 4"; empty where the driver does not tell.
std::string pcie_text(const GpuStatus& status);

/// One line on a link over which the faster direction of pinned copies reached
/// `bytes_per_second`: how it compares with what card and slot can do, and what usually is the
/// reason where it is less. `status` is to be read while the link is busy: an idle one is in a
/// lower generation to save power.
std::string pcie_verdict(const GpuStatus& status, double bytes_per_second);

}  // namespace motley
