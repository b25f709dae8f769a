#pragma once
// How ranks end together. An error has one culprit, who returns it; the others return kPeerLost, so
// that whoever collects the ranks' last words finds the cause (core/reports.h, DoneReport).

#include <string>

#include "comm/communicator.h"
#include "core/result.h"

namespace motley {

/// Collective. Succeeds on all ranks or on none: each brings what came of its own work; a rank that
/// failed gets its error back.
Result<Unit> all_succeeded(Communicator& world, const Result<Unit>& mine);

/// Collective. For an error that every rank has found by itself from what all know: the first
/// speaks, whose number in the whole is `speaker`.
tl::unexpected<Error> joint_failure(Communicator& ranks, ErrorCode code, const std::string& message,
                                    int speaker = 0);

/// What must be the same on all ranks before they may train together.
struct Identity {
  std::string host;
  std::string program;           ///< version of Motley
  std::string communicator;      ///< and of the MPI library
  std::string arithmetic_class;  ///< empty where it does not matter
  std::string data_hash;
};

/// Collective. kBrokenInstall naming the first host that differs from rank 0's, and how.
Result<Unit> all_alike(Communicator& world, const Identity& mine);

}  // namespace motley
