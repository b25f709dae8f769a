#pragma once
// A layer knows its mathematics and emits it as operations, once for all devices. It keeps between
// forward() and backward() only the addresses of what it saved.

#include "core/holdings.h"
#include "core/spec/fleet_spec.h"
#include "core/spec/job_spec.h"
#include "worker/program/parameters.h"
#include "worker/program/program.h"

namespace motley {

/// The micro-batch a program computes, and where it exchanges data with the host.
struct MicroBatch {
  int64_t samples = 0;
  int64_t context = 0;
  Address tokens;      ///< int32 [samples, context]
  Address targets;     ///< int32 [samples, context]
  Address losses;      ///< [samples, context] statistics, written by the head
  Address position;    ///< int64 [2]: the step and the first sample's number in its global batch
  Address overflow;    ///< int64 flag, exact only
  Address exponent;    ///< int32, AccumulateFixedArgs::exponent; exact only
  Address loss_scale;  ///< double, CrossEntropyArgs::scale; null: 1

  int64_t rows() const { return samples * context; }
};

/// Where an operation leaves the gradient of some parameters.
struct GradientTarget {
  ParameterRange range;
  Address address;
  bool accumulate = false;  ///< whether the operation adds to what is there
};

struct ResidualSum;

/// What layers emit into: a program, with the parameters' places and the way gradients are summed.
class LayerEmitter {
 public:
  struct Options {
    Numerics numerics = Numerics::kFast;
    bool training = true;  ///< false: forward only, nothing is saved for a backward pass
    DeviceKind kind = DeviceKind::kCpu;  ///< which sizes workspaces, with
    int threads = 1;                     ///< Device::threads
    MemberShape shape;                   ///< what of the layers this rank computes
    double dropout = 0;                  ///< rate; 0 unless training
    uint64_t seed = 0;                   ///< of dropout's masks
  };
  LayerEmitter(ProgramBuilder& builder, const MicroBatch& batch, const Options& options)
      : builder_(builder), batch_(batch), options_(options) {}

  const MicroBatch& batch() const { return batch_; }
  const Options& options() const { return options_; }
  Precision precision() const { return builder_.precision(); }

  template <class Args>
  void emit(const Args& args) {
    builder_.emit(args);
  }
  Address activation(int64_t elements) { return builder_.activation(elements); }
  Address statistic(int64_t elements) { return builder_.statistic(elements); }
  const MemberShape& shape() const { return options_.shape; }
  /// Where ranks share the layers: the activations `data`, of which each has computed a part,
  /// becomes the sum.
  void sum_parts(Address data, int64_t count);
  /// Of statistics: `all` gets the `count` elements of `own` of each of them, by member.
  void gather_parts(Address own, Address all, int64_t count) {
    builder_.emit(GroupGather{.own = own, .all = all, .count = count});
  }
  /// Weights for products and sums of activations: ElementType::kReduced.
  Address rounded_parameter(ParameterRange range);
  /// Weights in full precision.
  Address parameter(ParameterRange range);

  /// The sum, computed.
  Address add_up(const ResidualSum& sum, int64_t count);

  /// Dropout number `place` of the layer being emitted, on [rows, width] elements in place.
  void drop(Address data, int64_t width, int place);
  /// The gradient before it of `d_data`, which is left alone: `d_data` itself without dropout.
  Address drop_gradient(Address d_data, int64_t width, int place);

  /// Fast: the gradient buffer, added to in place. Exact: a buffer of its own, since each
  /// contribution of a grain is quantised by itself. Call finish_gradient once it is written.
  GradientTarget begin_gradient(ParameterRange range);
  void finish_gradient(const GradientTarget& target);

 private:
  void emit_dropout(Address in, Address out, int64_t width, int place);

  ProgramBuilder& builder_;
  MicroBatch batch_;
  Options options_;
};

/// What passes between layers: the residual stream, and the branch that is still to be added to it,
/// so that whoever reads the sum first may compute it on the way. The branch's buffer may become
/// the sum's; the stream is not changed.
struct ResidualSum {
  Address stream;
  Address branch = {};  ///< null: the stream is the sum
};

class Layer {
 public:
  virtual ~Layer() = default;

  /// Emits the forward pass and returns the output. `input` may be read until backward().
  virtual ResidualSum forward(LayerEmitter& emitter, const ResidualSum& input) = 0;

  /// Emits the backward pass: takes the gradient of the output, whose buffer it may reuse, and
  /// returns that of the input; null where there is none.
  virtual Address backward(LayerEmitter& emitter, Address d_output) = 0;
};

}  // namespace motley
