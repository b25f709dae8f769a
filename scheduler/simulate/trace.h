#pragma once
// A trace of jobs: when each came, how much work it was, how fast it goes on what. Three formats,
// told apart by the file's ending (core/FORMATS.md, "trace"): JSON Lines, CSV, and the
// tab-separated one of Gavel (Narayanan et al., OSDI 2020), whose speeds are in a JSON table of
// their own.

#include <map>
#include <string>
#include <vector>

#include "core/result.h"

namespace motley {

struct TraceJob {
  std::string name;
  std::string owner;
  double arrival_seconds = 0;
  double work = 0;          ///< in units of `speeds`
  int least = 1, most = 1;  ///< devices
  int most_of_each = 1;     ///< of each type, at least `least`
  bool mix = true;          ///< of several types
  int priority = 50;
  double weight = 1;
  bool preemptible = true;
  double switch_seconds = 0;  ///< a stop and a start cost it
  /// Units of work a second: type -> devices -> rate. Types of devices it may use.
  std::map<std::string, std::map<int, double>> speeds;
};

/// Lets a job that takes `least` devices take as many of each type it knows, all at once:
/// data-parallel speeds added.
void let_mix(TraceJob* job);

/// In the order of arrival, those of one time as in the file. `speeds_path` is needed by the format
/// of Gavel and refused with others. kInvalidSpec with file and line; kNotFound.
Result<std::vector<TraceJob>> read_trace(const std::string& path, const std::string& speeds_path);

/// As JSON Lines.
std::string trace_text(const std::vector<TraceJob>& jobs);

}  // namespace motley
