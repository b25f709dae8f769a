#pragma once
// What is not known, in JSON: null.

#include <nlohmann/json.hpp>
#include <optional>

#include "core/ids.h"

namespace motley {

template <class T>
nlohmann::json or_null(const std::optional<T>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json(nullptr);
}
template <class Tag>
nlohmann::json or_null(const std::optional<Quantity<Tag>>& value) {
  return value ? nlohmann::json(value->value()) : nlohmann::json(nullptr);
}

}  // namespace motley
