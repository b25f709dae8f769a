#include "core/spec/codec_reader.h"

#include <gtest/gtest.h>

#include "core/spec/yaml_tree.h"

namespace motley {
namespace {

Result<CodecSpec> codec_of_yaml(const std::string& value) {
  MOTLEY_TRY(const YamlTree tree, parse_yaml("compress: " + value + "\n", "job.yaml", kJobLimits));
  return to_codec(tree.root.value(0));
}

std::string codec_error(const std::string& value) {
  const Result<CodecSpec> codec = codec_of_yaml(value);
  return codec ? "no error" : codec.error().to_string();
}

TEST(CodecReader, ReadsNamesAndMappings) {
  const std::pair<const char*, CodecSpec> cases[] = {
      {"off", {}},
      {"auto", {.kind = CodecKind::kAuto}},
      {"int8", {.kind = CodecKind::kInt8}},
      {"{type: sign}", {.kind = CodecKind::kSign}},
      {"top_k", {.kind = CodecKind::kTopK, .fraction = 0.01}},
      {"{type: top_k, fraction: 0.05, values: int8}",
       {.kind = CodecKind::kTopK, .fraction = 0.05, .values = CodecValues::kInt8}},
      {"{type: power_sgd, rank: 4, values: bf16}",
       {.kind = CodecKind::kPowerSgd, .rank = 4, .values = CodecValues::kBf16}},
      {"{type: sign, warmup: 50}", {.kind = CodecKind::kSign, .warmup = 50}},
      {"power_sgd", {.kind = CodecKind::kPowerSgd, .rank = 2}},
  };
  for (const auto& [text, expected] : cases) {
    const Result<CodecSpec> codec = codec_of_yaml(text);
    ASSERT_TRUE(codec) << codec.error().to_string();
    EXPECT_EQ(*codec, expected) << text;
  }
}

TEST(CodecReader, SaysWhatIsWrongAndWhere) {
  const std::pair<const char*, const char*> cases[] = {
      {"int4",
       "job.yaml:1:11: expected off, auto, fp16, bf16, int8, sign, top_k or power_sgd, found "
       "'int4' (did you mean 'int8'?)"},
      {"[int8]",
       "job.yaml:1:11: expected off, auto, fp16, bf16, int8, sign, top_k or power_sgd, found a "
       "list"},
      {"{type: top_k, fractoin: 0.01}",
       "job.yaml:1:25: unknown key 'fractoin' (did you mean 'fraction'?)"},
      {"{fraction: 0.01}",
       "job.yaml:1:11: 'type' is missing (off, auto, fp16, bf16, int8, sign, top_k or power_sgd)"},
      {"{type: top_k, fraction: 0.5}",
       "job.yaml:1:35: 'fraction': expected a number from 0.01 to 0.1, found '0.5'"},
      {"{type: power_sgd, rank: 5}",
       "job.yaml:1:35: 'rank': expected an integer from 1 to 4, found '5'"},
      {"{type: int8, rank: 2}", "job.yaml:1:30: 'rank' is of no use: int8 has none"},
      {"{type: power_sgd, values: int8}",
       "job.yaml:1:37: 'values' of power_sgd are fp32, fp16 or bf16: its factors are summed, which "
       "a scale for each block does not allow"},
  };
  for (const auto& [text, error] : cases) EXPECT_EQ(codec_error(text), error);
}

}  // namespace
}  // namespace motley
