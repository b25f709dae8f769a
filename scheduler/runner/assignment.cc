#include "scheduler/runner/assignment.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/attempt.h"
#include "core/file_system.h"
#include "core/json_file.h"
#include "core/spec/json.h"

namespace motley {

std::string Assignment::log_directory() const {
  return std::filesystem::path(document).parent_path().string();
}

std::vector<std::string> Assignment::command(const std::string& worker) const {
  return kind == AssignmentKind::kTrain
             ? std::vector<std::string>{worker, "train", "--attempt", document}
             : std::vector<std::string>{worker, "profile", "--request", document};
}

std::vector<RankPlacement> rank_for_each_device(const FleetSpec& fleet) {
  std::vector<RankPlacement> ranks;
  for (const DeviceSpec& device : fleet.devices)
    ranks.push_back({device.id, device.host, device.type});
  return ranks;
}

Result<Assignment> read_assignment(AssignmentKind kind, const std::string& document) {
  MOTLEY_TRY(const auto json,
             read_json_file(real_file_system(), document, ErrorCode::kInvalidSpec));
  Assignment assignment;
  assignment.kind = kind;
  assignment.document = std::filesystem::absolute(document).string();
  assignment.text = json.dump();
  if (kind == AssignmentKind::kTrain) {
    MOTLEY_TRY(const Attempt attempt, attempt_from_json(json));
    assignment.epoch = attempt.epoch;
    assignment.ranks = attempt.plan.ranks;
    assignment.run_dir = attempt.run_dir;
    assignment.job_text = to_json(attempt.job).dump(1) + "\n";
  } else {
    MOTLEY_TRY(const ProfileRequest request, profile_request_from_json(json));
    assignment.epoch = request.epoch;
    assignment.ranks = rank_for_each_device(request.fleet);
  }
  if (assignment.ranks.empty()) return fail(ErrorCode::kInvalidSpec, document + " names no rank");
  return assignment;
}

Result<Unit> fill_in(Assignment* assignment, const std::string& control,
                     const std::string& key_file) {
  nlohmann::json json = nlohmann::json::parse(assignment->text);
  json["control"] = control;
  json["key_file"] = key_file;
  assignment->text = json.dump();
  return write_text_durably(real_file_system(), assignment->document, assignment->text + "\n");
}

}  // namespace motley
