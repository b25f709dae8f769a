#pragma once
// A job's `model`.

#include "core/model.h"
#include "core/result.h"
#include "core/spec/yaml_tree.h"

namespace motley {

/// The mapping at `node` into `model`: all keys of a model, or a preset and what differs from it.
/// kInvalidSpec at the value that is wrong; what keys demand of each other is for first_fault().
Result<Unit> read_model(const YamlNode& node, ModelSpec& model);

}  // namespace motley
