#pragma once
// The Reducer over any Transport.

#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "comm/reducer.h"
#include "comm/transport.h"

namespace motley {

/// As Communicator::open_reducer; `transport` carries `ranks`, and both outlive it.
Result<std::unique_ptr<Reducer>> open_chunk_reducer(Communicator& ranks, Transport& transport,
                                                    const ReductionPlan& plan,
                                                    const Islands& islands,
                                                    std::vector<std::vector<ElementRun>> runs);

}  // namespace motley
