#pragma once
// A rank's computation as data: operations in order, every buffer placed in one arena by liveness.
// Built once, run every step without allocation or branching.

#include <cstdint>
#include <vector>

#include "core/ids.h"
#include "core/model.h"
#include "core/precision.h"
#include "kernels/op_table.h"

namespace motley {

/// Which memory a symbol lies in. Those of the program itself are placed by liveness; the others
/// have fixed offsets.
enum class Segment {
  kParameters,
  kRounded,  ///< the same in the precision the device computes in, where that is a reduced one
  kGradients,
  kExchange,    ///< what host and program tell each other, whatever the micro-batch: flags, norms
  kSlot,        ///< the same for one micro-batch in flight: tokens, losses, what neighbours send
  kKept,        ///< placed: from forward to backward pass, for one micro-batch in flight
  kActivations  ///< placed: within one pass
};

struct Symbol {
  Segment segment = Segment::kActivations;
  Bytes offset{0};  ///< in its segment; for placed ones set by ProgramBuilder::finish
  Bytes size{0};
  int first_use = -1, last_use = -1;  ///< indices of instructions, inclusive; -1: never used
};

/// Of activations: data[i] = Σ over the ranks that share the stage's layers.
struct GroupSum {
  Address data;
  int64_t count = 0;

  template <class V>
  void operands(V&& v) {
    v.update(reduced(data, count));
  }
};

/// Of statistics: all[member] = that member's `own`, both of `count` elements a member.
struct GroupGather {
  Address own, all;
  int64_t count = 0;

  template <class V>
  void operands(V&& v) {
    v.read(full(own, count));
    v.write(full(all, 0));  // `count` for each member
  }
};

using Work = std::variant<OpCall, GroupSum, GroupGather>;

struct Instruction {
  Work work;
  LayerIndex layer = 0;
  double flops = 0;
};

/// A run of the segment kGradients that no instruction behind `after` uses.
struct FinalGradients {
  size_t after = 0;  ///< index of an instruction
  Bytes offset{0};
  Bytes size{0};
};

/// A run of the segment kParameters that instructions from `before` on use.
struct NeededWeights {
  size_t before = 0;  ///< index of an instruction
  Bytes offset{0};
  Bytes size{0};
};

struct Program {
  std::vector<Instruction> instructions;
  size_t backward = 0;  ///< index of the backward pass's first instruction
  std::vector<Symbol> symbols;
  std::vector<FinalGradients> final_gradients;  ///< tile those it computes; `after` never falls
  std::vector<NeededWeights> needed_weights;    ///< of the forward pass; `before` never falls
  Bytes kept{0};                                ///< what the segment kKept needs
  Bytes arena{0};                               ///< what kActivations needs

  double flops() const;
};

/// Where the segments lie on a device.
struct SegmentBases {
  std::byte* parameters = nullptr;
  std::byte* rounded = nullptr;
  std::byte* gradients = nullptr;
  std::byte* exchange = nullptr;
  std::byte* slot = nullptr;
  std::byte* kept = nullptr;
  std::byte* activations = nullptr;
};

/// Collects the operations of a program. Layers call it in the order of computation, forward then
/// backward; the same code serves all devices.
class ProgramBuilder {
 public:
  /// Of the device that will run it.
  explicit ProgramBuilder(Precision precision) : precision_(precision) {}

  Precision precision() const { return precision_; }
  Address fixed(Segment segment, Bytes offset, Bytes size);
  /// A buffer of ElementType::kReduced that lives from its first use, which must write it, to its
  /// last.
  Address activation(int64_t elements);
  /// The same of ElementType::kFull.
  Address statistic(int64_t elements);

  /// What the operations emitted from here on belong to.
  void set_layer(LayerIndex layer) { layer_ = layer; }
  LayerIndex layer() const { return layer_; }
  void begin_backward() { program_.backward = program_.instructions.size(); }
  template <class Args>
  void emit(const Args& args) {
    program_.instructions.push_back({OpCall(args), layer_, args.flops()});
  }
  void emit(const GroupSum& sum) { program_.instructions.push_back({sum, layer_, 0}); }
  void emit(const GroupGather& gather) { program_.instructions.push_back({gather, layer_, 0}); }

  /// Computes liveness, places the symbols (worker/program/placement.h) and finds where gradients
  /// are final and weights needed (worker/program/final_gradients.h). Ends the builder. With
  /// `keep_apart`, what lives from the forward to the backward pass gets a segment of its own, so
  /// that several micro-batches can be between the two.
  Program finish(bool keep_apart);

 private:
  Address add(const Symbol& symbol);
  Address add_placed(Bytes size);

  Precision precision_;
  LayerIndex layer_ = 0;
  Program program_;
};

/// The program with every symbol replaced by its address.
std::vector<Instruction> bind(const Program& program, const SegmentBases& bases);

/// Where `address` of `program` lies once bound.
Address bind(const Program& program, const SegmentBases& bases, Address address);

}  // namespace motley
