#pragma once
#include <optional>

#include "worker/layers/layer.h"

namespace motley {

/// Token plus position embedding. Its input are the batch's tokens; it hands no gradient on. Ranks
/// that share it hold rows of the token table, the first of them the position table: their outputs
/// are parts of a sum.
class Embedding final : public Layer {
 public:
  Embedding(const ModelSpec& model, const MemberShape& shape, const ParameterLayout& layout);

  ResidualSum forward(LayerEmitter& emitter, const ResidualSum& input) override;
  Address backward(LayerEmitter& emitter, Address d_output) override;

 private:
  int64_t context_, width_;
  UnitRange vocabulary_;  // of this rank
  ParameterRange token_;
  std::optional<ParameterRange> position_;
};

}  // namespace motley
