#pragma once
// What an implementation of Communicator must offer: transfers between pairs of ranks. Every
// collective is built on one call of it (comm/collectives.h), so a new transport is one small file.

#include <cstddef>
#include <span>
#include <string>

#include "core/result.h"

namespace motley {

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

  /// As Communicator::give_up.
  virtual void give_up(int exit_status) = 0;
};

}  // namespace motley
