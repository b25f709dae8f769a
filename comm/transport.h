#pragma once
// What an implementation of Communicator must offer: transfers between pairs of ranks. Every
// collective is built on one call of it (comm/collectives.h), so a new transport is one small file.

#include <chrono>
#include <cstddef>
#include <span>
#include <string>

#include "core/ids.h"
#include "core/result.h"

namespace motley {

/// A send that was begun: a small number, used again after it is complete.
using SendId = Id<struct SendTag>;

struct Incoming {
  int from = 0;
  std::span<std::byte> into;  ///< exactly as long as what the peer sends; not empty
};

struct Outgoing {
  int to = 0;
  std::span<const std::byte> data;  ///< not empty
};

class Transport {
 public:
  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string description() const = 0;

  /// Performs all transfers at once, receives posted before sends; returns when all are done and
  /// every buffer is the caller's again. Between two ranks transfers match in the order of posting.
  /// kPeerLost names the ranks that were waited for and `operation`; the transport is dead then.
  virtual Result<Unit> exchange(std::span<const Incoming> receives, std::span<const Outgoing> sends,
                                const std::string& operation) = 0;

  /// Messages: what is posted matches the peer's receive() in the order of posting, never an
  /// exchange(). post() begins a send and does not wait for the peer; any call of the transport
  /// carries it on; complete() waits for its end. The data is borrowed until then, or until any
  /// call fails or give_up().
  virtual Result<SendId> post(const Outgoing& message) = 0;
  virtual Result<Unit> complete(SendId send, const std::string& operation) = 0;
  virtual Result<Unit> receive(const Incoming& message, const std::string& operation) = 0;

  /// Transfers of one message that go on by themselves: begin() returns at once; finished() moves
  /// them on and tells whether this one is done, after which its id is free and its buffer the
  /// caller's. Matched with the peer's by tag, 0 to kMostTag, of equal tags in the order of
  /// beginning; never with the calls above. Beside these one other thread may use all that is
  /// above; it is one thread at a time that uses these. At most kMostBytes each.
  static constexpr int kMostTag = (1 << 20) - 1;
  static constexpr size_t kMostBytes = 1 << 20;
  virtual Result<SendId> begin(const Incoming& message, int tag) = 0;
  virtual Result<SendId> begin(const Outgoing& message, int tag) = 0;
  virtual Result<bool> finished(SendId transfer) = 0;
  /// After a failure: this transfer is off and its buffer the caller's, as far as the library can
  /// tell.
  virtual void abandon(SendId transfer) = 0;
  /// kPeerLost once the group is over: for those who wait for something else than a transfer.
  virtual Result<Unit> alive() = 0;

  /// How long a call waits while nothing moves; who waits otherwise ends the group then, by
  /// lost(), which returns the error to end with.
  virtual std::chrono::nanoseconds timeout() const = 0;
  virtual Error lost(const std::string& what) = 0;

  /// As Communicator::give_up.
  virtual void give_up(int exit_status) = 0;
};

}  // namespace motley
