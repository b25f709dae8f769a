#pragma once
// What a runner shall start: a document of core/attempt.h and the ranks it speaks of.

#include <string>
#include <vector>

#include "core/ids.h"
#include "core/plan.h"
#include "core/result.h"
#include "core/spec/fleet_spec.h"

namespace motley {

/// kProgram has a document of its own (program_assignment.h).
enum class AssignmentKind { kTrain, kProfile, kProgram };

struct Assignment {
  AssignmentKind kind = AssignmentKind::kTrain;
  Epoch epoch;
  std::vector<RankPlacement> ranks;
  std::string document;  ///< path of the Attempt or ProfileRequest
  std::string text;      ///< its content, once `control` and `key_file` are filled in
  std::string run_dir;   ///< when training
  std::string job_text;  ///< job.json of that run, which every host needs to sample from it

  /// Rank logs go there: beside the document.
  std::string log_directory() const;
  /// What every rank runs.
  std::vector<std::string> command(const std::string& worker) const;
};

Result<Assignment> read_assignment(AssignmentKind kind, const std::string& document);

/// Fills in where the runner listens and writes the document back durably.
Result<Unit> fill_in(Assignment* assignment, const std::string& control,
                     const std::string& key_file);

/// The devices of a fleet as ranks, one each in its order.
std::vector<RankPlacement> rank_for_each_device(const FleetSpec& fleet);

}  // namespace motley
