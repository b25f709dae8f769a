#pragma once
// `motley plan --profile` with a profile that brings its model (core/FORMATS.md, "foreign
// profile"): nothing of the model or of the devices is measured, and nothing can be run from it.

#include <string>
#include <vector>

#include "core/result.h"

namespace motley {

struct ForeignPlanOptions {
  std::string job, fleet, profile;
  std::string score;   ///< a grid plan to price instead of searching; empty: none
  std::string output;  ///< empty: not written
  std::vector<std::string> set;
  bool json = false;
};

/// Whether the file is a JSON document with a model. kNotFound, kInvalidSpec where it is none.
Result<bool> is_foreign_profile(const std::string& path);

/// The exit status: prints the plan, its step and how good it is.
Result<int> plan_by_foreign_profile(const ForeignPlanOptions& options);

}  // namespace motley
