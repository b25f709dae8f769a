#pragma once
// How cuDNN computes a graph: with which of its engines, in how much memory.

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/cuda/cudnn_graph.h"

namespace motley::cudnn {

/// The device that an engine is for: that of the handle or, where there is none, the one described.
struct Target {
  Handle handle = nullptr;
  std::string description;  ///< JSON, as the library writes it of a device (kDeviceJson)
};

struct Engine {
  Descriptor config = nullptr;
  int64_t workspace = 0;  ///< bytes
};

/// Engines that the library has for the graph on the target, its own choice first, that need no
/// more workspace than `most` and do not say of themselves that results differ from run to run.
/// What keeps the others from it is the library's secret (CUDNN_LOGLEVEL_DBG=2 tells it).
std::vector<Engine> usable_engines(Descriptors& descriptors, Descriptor graph, const Target& target,
                                   int64_t most_workspace);

/// What the tensor `id` of a graph is: device memory or, for a scalar, the host's.
struct Argument {
  int64_t id = 0;
  void* data = nullptr;
};

/// A graph ready to run on the device of a handle.
class Plan {
 public:
  using MakeGraph = std::function<Descriptor(Descriptors& descriptors)>;
  /// Compiles kernels, which takes about a second. kUnsupported with one line where no engine
  /// serves.
  static Result<std::unique_ptr<Plan>> make(const Library& library, Handle handle,
                                            const MakeGraph& graph, int64_t most_workspace);

  /// On the handle's stream.
  Status run(Handle handle, std::span<const Argument> arguments, void* workspace) const;

 private:
  explicit Plan(const Library& library) : descriptors_(library) {}
  bool finish(Handle handle, const Engine& engine, int64_t most_workspace);

  Descriptors descriptors_;
  Descriptor plan_ = nullptr;
};

}  // namespace motley::cudnn
