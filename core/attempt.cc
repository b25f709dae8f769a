#include "core/attempt.h"

#include <nlohmann/json.hpp>

#include "core/json_fields.h"
#include "core/spec/json.h"

namespace motley {
namespace {

/// Reads a member with a reader of whole documents; its pointers are put below `key`.
template <class Spec, class Read>
void read_document(JsonFields& fields, const char* key, Spec& out, Read read) {
  const nlohmann::json* json = fields.member(key);
  if (!json) return;
  Result<Spec> spec = read(*json);
  if (spec)
    out = std::move(*spec);
  else
    fields.fault_within(key, spec.error().message);
}

void read_epoch(JsonFields& fields, Epoch& epoch) {
  fields.read("epoch", epoch);
  if (epoch < Epoch(1)) fields.fault("epoch", "epochs count from 1");
}

}  // namespace

nlohmann::json to_json(const Attempt& attempt) {
  return {{"version", 1},
          {"epoch", attempt.epoch.value()},
          {"run_dir", attempt.run_dir},
          {"job", to_json(attempt.job)},
          {"fleet", to_json(attempt.fleet)},
          {"plan", to_json(attempt.plan)},
          {"resume_checkpoint", attempt.resume_checkpoint},
          {"control", attempt.control},
          {"key_file", attempt.key_file},
          {"trace", attempt.trace}};
}

Result<Attempt> attempt_from_json(const nlohmann::json& json) {
  Attempt attempt;
  JsonFields fields(json);
  fields.read_version(1);
  read_epoch(fields, attempt.epoch);
  fields.read("run_dir", attempt.run_dir)
      .read("resume_checkpoint", attempt.resume_checkpoint)
      .read("control", attempt.control)
      .read("key_file", attempt.key_file)
      .read("trace", attempt.trace);
  read_document(fields, "job", attempt.job, job_from_json);
  read_document(fields, "fleet", attempt.fleet, fleet_from_json);
  read_document(fields, "plan", attempt.plan, plan_from_json);
  MOTLEY_TRY_VOID(fields.done());
  return attempt;
}

nlohmann::json to_json(const ProfileRequest& request) {
  return {{"version", 1},
          {"epoch", request.epoch.value()},
          {"job", to_json(request.job)},
          {"fleet", to_json(request.fleet)},
          {"control", request.control},
          {"key_file", request.key_file}};
}

Result<ProfileRequest> profile_request_from_json(const nlohmann::json& json) {
  ProfileRequest request;
  JsonFields fields(json);
  fields.read_version(1);
  read_epoch(fields, request.epoch);
  fields.read("control", request.control).read("key_file", request.key_file);
  read_document(fields, "job", request.job, job_from_json);
  read_document(fields, "fleet", request.fleet, fleet_from_json);
  MOTLEY_TRY_VOID(fields.done());
  return request;
}

}  // namespace motley
