#pragma once
// `array:` of a job file: which jobs are to be made of it.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/spec/job_spec.h"
#include "core/spec/yaml_tree.h"

namespace motley {

struct ArrayDraft {
  struct Task {
    int index = 0;
    std::vector<std::pair<std::string, YamlNode>> values;  ///< by key: "train.seed"
  };
  std::vector<Task> tasks;
  int at_once = 0;  ///< 0: any number
  SourcePlace place;
};

/// Takes `array` out of the job; nothing where there is none. An error at what is none in it.
///
///   array: 0..9
///   array: [1, 4, 7]
///   array: {index: 0..9, at_once: 2}
///   array: {over: {train.seed: [1, 2, 3], train.optimizer.lr: [6e-4, 3e-4]}, at_once: 2}
Result<std::optional<ArrayDraft>> take_array(YamlNode& job);

/// The job is that task of it from now on, also by its name. kInvalidSpec where that is too long.
Result<Unit> become_task(const ArrayDraft& array, size_t task, JobSpec* job);

}  // namespace motley
