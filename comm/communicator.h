#pragma once
// Collectives over a group of ranks. Knows only ranks and bytes. Implementations: inproc (ranks as
// threads), mpi (a module opened at run time), later hierarchical. What lies in the memory of GPUs:
// device_communicator.h.
//
// One thread of each rank calls; every rank of the group makes the same calls in the same order
// with the same sizes (CommunicatorOptions::checked: or all are told which two differ). Every call
// blocks until done or until the group's timeout; kPeerLost (naming rank, operation and phase where
// known) ends the group: destroy it. Sums are taken in rank order, so a repeated run gives the same
// bits, and all ranks get identical bits.
//
// A group and the groups made of it share one connection: between two ranks, collectives match in
// the order in which both call them, whatever group they go through, and so do messages. A rank
// may therefore use groups that overlap, and the whole, in turn, if its peers use those they are in
// too in the same order. Collectives and messages do not get in each other's way. Errors name ranks
// of the whole.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/reducer.h"
#include "comm/transport.h"
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

  /// Point to point, matched by (peer, order), posted or not. The receiver knows the size.
  virtual Result<Unit> send(std::span<const std::byte> data, int to) = 0;
  virtual Result<Unit> receive(std::span<std::byte> data, int from) = 0;

  /// Begins a send and returns without waiting for the peer; kPeerLost as every call. Any number
  /// may be open, in any order, beside all other calls. `data` is borrowed and must not change
  /// until complete(), or until a call ends in kPeerLost or give_up(): then all open sends are off,
  /// and the communicator may go with them open, which it otherwise may not. The library moves data
  /// only inside calls: a long silence of this rank may hold up what it has posted.
  virtual Result<SendId> post(std::span<const std::byte> data, int to) = 0;
  /// Waits until this send is done, in any order of sends, once for each: ids are small numbers
  /// used again.
  virtual Result<Unit> complete(SendId send) = 0;

  /// A collective whose pattern the caller knows: all these transfers at once, as
  /// Transport::exchange performs them; on the wire what is sent.
  virtual Result<Unit> exchange(std::span<const Incoming> receives, std::span<const Outgoing> sends,
                                const std::string& operation) = 0;

  /// Bytes this rank has put on the wire through this group, counted where a send begins: tests
  /// hold it against the formula above.
  virtual int64_t bytes_sent() const = 0;

  /// The group of these different ranks of this one, in this order: ranks[i] is its rank i. Exactly
  /// they call, all with the same list. Makes no traffic. It must go before this one does.
  virtual std::unique_ptr<Communicator> group(const std::vector<int>& ranks) = 0;

  /// Collective, with the same classes on all ranks: prepares sums by `plan`. `runs` are this
  /// rank's elements of each class, empty of those it has no part in. Goes before this communicator
  /// does. kInternal naming a rank whose plan is another.
  virtual Result<std::unique_ptr<Reducer>> open_reducer(
      const ReductionPlan& plan, const Islands& islands,
      std::vector<std::vector<ElementRun>> runs) = 0;

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
  /// Whether ranks compare their calls (comm/checked.h). Unset: in Debug builds and with
  /// MOTLEY_DEBUG=collectives; under MPI, if that is so on any rank.
  std::optional<bool> checked = {};
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
