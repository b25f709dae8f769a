#include "scheduler/launch/mpirun_account.h"

#include <regex>

namespace motley {

std::optional<RankExit> first_failure_in(const std::string& mpirun_output) {
  // help-orterun.txt of Open MPI: proc-aborted(-strsignal), non-zero-exit, proc-exit-no-sync.
  static const std::regex by_signal(
      R"(noticed that process rank (\d{1,9}) with PID \d+ on\s+node \S+ exited on (signal \d+(?: \([^)]*\))?))");
  static const std::regex by_status(
      R"(Process name: \[\[\d+,\d+\],(\d{1,9})\]\s+Exit code: +(\d{1,3})\b)");
  static const std::regex unfinalized(
      R"(has exited due to process rank (\d{1,9}) with PID \d+ on\s+node)");
  std::smatch found;
  if (std::regex_search(mpirun_output, found, by_signal))
    return RankExit{std::stoi(found[1]), ErrorCode::kRunFailed, found[2]};
  if (std::regex_search(mpirun_output, found, by_status))
    return RankExit{std::stoi(found[1]), error_code_of_exit(std::stoi(found[2])),
                    "status " + found[2].str()};
  if (std::regex_search(mpirun_output, found, unfinalized))
    return RankExit{std::stoi(found[1]), ErrorCode::kRunFailed, "left without MPI_Finalize"};
  return std::nullopt;
}

}  // namespace motley
