#pragma once

#include <optional>
#include <vector>

namespace motley {

/// The middle of the values (the mean of the two middle ones); nothing for none.
std::optional<double> median(std::vector<double> values);

}  // namespace motley
