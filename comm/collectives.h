#pragma once
// The collectives of a Communicator over any Transport: one algorithm, one order of summation.

#include <memory>

#include "comm/communicator.h"
#include "comm/transport.h"

namespace motley {

std::unique_ptr<Communicator> communicator_over(std::unique_ptr<Transport> transport);

}  // namespace motley
