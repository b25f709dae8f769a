#pragma once
// Collectives over a group of ranks. Knows only ranks and bytes. Implementations: inproc (ranks as
// threads), mpi (a module opened at run time), later nccl and hierarchical.
//
// One thread of each rank calls; every rank of the group makes the same calls in the same order
// with the same sizes. Every call blocks until done or until the group's timeout; kPeerLost (naming
// rank, operation and phase where known) ends the group: destroy it. Sums are taken in rank order,
// so a repeated run gives the same bits, and all ranks get identical bits.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/ids.h"
#include "core/result.h"

namespace motley {

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Implementation and library version, compared over hosts at start.
  virtual std::string description() const = 0;

  /// inout[i] = Σ_r inout_r[i], r rising. Reduce-scatter to owners, ordered sum, all-gather:
  /// 2·(n-1)/n·bytes on the wire a rank.
  virtual Result<Unit> all_reduce_sum(std::span<float> inout) = 0;
  virtual Result<Unit> all_reduce_sum(std::span<double> inout) = 0;
  virtual Result<Unit> all_reduce_sum(std::span<int64_t> inout) = 0;
  virtual Result<Unit> all_reduce_max(std::span<int64_t> inout) = 0;

  /// Each rank's bytes (lengths may differ) to all ranks, by rank.
  virtual Result<std::vector<std::string>> all_gather(const std::string& mine) = 0;
  /// `data` of `root` to all; lengths need not be known to the others.
  virtual Result<Unit> broadcast(std::string& data, int root) = 0;
  virtual Result<Unit> barrier() = 0;

  /// Point to point, matched by (peer, order). The receiver knows the size.
  virtual Result<Unit> send(std::span<const std::byte> data, int to) = 0;
  virtual Result<Unit> receive(std::span<std::byte> data, int from) = 0;

  /// Bytes this rank has put on the wire: tests hold it against the formula above.
  virtual int64_t bytes_sent() const = 0;

  /// The group of ranks 0 to ranks-1 of this one; only they call. It must go before this one does,
  /// and the two are not used at the same time.
  virtual std::unique_ptr<Communicator> leading(int ranks) = 0;

  /// This rank ends the group because of an error; the first status given counts. The others' calls
  /// end with kPeerLost (inproc), or the destructor ends all ranks, mpirun with `exit_status`
  /// (mpi).
  virtual void give_up(int exit_status) = 0;
};

struct CommunicatorOptions {
  /// How long a call waits for its peers. Long, because an honest peer may be slow (a large model's
  /// step on a weak device) and a dead one is noticed by mpirun, a hanging one by the runner: this
  /// is for the case that neither is there.
  Nanos timeout{int64_t{600} * 1'000'000'000};
};

/// Runs `body` once for each rank as a thread, with communicators joined to each other; returns
/// when all have. A body that returns an error wakes the others with kPeerLost; the error that came
/// first is returned, one that tells the cause before any kPeerLost.
Result<Unit> run_inproc(int ranks, const std::function<Result<Unit>(Communicator&)>& body,
                        const CommunicatorOptions& options = {});

/// A group of one: no thread, no peer.
std::unique_ptr<Communicator> solo_communicator();

/// All ranks mpirun started, through the MPI module beside this program (kBrokenInstall when it is
/// missing or does not load). At most one in a process; MPI_Finalize when destroyed. After a failed
/// collective or give_up() the destructor ends all ranks with MPI_Abort.
Result<std::unique_ptr<Communicator>> open_mpi_communicator(
    const CommunicatorOptions& options = {});

}  // namespace motley
