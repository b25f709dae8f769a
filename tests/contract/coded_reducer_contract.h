#pragma once
// What sums that are compressed on links must be (comm/link_residuals.h).

#include "tests/contract/communicator_contract.h"

namespace motley::testing {

const std::vector<NamedCheck>& coded_reducer_contract();

}  // namespace motley::testing
