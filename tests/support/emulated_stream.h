#pragma once
// How a stand-in for one of NVIDIA's libraries finds the streams of an emulated GPU
// (tests/support/cuda_on_host): what such a GPU calls a cudaStream_t points to one of these.

#include <functional>

namespace motley::testing {

class EmulatedStream {
 public:
  virtual ~EmulatedStream() = default;

  /// `piece` runs behind all that was enqueued before; as long as it returns false it is not done,
  /// is run again, and what was enqueued later waits. Any thread may come to run it.
  virtual void enqueue(std::function<bool()> piece) = 0;
};

}  // namespace motley::testing
