#pragma once
// What a model is, mathematically: its logical tensors. No layout, no device, no plan.

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"

namespace motley {

/// A GPT as trained here: learned token and position embeddings, pre-LayerNorm blocks (multi-head
/// causal attention, GELU MLP of 4·width), final LayerNorm, head tied to the token embedding
/// (Radford et al. 2019). Dropout where GPT-2 has it on the residual stream: after the embedding
/// and at the end of each branch (not on attention probabilities).
struct ModelSpec {
  std::string type = "gpt";
  int layers = 0;
  int heads = 0;
  int width = 0;    ///< a multiple of heads
  int context = 0;  ///< tokens per sample
  int vocab = 0;
  double dropout = 0;  ///< rate while training, below 1

  // The limits keep every product of dimensions within 64 bits, far above what anyone trains.
  static constexpr int kMostLayers = 4096;
  static constexpr int kMostHeads = 4096;
  static constexpr int kMostWidth = 1 << 17;
  static constexpr int kMostContext = 1 << 20;
  static constexpr int kMostVocab = 1 << 24;

  int head_dim() const { return width / heads; }
  bool operator==(const ModelSpec&) const = default;
};

enum class Init {
  kZeros,
  kOnes,
  kNormal,
  kResidualNormal
};  ///< residual: scaled by 1/sqrt(2·layers)

/// How ranks that share a layer (tensor parallelism, Shoeybi et al. 2019) divide one of its
/// tensors: whole units of one dimension by their shares (core/holdings.h).
enum class Split {
  kNone,       ///< every rank holds all of it and computes the same gradient
  kFirst,      ///< the first rank alone holds it: what is added once to a sum of the ranks' parts
  kHeads,      ///< attention heads
  kColumns,    ///< columns of the MLP
  kVocabulary  ///< rows of the token embedding
};

/// A layer in the order of computation: 0 is the embedding, 1..layers the blocks, layers+1 the
/// final norm and head. Pipeline cuts fall between these.
using LayerIndex = int;
inline int layer_count(const ModelSpec& model) { return model.layers + 2; }

/// One parameter of the model under its own name, e.g. "block.3.attention.q.weight" of shape
/// [heads, head_dim, width].
struct LogicalTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<LayerIndex> layers;  ///< who computes with it; more than one for a tied tensor
  Init init = Init::kZeros;
  bool decay = false;  ///< weight decay applies (matrices and embeddings; not gains or biases)
  Split split = Split::kNone;
  int split_dimension = 0;  ///< of shape, where split counts units

  int64_t elements() const;
};

/// All parameters, in canonical order: the order of weights_xxh3, of flat buffers and of
/// checkpoints.
///
///   embed.token.weight [vocab, width] (tied with the head)      embed.position.weight [context,
///   width] block.N.norm1.{gain,bias} [width] block.N.attention.{q,k,v}.weight [heads, head_dim,
///   width]   block.N.attention.{q,k,v}.bias [heads, head_dim]
///     in the order q.weight k.weight v.weight q.bias k.bias v.bias, so that a rank holding all
///     heads sees one contiguous [3·width, width] matrix
///   block.N.attention.out.weight [width, heads, head_dim]       block.N.attention.out.bias [width]
///   block.N.norm2.{gain,bias} [width]
///   block.N.mlp.up.weight [4·width, width]                      block.N.mlp.up.bias [4·width]
///   block.N.mlp.down.weight [width, 4·width]                    block.N.mlp.down.bias [width]
///   norm.{gain,bias} [width]
std::vector<LogicalTensor> logical_tensors(const ModelSpec& model);
/// Those of the layers from `first` to `last`.
std::vector<LogicalTensor> logical_tensors(const ModelSpec& model, LayerIndex first,
                                           LayerIndex last);

int64_t parameter_count(const ModelSpec& model);

/// kInvalidSpec when a dimension is out of range or width is not a multiple of heads.
Result<Unit> validate(const ModelSpec& model);

/// The value of element `index` (row-major) of tensor number `tensor` (canonical order) before
/// training.
float initial_value(const ModelSpec& model, const LogicalTensor& tensor, int tensor_number,
                    int64_t index, uint64_t seed);

}  // namespace motley
