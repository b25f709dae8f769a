// Times a sum over all ranks as other libraries make it, as `motley-worker bench-comm` times ours,
// and prints the same JSON on rank 0. Started by mpirun:
//
//   comm_peers --contender mpi|gloo-ring|gloo-halving-doubling --sizes BYTES,… --repetitions N
//              [--interface NAME --store DIRECTORY]
//
// A repetition starts after a barrier and takes as long as its slowest rank; a size's seconds are
// the median of its repetitions, after one that does not count. Errors are elements with a wrong
// sum, over all repetitions and ranks.

#include <mpi.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/median.h"
#include "tests/bench/comm/contender.h"

namespace motley {
namespace {

class MpiContender final : public Contender {
 public:
  std::span<float> prepare(size_t count) override {
    in_.resize(count);
    out_.resize(count);
    return in_;
  }
  std::span<const float> all_reduce() override {
    MPI_Allreduce(in_.data(), out_.data(), static_cast<int>(in_.size()), MPI_FLOAT, MPI_SUM,
                  MPI_COMM_WORLD);
    return out_;
  }

 private:
  std::vector<float> in_, out_;
};

/// Small whole numbers, whose sum is exact in any order.
float element(size_t i, int weight) {
  return static_cast<float>(weight * (1 + static_cast<int>(i % 31)));
}

struct Arguments {
  std::string contender;
  std::vector<size_t> sizes;
  int repetitions = 10;
  GlooOptions gloo;
};

std::unique_ptr<Contender> make_contender(Arguments& arguments) {
  if (arguments.contender == "mpi") return mpi_contender();
  MPI_Comm_rank(MPI_COMM_WORLD, &arguments.gloo.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &arguments.gloo.size);
  arguments.gloo.halving_doubling = arguments.contender == "gloo-halving-doubling";
  return gloo_contender(arguments.gloo);
}

/// Of the slowest rank. The sums are checked when all have theirs: ranks may share cores.
double one_repetition(Contender& contender, std::span<float> floats, int64_t& errors) {
  int rank = 0, size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  for (size_t i = 0; i < floats.size(); ++i) floats[i] = element(i, rank + 1);
  MPI_Barrier(MPI_COMM_WORLD);
  const double start = MPI_Wtime();
  const std::span<const float> sums = contender.all_reduce();
  double seconds = MPI_Wtime() - start;
  double slowest = 0;
  MPI_Allreduce(&seconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  for (size_t i = 0; i < sums.size(); ++i)
    errors += sums[i] == element(i, size * (size + 1) / 2) ? 0 : 1;
  return slowest;
}

nlohmann::json row_of(Contender& contender, size_t bytes, int repetitions) {
  const std::span<float> floats = contender.prepare(bytes / sizeof(float));
  int64_t errors = 0, all_errors = 0;
  one_repetition(contender, floats, errors);
  std::vector<double> seconds;
  for (int i = 0; i < repetitions; ++i)
    seconds.push_back(one_repetition(contender, floats, errors));
  MPI_Allreduce(&errors, &all_errors, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
  return {
      {"level", "world"}, {"bytes", bytes}, {"seconds", *median(seconds)}, {"errors", all_errors}};
}

void run(Arguments& arguments) {
  const std::unique_ptr<Contender> contender = make_contender(arguments);
  nlohmann::json rows = nlohmann::json::array();
  for (const size_t bytes : arguments.sizes)
    rows.push_back(row_of(*contender, bytes, arguments.repetitions));
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank == 0)
    std::printf("%s\n", nlohmann::json{{"bench_comm", 1}, {"rows", rows}}.dump().c_str());
}

}  // namespace

std::unique_ptr<Contender> mpi_contender() { return std::make_unique<MpiContender>(); }

}  // namespace motley

int main(int argc, char** argv) {
  motley::Arguments arguments;
  CLI::App app("Times sums over the ranks of an mpirun as other libraries make them.",
               "comm_peers");
  app.add_option("--contender", arguments.contender)
      ->required()
      ->check(CLI::IsMember({"mpi", "gloo-ring", "gloo-halving-doubling"}));
  app.add_option("--sizes", arguments.sizes, "bytes")->required()->delimiter(',');
  app.add_option("--repetitions", arguments.repetitions)->check(CLI::PositiveNumber);
  app.add_option("--interface", arguments.gloo.interface);
  app.add_option("--store", arguments.gloo.store);
  CLI11_PARSE(app, argc, argv);
  MPI_Init(&argc, &argv);
  try {
    motley::run(arguments);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "comm_peers: %s\n", error.what());
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  MPI_Finalize();
}
