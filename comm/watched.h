#pragma once
// A communicator that tells whether its rank waits for others.

#include <atomic>

#include "comm/communicator.h"

namespace motley {

/// `inner` with `waiting` true while a call that may wait for peers is under way; it may be read
/// from any thread. Borrows both; the groups made of it tell the same.
std::unique_ptr<Communicator> watched(Communicator& inner, std::atomic<bool>& waiting);

}  // namespace motley
