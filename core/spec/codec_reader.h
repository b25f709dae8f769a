#pragma once
// `parallel.compress` of a job file.

#include "core/compression.h"
#include "core/spec/yaml_tree.h"

namespace motley {

/// `off`, `auto`, a codec's name for its defaults, or a mapping {type: top_k, fraction: 0.01,
/// values: fp16}, {type: power_sgd, rank: 2}; any with warmup: 150. kInvalidSpec at the place of
/// what is wrong; the result has no fault.
Result<CodecSpec> to_codec(const YamlNode& node);

}  // namespace motley
