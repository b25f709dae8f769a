#pragma once
// A rank's computation as data: operations in order, every buffer placed in one arena by liveness.
// Built once, run every step without allocation or branching.

#include <cstdint>
#include <vector>

#include "core/ids.h"
#include "core/model.h"
#include "kernels/op_table.h"

namespace motley {

/// Which memory a symbol lies in. Activations are placed by liveness; the others have fixed
/// offsets.
enum class Segment {
  kParameters,
  kGradients,
  kExchange,  ///< what host and program tell each other: tokens, targets, losses, flags
  kActivations
};

struct Symbol {
  Segment segment = Segment::kActivations;
  Bytes offset{0};  ///< in its segment; for activations set by ProgramBuilder::finish
  Bytes size{0};
  int first_use = -1, last_use = -1;  ///< indices of instructions, inclusive; -1: never used
};

struct Instruction {
  OpCall call;
  LayerIndex layer = 0;
  bool backward = false;
};

struct Program {
  std::vector<Instruction> instructions;
  std::vector<Symbol> symbols;
  Bytes arena{0};  ///< what the activations need

  double flops() const;
};

/// Where the segments lie on a device.
struct SegmentBases {
  std::byte* parameters = nullptr;
  std::byte* gradients = nullptr;
  std::byte* exchange = nullptr;
  std::byte* activations = nullptr;
};

/// Collects the operations of a program. Layers call it in the order of computation, forward then
/// backward; the same code serves all devices.
class ProgramBuilder {
 public:
  /// element_bytes: 4 or 8, Device::element_bytes.
  explicit ProgramBuilder(int element_bytes) : element_bytes_(element_bytes) {}

  int element_bytes() const { return element_bytes_; }
  Address fixed(Segment segment, Bytes offset, Bytes size);
  /// A buffer that lives from its first use, which must write it, to its last.
  Address activation(int64_t elements);

  /// What the operations emitted from here on belong to.
  void set_layer(LayerIndex layer, bool backward) {
    layer_ = layer;
    backward_ = backward;
  }
  template <class Args>
  void emit(const Args& args) {
    program_.instructions.push_back({OpCall(args), layer_, backward_});
  }

  /// Computes liveness and places the activations (worker/program/placement.h). Ends the builder.
  Program finish();

 private:
  Address add(const Symbol& symbol);

  int element_bytes_;
  LayerIndex layer_ = 0;
  bool backward_ = false;
  Program program_;
};

/// The program with every symbol replaced by its address.
std::vector<Instruction> bind(const Program& program, const SegmentBases& bases);

/// Where `address` of `program` lies once bound.
Address bind(const Program& program, const SegmentBases& bases, Address address);

}  // namespace motley
