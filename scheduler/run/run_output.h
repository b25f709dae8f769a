#pragma once
// What `motley run` shows people, and the object it ends with for programs.

#include <optional>
#include <string>

#include "core/plan.h"
#include "core/profile.h"
#include "core/result.h"
#include "scheduler/report/run_summary.h"
#include "scheduler/run/run_directory.h"

namespace motley {

class RunOutput {
 public:
  /// With `json`, stdout is left to json() and everything else goes to stderr.
  explicit RunOutput(bool json);

  void note(const std::string& text) const;  ///< one line on stderr
  void solo_speeds(const Profile& profile, const Plan& plan, const ModelSpec& model);
  void plan(const Profile& profile, const Plan& plan);
  void report(const RunSummary& summary, const Plan& plan);
  void sample(const std::string& text);
  /// Plotted for the terminal, and written as loss.svg.
  Result<Unit> losses(const RunDirectory& run);
  void json(const RunSummary& summary) const;  ///< nothing unless it was asked for

 private:
  /// Text that ends in a newline; a blank line stands between two.
  void print_block(const std::string& text);

  bool json_;
  bool begun_ = false;  ///< a block was printed
};

/// report.json of a run.
Result<RunSummary> read_summary(const RunDirectory& run);

}  // namespace motley
