#pragma once
// Models to start from: `model: {preset: gpt2-124m}`. Each is a file of configs/models/, whose text
// is part of the program: it needs no file of its own wherever it is run.

#include <span>
#include <string_view>

namespace motley {

struct ModelPreset {
  std::string_view name;  ///< of the file, without ".yaml"
  std::string_view yaml;  ///< the keys of a job's `model`, except preset
};

/// In the order of core/CMakeLists.txt, smallest first; for the life of the process.
std::span<const ModelPreset> model_presets();

}  // namespace motley
