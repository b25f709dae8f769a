#pragma once
// Part of the MPI module: what a rank that gives up on another tells all. Without it each rank
// would find out by itself, later, and name whom it waits for, which may wait as well. Who hears it
// passes it on to the ranks beside its own, as it may have had no connection to them yet.

#include <mpi.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "comm/call_watch.h"
#include "comm/patience.h"
#include "core/debug_env.h"

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
    MPI_Comm_rank(comm_, &rank_);
    MPI_Comm_size(comm_, &size_);
    MPI_Irecv(heard_.data(), static_cast<int>(heard_.size()), MPI_CHAR, MPI_ANY_SOURCE, 0, comm_,
              &receive_);
  }
  MpiNotices(const MpiNotices&) = delete;
  MpiNotices& operator=(const MpiNotices&) = delete;

  /// Waits a moment for it to leave, not for anybody to hear it.
  void tell_all(const std::string& what) {
    if (!text_.empty()) return;  // all know of one; what was told may still be on its way
    const std::string from = ", says rank " + std::to_string(rank_);
    text_ = what.substr(0, heard_.size() - from.size()) + from;
    std::vector<int> peers;
    for (int peer = 0; peer < size_; ++peer)
      if (peer != rank_ && !failpoint("notice_lost", peer)) peers.push_back(peer);
    send(peers);
  }

  /// "…, says rank 2"; the same from then on.
  std::optional<std::string> heard() {
    if (!text_.empty()) return text_;
    int done = 0;
    MPI_Status status;
    if (MPI_Test(&receive_, &done, &status) != MPI_SUCCESS || done == 0) return std::nullopt;
    int length = 0;
    MPI_Get_count(&status, MPI_CHAR, &length);
    text_.assign(heard_.data(), static_cast<size_t>(std::max(0, length)));
    std::vector<int> peers;
    for (const int peer : {rank_ - 1, rank_ + 1})
      if (peer >= 0 && peer < size_) peers.push_back(peer);
    send(peers);
    return text_;
  }

  /// Collective, where all is well.
  void close() {
    MPI_Cancel(&receive_);
    MPI_Wait(&receive_, MPI_STATUS_IGNORE);
    MPI_Comm_free(&comm_);
  }

 private:
  static constexpr auto kMoment = std::chrono::milliseconds(500);

  void send(const std::vector<int>& peers) {
    std::vector<MPI_Request> sends(peers.size(), MPI_REQUEST_NULL);
    for (size_t i = 0; i < peers.size(); ++i)
      MPI_Isend(text_.data(), static_cast<int>(text_.size()), MPI_CHAR, peers[i], 0, comm_,
                &sends[i]);
    Patience patience;
    for (int done = 0; done == 0 && patience.silence() < kMoment; patience.pause())
      if (MPI_Testall(static_cast<int>(sends.size()), sends.data(), &done, MPI_STATUSES_IGNORE) !=
          MPI_SUCCESS)
        return;
  }

  MPI_Comm comm_ = MPI_COMM_NULL;  ///< of its own, so that the receive is in nobody's way
  MPI_Request receive_ = MPI_REQUEST_NULL;
  int rank_ = 0, size_ = 0;
  std::array<char, 400> heard_{};
  std::string text_;  ///< what was told or heard
};

}  // namespace motley
