#include "worker/train/factored_tensors.h"

#include <map>
#include <optional>
#include <utility>

#include "core/reduction.h"
#include "worker/train/slice_classes.h"

namespace motley {
namespace {

struct Holders {
  std::vector<int> ranks;
  bool whole = true;  ///< each has all of it, and counts
};

std::map<std::string, Holders> holders_by_tensor(const Plan& plan, const ModelSpec& model) {
  std::map<std::string, Holders> holders;
  for (int rank = 0; rank < plan.world_size(); ++rank) {
    const ParameterLayout layout = layout_of(plan, model, Rank(rank));
    for (const FlatTensor& flat : layout.tensors()) {
      Holders& all = holders[flat.tensor.name];
      all.ranks.push_back(rank);
      all.whole = all.whole && flat.counted && flat.slice == whole(flat.tensor.shape);
    }
  }
  return holders;
}

}  // namespace

std::vector<FactoredTensor> factored_tensors(const Plan& plan, const ModelSpec& model,
                                             const DeviceIslands& islands) {
  std::vector<FactoredTensor> factored;
  if (!plan.compression.factors()) return factored;
  std::map<std::string, Holders> holders = holders_by_tensor(plan, model);
  const Islands hosts = islands_of(plan);
  uint32_t number = 0;
  for (const LogicalTensor& tensor : logical_tensors(model)) {
    const Holders& held = holders[tensor.name];
    const auto matrix = matrix_for_power_sgd(tensor.shape, plan.compression.codec.rank);
    if (matrix && held.whole && crosses_slow_link(held.ranks, hosts, plan.compression))
      factored.push_back({tensor.name, number, *matrix, islands.speakers(held.ranks)});
    ++number;
  }
  return factored;
}

std::set<std::string> names_of(const std::vector<FactoredTensor>& tensors) {
  std::set<std::string> names;
  for (const FactoredTensor& tensor : tensors) names.insert(tensor.name);
  return names;
}

}  // namespace motley
