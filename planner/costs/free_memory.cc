#include "planner/costs/free_memory.h"

namespace motley {

MemoryCounter free_memory(const ModelSpec& model) {
  const auto plan = [](const Plan& counted) -> Result<std::vector<RankMemory>> {
    return std::vector<RankMemory>(counted.ranks.size());
  };
  const auto layers = [heads =
                           model.heads](const LayersToCount& asked) -> Result<LayerMemoryTable> {
    LayerMemoryTable table;
    for (const char* const layer : {"embedding", "block", "head"})
      for (const int own : asked.heads.empty() ? std::vector<int>{heads} : asked.heads)
        for (const int size : asked.micro_batches) table[{layer, own, size}] = {};
    return table;
  };
  return {plan, layers};
}

}  // namespace motley
