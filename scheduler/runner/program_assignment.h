#pragma once
// What the ranks of a job that is a program are told: the document of an attempt, and what each of
// them makes of it (core/FORMATS.md, "program").

#include <map>
#include <string>
#include <vector>

#include "core/ids.h"
#include "core/plan.h"
#include "core/result.h"
#include "core/spec/fleet_spec.h"
#include "core/spec/job_spec.h"
#include "planner/plain/program_deal.h"
#include "scheduler/launch/environment.h"

namespace motley {

struct ProgramAssignment {
  Epoch epoch;
  std::string run;                           ///< "name/n"
  std::string directory;                     ///< of the attempt: logs, and how each rank ended
  std::string checkpoints;                   ///< there before the ranks are
  std::string master_address = "127.0.0.1";  ///< of rank 0's host, as all hosts know it
  int master_port = 0;
  JobSpec job;
  FleetSpec fleet;                ///< a rank each, in its order
  std::vector<RankShare> shares;  ///< of each rank; empty: the job has no global batch
  /// On this host ranks look for programs as who started the job does, whatever mpirun puts first.
  std::string launched_on;
  std::map<std::string, std::string> search_paths = {};  ///< PATH and LD_LIBRARY_PATH there
  std::string control;        ///< where the runner listens (Attempt::control); it fills this in
  std::string key_file;       ///< secret of the attempt, 0600; the runner's too
  int64_t trained_steps = 0;  ///< that earlier attempts have told of
  Bytes log_limit{0};         ///< of a rank's log; 0: none
  bool measure = false;  ///< the program is to tell how long its micro-batches take, and to end
};

/// From now on ranks on this host look for programs as this process does.
void search_as_here(ProgramAssignment* assignment);

/// Of the attempt in `directory`: who gets how much of a step (core/FORMATS.md, "plan").
std::string plan_path(const std::string& directory);

Result<Unit> write_program(const ProgramAssignment& assignment, const std::string& path);
Result<ProgramAssignment> read_program(const std::string& path);

/// Of the program on `rank`: what the job sets, then who it is, then what nobody has set.
Environment program_environment(const ProgramAssignment& assignment, int rank,
                                const Environment& inherited);
/// What that program is to tell of itself where it is measured. kNotFound: nothing.
Result<std::string> read_measured(const std::string& directory, int rank);

/// How a rank's program ended.
struct ProgramEnd {
  int rank = 0;
  int status = 0;             ///< of exit()
  int signal = 0;             ///< that ended it; 0: none
  int64_t at = 0;             ///< of a steady clock, to tell which of a host was first
  std::string missing = {};   ///< what was not there to start it; empty: it was started
  std::string measured = {};  ///< of a program that was measured: JSON (core/FORMATS.md)
  bool saved() const { return signal == 0 && (status == 0 || status == 75); }
  std::string to_string() const;
};

Result<Unit> write_program_end(const std::string& directory, const ProgramEnd& end);
/// kNotFound while it runs, and where it was killed with the process above it.
Result<ProgramEnd> read_program_end(const std::string& directory, int rank);
/// Of a line that write_program_end() wrote, on whichever host.
Result<ProgramEnd> program_end_of(const std::string& text);

/// The process above a rank's program is known by its number on its host, as long as it is there.
Result<Unit> write_rank_process(const std::string& directory, int rank);
void remove_rank_process(const std::string& directory, int rank);
/// The shell command, for the host of these ranks, that asks them to stop, each once. It fails
/// where one has neither begun nor ended.
std::string stop_command(const std::string& directory, const std::vector<int>& ranks);
/// The one that prints how they ended, a line each, as far as they have.
std::string ends_command(const std::string& directory, const std::vector<int>& ranks);
/// All that a rank leaves of itself in the directory of its attempt, besides its log.
std::vector<std::string> files_of_rank(const std::string& directory, int rank);

}  // namespace motley
