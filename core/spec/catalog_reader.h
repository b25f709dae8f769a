#pragma once
// YAML -> DeviceCatalog, as strict as core/spec/reader.h.

#include <string>
#include <string_view>

#include "core/result.h"
#include "core/spec/device_catalog.h"

namespace motley {

/// configs/devices.yaml, which is part of the program.
Result<DeviceCatalog> built_in_catalog();
std::string_view built_in_catalog_text();

Result<DeviceCatalog> read_catalog(const std::string& path);
Result<DeviceCatalog> parse_catalog(std::string_view text, const std::string& source);

}  // namespace motley
