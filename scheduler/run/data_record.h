#pragma once
// The data files a run has trained on (data.json in its directory; core/FORMATS.md): going on with
// others is refused before anything is launched.

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/spec/job_spec.h"
#include "core/units.h"
#include "scheduler/run/run_directory.h"

namespace motley {

struct DataFile {
  std::string path;
  Bytes bytes;
  std::string xxh3;  ///< XXH3-128
  bool operator==(const DataFile&) const = default;
};
using DataRecord = std::vector<DataFile>;

/// Reads the files. kNotFound naming one that is missing, kIo naming one that cannot be read.
Result<DataRecord> record_of_data(const DataSpec& data);

nlohmann::json to_json(const DataRecord& record);

/// kInvalidSpec naming the file that differs from what `run` recorded. A run that kept no record
/// (made by hand) or has not trained yet takes any data.
Result<Unit> check_data(const RunDirectory& run, const JobSpec& job, const DataRecord& now);

}  // namespace motley
