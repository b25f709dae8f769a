#include "worker/program/parameters.h"

#include <algorithm>

#include "core/check.h"

namespace motley {

ParameterLayout::ParameterLayout(std::vector<Holding> holdings) {
  for (Holding& holding : holdings) {
    tensors_.push_back({std::move(holding), elements_});
    elements_ += tensors_.back().elements();
  }
}

ParameterLayout::ParameterLayout(const ModelSpec& model)
    : ParameterLayout(holdings_of(model, whole_model(model), 0)) {}

const FlatTensor* ParameterLayout::find(const std::string& name) const {
  const auto found = std::find_if(tensors_.begin(), tensors_.end(),
                                  [&](const FlatTensor& flat) { return flat.tensor.name == name; });
  return found == tensors_.end() ? nullptr : &*found;
}

ParameterRange ParameterLayout::range(const std::string& first, int count) const {
  const FlatTensor* begin = find(first);
  MOTLEY_CHECK(begin != nullptr, first + " is not held here");
  MOTLEY_CHECK_LE(count, tensors_.data() + tensors_.size() - begin);
  ParameterRange range{begin->offset, 0};
  for (const FlatTensor* flat = begin; flat != begin + count; ++flat)
    range.count += flat->elements();
  return range;
}

std::optional<ParameterRange> ParameterLayout::range_if_held(const std::string& name) const {
  const FlatTensor* flat = find(name);
  if (flat == nullptr) return std::nullopt;
  return ParameterRange{flat->offset, flat->elements()};
}

}  // namespace motley
