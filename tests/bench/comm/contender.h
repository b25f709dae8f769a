#pragma once
// Libraries that sum floats over the ranks of an mpirun, measured beside ours.

#include <cstddef>
#include <memory>
#include <span>
#include <string>

namespace motley {

/// One library's sum. Calls are collective: every rank makes them, with the same count.
class Contender {
 public:
  virtual ~Contender() = default;

  /// Gets ready for sums of `count` floats. Returns where this rank's go before each of them.
  virtual std::span<float> prepare(size_t count) = 0;

  /// Sums; returns where the sums lie. They may be in the place of what was put in.
  virtual std::span<const float> all_reduce() = 0;
};

/// MPI_Allreduce, from one buffer into another: HAN of Open MPI 4.1.4 crashes in place.
std::unique_ptr<Contender> mpi_contender();

struct GlooOptions {
  bool halving_doubling = false;  ///< else the ring in chunks
  int rank = 0;
  int size = 1;
  std::string interface;  ///< of the network that it uses, as "eth0"
  std::string store;      ///< an empty directory that all ranks see, to find each other by
};

/// Gloo over TCP; connects to the other ranks. Throws what Gloo throws.
std::unique_ptr<Contender> gloo_contender(const GlooOptions& options);

}  // namespace motley
