#pragma once
// What a rank writes into its log, as it comes, wherever that lies.

#include <optional>
#include <string>

#include "core/ids.h"
#include "scheduler/launch/child_process.h"

namespace motley {

class RankOutput {
 public:
  /// host: where the rank is; empty: here. There it is asked for through the agent (empty: ssh), a
  /// second or more apart, unless the log is here, too.
  RankOutput(std::string log_path, std::string host, std::string rsh_agent);

  /// Whole lines, or a full piece, of what has come since the last call; empty: nothing yet. Does
  /// not wait.
  std::string next();
  /// All that is left, of a rank that has ended; of another host what it tells within 20 s.
  std::string rest();

 private:
  struct Asked {
    ChildProcess command;
    Fd answer;
    std::string text;
  };

  std::string here();
  std::string there();
  std::string asking() const;
  std::string taken(std::string text);

  const std::string path_, host_, rsh_agent_;
  int64_t offset_ = 0;
  std::optional<Asked> asked_;
  Nanos ask_at_{0}, pause_{0};
};

}  // namespace motley
