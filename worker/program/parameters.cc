#include "worker/program/parameters.h"

#include <algorithm>

#include "core/check.h"

namespace motley {

ParameterLayout::ParameterLayout(const ModelSpec& model) {
  for (LogicalTensor& tensor : logical_tensors(model)) {
    Slice slice = whole(tensor.shape);
    tensors_.push_back({std::move(tensor), std::move(slice), elements_});
    elements_ += tensors_.back().elements();
  }
}

ParameterRange ParameterLayout::range(const std::string& first, int count) const {
  const auto begin = std::find_if(tensors_.begin(), tensors_.end(), [&](const FlatTensor& flat) {
    return flat.tensor.name == first;
  });
  MOTLEY_CHECK_LE(count, tensors_.end() - begin);
  ParameterRange range{begin->offset, 0};
  for (auto flat = begin; flat != begin + count; ++flat) range.count += flat->elements();
  return range;
}

}  // namespace motley
