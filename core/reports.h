#pragma once
// Payloads of the frames between ranks and their runner (core/wire.h), besides StepReport. Each is
// one JSON object with the fields below under the same names; unknown fields are ignored, a missing
// or mistyped one is kCorrupt.

#include <string>

#include "core/ids.h"
#include "core/result.h"

namespace motley {

/// kHello: the first frame of every connection.
struct Hello {
  int rank = 0;
  std::string host;  ///< as the system calls it
  int pid = 0;       ///< on that host
  std::string key;   ///< content of the attempt's key file
};

/// kPhase. While measuring (`motley-worker profile`) `detail` says what, e.g. "micro-batch 8".
struct PhaseReport {
  int rank = 0;
  std::string phase;  ///< loading | training | evaluating | saving | finishing | measuring
  std::string detail;
  int64_t step = 0;  ///< steps done when the phase begins
};

/// kHeartbeat, every 200 ms. `progress` rises with every micro-batch, whatever the phase.
struct Heartbeat {
  int rank = 0;
  int64_t progress = 0;
  bool waiting = false;  ///< for other ranks, in a communication
};

/// kSaved, from rank 0 after the commit, or when there is none.
struct SavedReport {
  int64_t step = 0;
  std::string error;      ///< why nothing was saved; empty: it was
  std::string directory;  ///< its name within the checkpoints directory
  Bytes bytes{0};
  double seconds = 0;  ///< from the step boundary to the commit
};

/// kSkipped, from rank 0: a committed checkpoint that cannot be loaded.
struct SkippedReport {
  int64_t step = 0;
  std::string directory;  ///< its name within the checkpoints directory
  std::string host;       ///< of a damaged copy, which is fetched again; empty: the run's own
  bool damaged = false;   ///< its content is wrong; else it could not be read, which may pass
  std::string why;
  std::string set_aside;  ///< the name it has got; empty: it has kept its own
};

/// kEvaluated, from rank 0.
struct EvaluatedReport {
  int64_t step = 0;
  double loss = 0;
};

enum class Outcome {
  kFinished,  ///< all steps done and saved; exit 0
  kStopped,   ///< stopped on request with a checkpoint saved; exit 75
  kFailed,
};

/// kDone: the last frame of a rank. Every rank sends one, also when it gives up because a peer or
/// the runner is gone.
struct DoneReport {
  int rank = 0;
  Outcome outcome = Outcome::kFailed;
  ErrorCode code = ErrorCode::kRunFailed;  ///< of a failure; kPeerLost never names the culprit
  std::string message;                     ///< one line
  std::string weights_xxh3;                ///< rank 0, finished
};

/// What to tell people of a save that failed.
std::string not_saved_text(const SavedReport& report);
/// What to tell people of a checkpoint that was skipped.
std::string skipped_text(const SkippedReport& report);

std::string to_json_text(const Hello& hello);
std::string to_json_text(const PhaseReport& report);
std::string to_json_text(const Heartbeat& heartbeat);
std::string to_json_text(const SavedReport& report);
std::string to_json_text(const SkippedReport& report);
std::string to_json_text(const EvaluatedReport& report);
std::string to_json_text(const DoneReport& report);

Result<Hello> hello_from_text(const std::string& text);
Result<PhaseReport> phase_report_from_text(const std::string& text);
Result<Heartbeat> heartbeat_from_text(const std::string& text);
Result<SavedReport> saved_report_from_text(const std::string& text);
Result<SkippedReport> skipped_report_from_text(const std::string& text);
Result<EvaluatedReport> evaluated_report_from_text(const std::string& text);
Result<DoneReport> done_report_from_text(const std::string& text);

}  // namespace motley
