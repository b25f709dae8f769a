#pragma once
// Part of the MPI module: what a rank that gives up on another tells all. Without it each rank
// would find out by itself, later, and name whom it waits for, which may wait as well.

#include <mpi.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "comm/call_watch.h"
#include "comm/patience.h"

namespace motley {

/// Calls MPI: one thread at a time.
class MpiNotices {
 public:
  /// Collective.
  MpiNotices(CallWatch& watch, const std::string& operation) {
    {
      const CallWatch::Call call(watch, "MPI_Comm_dup", operation);
      MPI_Comm_dup(MPI_COMM_WORLD, &comm_);
    }
    MPI_Irecv(heard_.data(), static_cast<int>(heard_.size()), MPI_CHAR, MPI_ANY_SOURCE, 0, comm_,
              &receive_);
  }
  MpiNotices(const MpiNotices&) = delete;
  MpiNotices& operator=(const MpiNotices&) = delete;

  /// Waits a moment for it to leave, not for anybody to hear it.
  void tell_all(const std::string& what, int rank, int size) {
    if (!told_.empty()) return;  // all know of one; what was told may still be on its way
    told_ = what.substr(0, heard_.size());
    std::vector<MPI_Request> sends;
    for (int peer = 0; peer < size; ++peer) {
      if (peer == rank) continue;
      sends.push_back(MPI_REQUEST_NULL);
      MPI_Isend(told_.data(), static_cast<int>(told_.size()), MPI_CHAR, peer, 0, comm_,
                &sends.back());
    }
    Patience patience;
    for (int done = 0; done == 0 && patience.silence() < kMoment; patience.pause())
      if (MPI_Testall(static_cast<int>(sends.size()), sends.data(), &done, MPI_STATUSES_IGNORE) !=
          MPI_SUCCESS)
        return;
  }

  /// "…, says rank 2"; the same from then on.
  std::optional<std::string> heard() {
    if (!text_.empty()) return text_;
    int done = 0;
    MPI_Status status;
    if (MPI_Test(&receive_, &done, &status) != MPI_SUCCESS || done == 0) return std::nullopt;
    int length = 0;
    MPI_Get_count(&status, MPI_CHAR, &length);
    text_ = std::string(heard_.data(), static_cast<size_t>(std::max(0, length))) + ", says rank " +
            std::to_string(status.MPI_SOURCE);
    return text_;
  }

  /// Collective, where all is well.
  void close() {
    MPI_Cancel(&receive_);
    MPI_Wait(&receive_, MPI_STATUS_IGNORE);
    MPI_Comm_free(&comm_);
  }

 private:
  static constexpr auto kMoment = std::chrono::milliseconds(100);

  MPI_Comm comm_ = MPI_COMM_NULL;  ///< of its own, so that the receive is in nobody's way
  MPI_Request receive_ = MPI_REQUEST_NULL;
  std::array<char, 400> heard_{};
  std::string text_, told_;
};

}  // namespace motley
