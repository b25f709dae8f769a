#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "scheduler/service/api.h"

namespace motley {

/// The API in OpenAPI 3.1: each of `routes`, with what it takes and answers. Of one that nobody has
/// described (a test finds it) the summary is missing.
nlohmann::json openapi_document(const std::vector<Api::RouteView>& routes);

}  // namespace motley
