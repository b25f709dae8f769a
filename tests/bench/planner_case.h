#pragma once
// `run.sh planner --case FILE --cluster TYPE=N,TYPE=N`: a published case, planned and scored under
// the cost model that was published with it.

#include <optional>
#include <string>
#include <vector>

namespace motley {

struct CaseRequest {
  std::string file;
  std::vector<std::string> clusters;  ///< TYPE=N,TYPE=N
  std::string plan;                   ///< where to write it; empty: not at all
  bool json = false;
};

/// Nothing where no --case is asked for; ends the program where the arguments cannot be read.
std::optional<CaseRequest> case_arguments(int argc, char** argv);

/// The exit status.
int plan_case(const CaseRequest& request);

}  // namespace motley
