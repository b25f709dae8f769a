#pragma once
// What the sums of Communicator::open_reducer() must be, whichever ranks are an island.

#include "tests/contract/communicator_contract.h"

namespace motley::testing {

const std::vector<NamedCheck>& reducer_contract();

}  // namespace motley::testing
