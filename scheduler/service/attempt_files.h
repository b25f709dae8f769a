#pragma once
// How a coordinator and the process of an attempt tell each other what they know, whichever of them
// is alive: files of the attempt's directory (core/FORMATS.md, "records of an attempt").

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "scheduler/launch/process_identity.h"
#include "scheduler/service/attempt_launcher.h"

namespace motley {

struct AttemptBegun {
  ProcessIdentity process;
  int64_t saved_step = 0;  ///< of the newest checkpoint there was; 0: none
  int first_epoch = 0;     ///< of the run's attempts that are its own; 0: not told
};

struct AttemptEnded {
  int status = 0;  ///< as `motley run` would have exited
  std::string cause;
  bool progressed = false;
  bool hopeless = true;    ///< of a failure: another attempt would end the same way
  int64_t saved_step = 0;  ///< of the newest checkpoint; 0: none
  std::map<std::string, double> speeds = {};  ///< that were measured: samples a second by device id
  bool blameless = false;                     ///< of a failure: the disk is full
  bool elsewhere = false;  ///< of a failure: on these devices nothing could begin, others may do
};

/// Since anything in one of these directories was last written; 0: nothing is there. By the wall
/// clock, as the machine may have been started anew since.
Nanos written_ago(const std::vector<std::string>& directories);

class AttemptFiles {
 public:
  explicit AttemptFiles(std::string directory) : directory_(std::move(directory)) {}

  const std::string& directory() const { return directory_; }
  std::string log() const { return directory_ + "/log"; }

  /// Makes the directory, too, and the attempt's key where it needs agents.
  Result<Unit> write_order(const AttemptOrder& order) const;
  Result<AttemptOrder> order() const;

  /// By which an attempt shows that it speaks for itself. kNotFound: it needs none.
  Result<std::string> key() const;
  Result<bool> key_matches(const std::string& offered) const;

  /// True for the one process that is to perform the attempt; false where another one has it.
  Result<bool> claim(const AttemptBegun& begun) const;
  /// Nothing before it was claimed.
  Result<std::optional<AttemptBegun>> begun() const;
  /// Since it was claimed, as written_ago() has it.
  Nanos begun_ago() const;

  Result<Unit> write_end(const AttemptEnded& ended) const;
  /// Why it is asked to stop; kNone: nobody has, or it was not written down.
  Result<Unit> write_stop(StopWhy why) const;
  StopWhy stop() const;

  /// Nothing before its end, and for ever where its process was killed.
  Result<std::optional<AttemptEnded>> ended() const;

 private:
  Result<Unit> make_key() const;

  std::string directory_;
};

}  // namespace motley
