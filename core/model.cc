#include "core/model.h"

#include <algorithm>
#include <cmath>

#include "core/philox.h"

namespace motley {

namespace {

// Standard deviation of every matrix and embedding at the start (Radford et al. 2019).
constexpr double kInitialDeviation = 0.02;

/// Appends tensors in canonical order.
class TensorList {
 public:
  void add(std::string name, std::vector<int64_t> shape, std::vector<LayerIndex> layers, Init init,
           Split split, int split_dimension = 0) {
    const bool decay = init == Init::kNormal || init == Init::kResidualNormal;
    tensors_.push_back({std::move(name), std::move(shape), std::move(layers), init, decay, split,
                        split_dimension});
  }

  void add_norm(const std::string& name, int64_t width, LayerIndex layer) {
    add(name + ".gain", {width}, {layer}, Init::kOnes, Split::kNone);
    add(name + ".bias", {width}, {layer}, Init::kZeros, Split::kNone);
  }

  void add_block(const ModelSpec& model, int number) {
    const std::string block = "block." + std::to_string(number) + ".";
    const LayerIndex layer = number + 1;
    const int64_t width = model.width;
    const int64_t heads = model.heads;
    const int64_t head_dim = model.head_dim();
    add_norm(block + "norm1", width, layer);
    for (const char* part : {"q", "k", "v"})
      add(block + "attention." + part + ".weight", {heads, head_dim, width}, {layer}, Init::kNormal,
          Split::kHeads);
    for (const char* part : {"q", "k", "v"})
      add(block + "attention." + part + ".bias", {heads, head_dim}, {layer}, Init::kZeros,
          Split::kHeads);
    add(block + "attention.out.weight", {width, heads, head_dim}, {layer}, Init::kResidualNormal,
        Split::kHeads, 1);
    add(block + "attention.out.bias", {width}, {layer}, Init::kZeros, Split::kFirst);
    add_norm(block + "norm2", width, layer);
    add(block + "mlp.up.weight", {4 * width, width}, {layer}, Init::kNormal, Split::kColumns);
    add(block + "mlp.up.bias", {4 * width}, {layer}, Init::kZeros, Split::kColumns);
    add(block + "mlp.down.weight", {width, 4 * width}, {layer}, Init::kResidualNormal,
        Split::kColumns, 1);
    add(block + "mlp.down.bias", {width}, {layer}, Init::kZeros, Split::kFirst);
  }

  std::vector<LogicalTensor> take() { return std::move(tensors_); }

 private:
  std::vector<LogicalTensor> tensors_;
};

Result<Unit> check_range(const char* key, int value, int highest) {
  if (value >= 1 && value <= highest) return Unit{};
  return fail(ErrorCode::kInvalidSpec, "model." + std::string(key) + " is " +
                                           std::to_string(value) + "; it must be 1 to " +
                                           std::to_string(highest));
}

}  // namespace

int64_t LogicalTensor::elements() const {
  int64_t product = 1;
  for (int64_t extent : shape) product *= extent;
  return product;
}

std::vector<LogicalTensor> logical_tensors(const ModelSpec& model) {
  return logical_tensors(model, 0, model.layers + 1);
}

std::vector<LogicalTensor> logical_tensors(const ModelSpec& model, LayerIndex first,
                                           LayerIndex last) {
  TensorList list;
  const LayerIndex head = model.layers + 1;
  if (first == 0 || last == head)
    list.add("embed.token.weight", {model.vocab, model.width}, {0, head}, Init::kNormal,
             Split::kVocabulary);
  if (first == 0)
    list.add("embed.position.weight", {model.context, model.width}, {0}, Init::kNormal,
             Split::kFirst);
  for (LayerIndex layer = std::max(first, 1); layer <= std::min(last, model.layers); ++layer)
    list.add_block(model, layer - 1);
  if (last == head) list.add_norm("norm", model.width, head);
  return list.take();
}

int64_t parameter_count(const ModelSpec& model) {
  if (model.layers > 2) {  // blocks are alike, and a list of all their tensors is long
    ModelSpec one = model, two = model;
    one.layers = 1;
    two.layers = 2;
    const int64_t least = parameter_count(one);
    return least + (model.layers - 1) * (parameter_count(two) - least);
  }
  int64_t count = 0;
  for (const LogicalTensor& tensor : logical_tensors(model)) count += tensor.elements();
  return count;
}

Result<Unit> validate(const ModelSpec& model) {
  if (model.type != "gpt")
    return fail(ErrorCode::kInvalidSpec, "model.type is '" + model.type + "'; known: gpt");
  MOTLEY_TRY_VOID(check_range("layers", model.layers, ModelSpec::kMostLayers));
  MOTLEY_TRY_VOID(check_range("heads", model.heads, ModelSpec::kMostHeads));
  MOTLEY_TRY_VOID(check_range("width", model.width, ModelSpec::kMostWidth));
  MOTLEY_TRY_VOID(check_range("context", model.context, ModelSpec::kMostContext));
  MOTLEY_TRY_VOID(check_range("vocab", model.vocab, ModelSpec::kMostVocab));
  if (model.width % model.heads != 0)
    return fail(ErrorCode::kInvalidSpec, "model.width " + std::to_string(model.width) +
                                             " is not a multiple of model.heads " +
                                             std::to_string(model.heads));
  if (!(model.dropout >= 0 && model.dropout < 1))
    return fail(ErrorCode::kInvalidSpec, "model.dropout must be at least 0 and below 1");
  return Unit{};
}

float initial_value(const ModelSpec& model, const LogicalTensor& tensor, int tensor_number,
                    int64_t index, uint64_t seed) {
  double deviation = kInitialDeviation;
  switch (tensor.init) {
    case Init::kZeros:
      return 0;
    case Init::kOnes:
      return 1;
    case Init::kNormal:
      break;
    case Init::kResidualNormal:
      deviation /= std::sqrt(2.0 * model.layers);
      break;
  }
  const float normal = random_normal(seed, RandomUse::kInit, static_cast<uint32_t>(tensor_number),
                                     static_cast<uint64_t>(index));
  return static_cast<float>(deviation * normal);
}

}  // namespace motley
