// communicator_lost_rank WAY, run by mpirun with two ranks: rank 0 has sends open to rank 1, which
// never receives them and `dies`, `gives_up` or is `silent`. Rank 0 says how its wait ended, if it
// did.

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace motley {
namespace {

constexpr int kStatusOfGivingUp = 42;

Result<Unit> wait_for_open_sends(Communicator& comm, const std::vector<std::byte>& data) {
  // After the barrier the peer is in no call that could take data in.
  MOTLEY_TRY_VOID(comm.barrier());
  MOTLEY_TRY_VOID(comm.post(data, 1));
  MOTLEY_TRY(const SendId last, comm.post(data, 1));
  return comm.complete(last);
}

void misbehave(std::unique_ptr<Communicator> comm, const std::string& way) {
  if (!comm->barrier()) return;
  if (way == "dies") std::raise(SIGKILL);
  if (way == "gives_up") {
    comm->give_up(kStatusOfGivingUp);
    comm.reset();
  }
  for (;;) pause();
}

int run(const std::string& way) {
  // Else longer than the test may take.
  const Nanos timeout(way == "silent" ? 2'000'000'000 : 600'000'000'000);
  auto comm = open_mpi_communicator({.timeout = timeout});
  if (!comm) {
    std::fprintf(stderr, "%s\n", comm.error().to_string().c_str());
    return 1;
  }
  if ((*comm)->rank() == 1) {
    misbehave(std::move(*comm), way);
    return 1;
  }
  const std::vector<std::byte> data(200'000'000);  // more than MPI takes off our hands at once
  const auto done = wait_for_open_sends(**comm, data);
  std::printf("%s\n", done ? "done" : done.error().to_string().c_str());
  std::fflush(stdout);
  comm->reset();  // with sends open
  return 0;
}

}  // namespace
}  // namespace motley

int main(int argc, char** argv) { return argc == 2 ? motley::run(argv[1]) : 2; }
