#pragma once
// Where parameters lie: one flat buffer in canonical order, and the same for gradients and
// optimizer state.

#include <string>
#include <vector>

#include "core/model.h"
#include "core/slices.h"

namespace motley {

/// Where a logical tensor (or this rank's slice of it) lies in the flat buffers.
struct FlatTensor {
  LogicalTensor tensor;
  Slice slice;         ///< what this rank holds
  int64_t offset = 0;  ///< in elements

  int64_t elements() const { return slice.elements(); }
};

/// A run of elements of the flat buffers.
struct ParameterRange {
  int64_t offset = 0;
  int64_t count = 0;
};

/// All tensors of a model, packed without gaps: adjacent tensors of one shape can be used as one.
class ParameterLayout {
 public:
  explicit ParameterLayout(const ModelSpec& model);

  const std::vector<FlatTensor>& tensors() const { return tensors_; }
  int64_t elements() const { return elements_; }
  /// `count` tensors from the one named `first` on, which must exist.
  ParameterRange range(const std::string& first, int count = 1) const;

 private:
  std::vector<FlatTensor> tensors_;
  int64_t elements_ = 0;
};

}  // namespace motley
