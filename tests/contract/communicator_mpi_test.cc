// Run by mpirun: every rank runs the same tests in the same order over one MPI communicator.

#include "tests/contract/communicator_contract.h"

namespace motley::testing {
namespace {

class Mpi : public ::testing::TestWithParam<NamedCheck> {
 protected:
  static void SetUpTestSuite() {
    auto opened = open_mpi_communicator();
    ASSERT_TRUE(opened.has_value()) << opened.error().to_string();
    comm_ = std::move(*opened).release();
  }
  static void TearDownTestSuite() {
    if (comm_ != nullptr && ::testing::Test::HasFailure()) comm_->give_up(1);
    delete comm_;
    comm_ = nullptr;
  }
  static Communicator* comm_;
};
Communicator* Mpi::comm_ = nullptr;

TEST_P(Mpi, KeepsTheContract) {
  ASSERT_NE(comm_, nullptr);
  expect_ok(GetParam().check(*comm_));
}

INSTANTIATE_TEST_SUITE_P(Communicator, Mpi, ::testing::ValuesIn(communicator_contract()),
                         [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace motley::testing
