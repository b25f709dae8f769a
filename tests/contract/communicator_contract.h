#pragma once
// What every Communicator must do, as checks run by all ranks of a group at once. A check compares
// with what its rank can compute alone.

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"

namespace motley::testing {

using CommunicatorCheck = Result<Unit> (*)(Communicator&);

struct NamedCheck {
  std::string name;
  CommunicatorCheck check;
};

/// Fails the current test when `result` is an error.
void expect_ok(const Result<Unit>& result);

const std::vector<NamedCheck>& communicator_contract();

}  // namespace motley::testing
