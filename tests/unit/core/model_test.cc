#include "core/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

namespace motley {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kVocab = 11;
ModelSpec small_model() {
  return {.layers = 2, .heads = 3, .width = 15, .context = 5, .vocab = kVocab};
}

const LogicalTensor& find(const std::vector<LogicalTensor>& tensors, const std::string& name) {
  for (const LogicalTensor& tensor : tensors)
    if (tensor.name == name) return tensor;
  ADD_FAILURE() << "no tensor " << name;
  return tensors.front();
}

TEST(LogicalTensors, FirstBlockInCanonicalOrder) {
  const auto tensors = logical_tensors(small_model());
  std::vector<std::string> names;
  for (size_t i = 0; i < 18; ++i) names.push_back(tensors[i].name);
  EXPECT_THAT(
      names,
      ElementsAre("embed.token.weight", "embed.position.weight", "block.0.norm1.gain",
                  "block.0.norm1.bias", "block.0.attention.q.weight", "block.0.attention.k.weight",
                  "block.0.attention.v.weight", "block.0.attention.q.bias",
                  "block.0.attention.k.bias", "block.0.attention.v.bias",
                  "block.0.attention.out.weight", "block.0.attention.out.bias",
                  "block.0.norm2.gain", "block.0.norm2.bias", "block.0.mlp.up.weight",
                  "block.0.mlp.up.bias", "block.0.mlp.down.weight", "block.0.mlp.down.bias"));
  EXPECT_EQ(tensors.size(), 2u + 2 * 16 + 2);
  EXPECT_EQ(tensors.back().name, "norm.bias");
  std::set<std::string> unique;
  for (const LogicalTensor& tensor : tensors) unique.insert(tensor.name);
  EXPECT_EQ(unique.size(), tensors.size());
}

TEST(LogicalTensors, ShapesLayersAndDecay) {
  const auto tensors = logical_tensors(small_model());
  EXPECT_THAT(find(tensors, "embed.token.weight").layers, ElementsAre(0, 3));
  EXPECT_THAT(find(tensors, "embed.position.weight").layers, ElementsAre(0));
  EXPECT_THAT(find(tensors, "norm.gain").layers, ElementsAre(3));
  const LogicalTensor& k = find(tensors, "block.1.attention.k.weight");
  EXPECT_THAT(k.shape, ElementsAre(3, 5, 15));
  EXPECT_THAT(k.layers, ElementsAre(2));
  EXPECT_TRUE(k.decay);
  EXPECT_THAT(find(tensors, "block.1.attention.out.weight").shape, ElementsAre(15, 3, 5));
  EXPECT_THAT(find(tensors, "block.0.mlp.down.weight").shape, ElementsAre(15, 60));
  for (const LogicalTensor& tensor : tensors)
    EXPECT_EQ(tensor.decay, tensor.name.ends_with("weight")) << tensor.name;
}

TEST(LogicalTensors, OfSomeLayersAreThoseThatTheyComputeWith) {
  const ModelSpec model = small_model();
  const std::vector<LogicalTensor> all = logical_tensors(model);
  for (LayerIndex first = 0; first < layer_count(model); ++first)
    for (LayerIndex last = first; last < layer_count(model); ++last) {
      std::vector<std::string> expected, names;
      for (const LogicalTensor& tensor : all)
        if (std::any_of(tensor.layers.begin(), tensor.layers.end(),
                        [&](LayerIndex layer) { return layer >= first && layer <= last; }))
          expected.push_back(tensor.name);
      for (const LogicalTensor& tensor : logical_tensors(model, first, last))
        names.push_back(tensor.name);
      EXPECT_EQ(names, expected) << first << " to " << last;
    }
}

TEST(ParameterCount, OfGpt2IsTheKnownNumber) {
  EXPECT_EQ(
      parameter_count({.layers = 12, .heads = 12, .width = 768, .context = 1024, .vocab = 50257}),
      124439808);
}

TEST(ValidateModel, NamesTheKeyAndItsRange) {
  EXPECT_TRUE(validate(small_model()));
  ModelSpec model = small_model();
  model.width = 16;
  EXPECT_THAT(validate(model).error().message, HasSubstr("not a multiple of model.heads 3"));
  model = small_model();
  model.context = 0;
  EXPECT_THAT(validate(model).error().message, HasSubstr("model.context is 0"));
  model = small_model();
  model.type = "bert";
  EXPECT_EQ(validate(model).error().code, ErrorCode::kInvalidSpec);
  model = small_model();
  model.layers = -1;
  EXPECT_FALSE(validate(model));
}

TEST(InitialValue, FollowsTheTensorsKind) {
  const ModelSpec model = {.layers = 8, .heads = 1, .width = 64, .context = 5, .vocab = kVocab};
  const auto tensors = logical_tensors(model);
  for (size_t number = 0; number < tensors.size(); ++number) {
    const LogicalTensor& tensor = tensors[number];
    double square_sum = 0;
    for (int64_t i = 0; i < tensor.elements(); ++i)
      square_sum += std::pow(initial_value(model, tensor, static_cast<int>(number), i, 1), 2);
    const double rms = std::sqrt(square_sum / static_cast<double>(tensor.elements()));
    const bool residual =
        tensor.name.ends_with("out.weight") || tensor.name.ends_with("down.weight");
    const double expected = tensor.name.ends_with("gain")   ? 1
                            : tensor.name.ends_with("bias") ? 0
                            : residual                      ? 0.02 / 4
                                                            : 0.02;
    // Five standard errors of the deviation of the smallest tensor.
    EXPECT_NEAR(rms, expected, 5 * expected / std::sqrt(2.0 * 5 * 64)) << tensor.name;
  }
}

TEST(InitialValue, DiffersByTensorElementAndSeed) {
  const ModelSpec model = small_model();
  const LogicalTensor tensor = logical_tensors(model)[0];
  const float value = initial_value(model, tensor, 0, 0, 1);
  EXPECT_EQ(value, initial_value(model, tensor, 0, 0, 1));
  EXPECT_NE(value, initial_value(model, tensor, 1, 0, 1));
  EXPECT_NE(value, initial_value(model, tensor, 0, 1, 1));
  EXPECT_NE(value, initial_value(model, tensor, 0, 0, 2));
}

}  // namespace
}  // namespace motley
