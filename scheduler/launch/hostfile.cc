#include <algorithm>

#include "scheduler/launch/launcher.h"

namespace motley {

std::string hostfile_text(const std::vector<RankPlacement>& ranks) {
  std::vector<std::pair<std::string, int>> slots;
  for (const RankPlacement& rank : ranks) {
    auto host = std::find_if(slots.begin(), slots.end(),
                             [&](const auto& entry) { return entry.first == rank.host; });
    if (host == slots.end()) host = slots.insert(slots.end(), {rank.host, 0});
    ++host->second;
  }
  std::string text;
  for (const auto& [host, count] : slots) text += host + " slots=" + std::to_string(count) + "\n";
  return text;
}

}  // namespace motley
