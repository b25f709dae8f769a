#pragma once
// Where parameters lie: one flat buffer in canonical order, and the same for gradients.

#include <optional>
#include <string>
#include <vector>

#include "core/holdings.h"

namespace motley {

/// A holding and where it lies in the flat buffers, row-major.
struct FlatTensor : Holding {
  int64_t offset = 0;  ///< in elements

  int64_t elements() const { return slice.elements(); }
};

/// A run of elements of the flat buffers.
struct ParameterRange {
  int64_t offset = 0;
  int64_t count = 0;
};

/// What a rank holds, packed without gaps: adjacent tensors of one shape can be used as one.
class ParameterLayout {
 public:
  explicit ParameterLayout(std::vector<Holding> holdings);
  /// Of a rank that holds all of a model.
  explicit ParameterLayout(const ModelSpec& model);

  const std::vector<FlatTensor>& tensors() const { return tensors_; }
  int64_t elements() const { return elements_; }
  /// The one named `name`; null when the rank does not hold it.
  const FlatTensor* find(const std::string& name) const;
  /// `count` tensors from the one named `first` on, which must be held.
  ParameterRange range(const std::string& first, int count = 1) const;
  /// Nothing when it is not held.
  std::optional<ParameterRange> range_if_held(const std::string& name) const;

 private:
  std::vector<FlatTensor> tensors_;
  int64_t elements_ = 0;
};

}  // namespace motley
