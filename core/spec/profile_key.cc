#include "core/spec/profile_key.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/hash.h"
#include "core/spec/json.h"
#include "core/spec/names.h"
#include "core/version.h"

namespace motley {
namespace {

/// More than this many entries would make the table of counted memory slow to make and of no use.
constexpr int kLargestMicroBatch = 1024;

}  // namespace

std::string profile_job(const JobSpec& job) {
  const nlohmann::json described = {{"model", to_json(job.model)},
                                    {"precision", precision_json(job.train)},
                                    {"numerics", spec_name(job.train.numerics)},
                                    {"optimizer", job.train.optimizer.type}};
  return described.dump();
}

std::string profile_job_key(const JobSpec& job) { return xxh3_128_hex(profile_job(job)); }

int largest_profiled_micro_batch(const JobSpec& job) {
  return std::min(job.train.global_batch, kLargestMicroBatch);
}

std::string code_version() {
  const BuildVersion& build = build_version();
  return std::string(build.version) + " (" + std::string(build.git) + ")";
}

}  // namespace motley
