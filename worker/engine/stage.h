#pragma once
// The programs of one stage: a range of layers, or one rank's share of them, composed for a
// micro-batch size.

#include "core/holdings.h"
#include "core/model.h"
#include "core/spec/fleet_spec.h"
#include "core/spec/job_spec.h"
#include "worker/program/parameters.h"
#include "worker/program/program.h"

namespace motley {

/// What decides a stage's programs; of the device only what needs no hardware.
struct StageSpec {
  ModelSpec model;
  Numerics numerics = Numerics::kFast;
  StagePlan layers;   ///< whole_model() for all of them
  int member = 0;     ///< of the ranks that share them
  int in_flight = 1;  ///< micro-batches between forward and backward pass at once
  Precision precision = Precision::kFp32;  ///< of the device
  DeviceKind kind = DeviceKind::kCpu;      ///< the same
  int threads = 1;
  bool scale_loss = false;  ///< by what ExchangeLayout::loss_scale holds
  uint64_t seed = 0;        ///< of dropout's masks

  /// Of an element of weights, gradients, losses.
  int element_bytes() const { return full_bytes(precision); }
  /// Of what passes between stages.
  int boundary_element_bytes() const { return reduced_bytes(precision); }
  bool has_embedding() const { return layers.first_layer == 0; }
  bool has_head() const { return layers.last_layer + 1 == layer_count(model); }
  MemberShape shape() const { return member_shape(model, layers.shares, member); }
  /// Rows behind the table of tokens that the head reads: vocabulary_padding().
  int64_t padding_rows() const;
};

/// Offsets in the memory that host and programs share, the same for every micro-batch up to
/// `largest` samples: a common part, then one slot for each micro-batch in flight.
struct ExchangeLayout {
  ExchangeLayout(const StageSpec& stage, int largest);

  int64_t rows = 0;  ///< largest · context
  // In the common part:
  Bytes overflow{0};    ///< int64 flag
  Bytes loss_scale{0};  ///< double
  Bytes exponent{0};    ///< int32, of what exact quantises
  Bytes landing{0};     ///< of a GPU, twice: where the samples of the next slots arrive
  Bytes common_size{0};
  // In each slot; those that the stage has no use for are empty.
  Bytes position{0};  ///< int64 [2]: step, first sample
  Bytes tokens{0};    ///< int32 [samples, context]
  Bytes targets{0};   ///< int32 [samples, context]
  Bytes losses{0};    ///< [samples, context] in full precision; behind all that samples bring
  Bytes input{0};     ///< [rows, width] elements, from the stage before
  Bytes output{0};    ///< [rows, width] elements for the next stage, then its gradient
  Bytes d_input{0};   ///< [rows, width] elements for the stage before
  Bytes slot_size{0};

  Bytes landing_at(int number) const { return Bytes(landing.value() + number * losses.value()); }
  Bytes slot(int number) const { return Bytes(common_size.value() + number * slot_size.value()); }
  Bytes size(int slots) const { return slot(slots); }
};

/// Elements of the copy of the parameters in reduced precision: as many, and what the head reads
/// beyond their end. None where there is no copy.
int64_t rounded_elements(const StageSpec& stage, const ParameterLayout& parameters);

/// Forward and backward of `samples` samples.
Program compile_training(const StageSpec& stage, const ParameterLayout& parameters,
                         const ExchangeLayout& exchange, int samples);

/// Forward alone, with losses. `output` becomes the address of the last layer's output, valid after
/// the program has run: the logits, where the stage has the head.
Program compile_forward(const StageSpec& stage, const ParameterLayout& parameters,
                        const ExchangeLayout& exchange, int samples, Address* output);

}  // namespace motley
