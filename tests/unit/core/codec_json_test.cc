#include "core/spec/codec_json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/compression.h"

namespace motley {
namespace {

using Json = nlohmann::json;

std::string codec_fault_of(const Json& written, CodecSpec* codec) {
  const Json document = {{"compress", written}};
  JsonFields fields(document);
  read_codec(fields, "compress", *codec);
  const Result<Unit> done = fields.done();
  return done ? "" : done.error().message;
}

TEST(CodecJson, EveryKindComesBack) {
  std::vector<CodecSpec> codecs;
  for (const CodecKind kind : {CodecKind::kOff, CodecKind::kAuto, CodecKind::kFp16,
                               CodecKind::kBf16, CodecKind::kInt8, CodecKind::kSign})
    codecs.emplace_back().kind = kind;
  for (const CodecValues values :
       {CodecValues::kFp32, CodecValues::kFp16, CodecValues::kBf16, CodecValues::kInt8}) {
    codecs.push_back({.kind = CodecKind::kTopK, .fraction = 0.037, .values = values});
    codecs.push_back({.kind = CodecKind::kPowerSgd, .rank = 4, .values = values});
  }
  codecs.push_back({.kind = CodecKind::kSign, .warmup = 50});
  codecs.push_back({.kind = CodecKind::kTopK, .fraction = 0.05, .warmup = 0});
  for (const CodecSpec& codec : codecs) {
    CodecSpec back;
    EXPECT_EQ(codec_fault_of(Json::parse(to_json(codec).dump()), &back), "");
    EXPECT_EQ(back, codec) << to_json(codec);
  }
  EXPECT_EQ(to_json(codecs[4]), "int8");
}

TEST(CodecJson, FaultsNameTheirPlace) {
  CodecSpec codec;
  EXPECT_EQ(codec_fault_of("int3", &codec), "/compress: unknown word 'int3'");
  EXPECT_EQ(codec_fault_of(7, &codec), "/compress: expected a string, found a number");
  const Json top_k = {{"type", "top_k"}, {"values", "fp32"}, {"fraction", 0.01}};
  Json spoilt = top_k;
  spoilt["rank"] = 2;
  EXPECT_EQ(codec_fault_of(spoilt, &codec).rfind("/compress: unknown key 'rank'", 0), 0U);
  spoilt = top_k;
  spoilt.erase("fraction");
  EXPECT_NE(codec_fault_of(spoilt, &codec).find("'fraction' is missing"), std::string::npos);
}

TEST(CodecSpec, RangesAreChecked) {
  const auto fault = [](const CodecSpec& codec) {
    const std::optional<CodecFault> found = first_fault(codec);
    return found ? found->what : "";
  };
  EXPECT_EQ(fault({}), "");
  EXPECT_EQ(fault({.kind = CodecKind::kTopK, .fraction = 0.1}), "");
  EXPECT_EQ(fault({.kind = CodecKind::kTopK, .fraction = 0.2}),
            "'fraction' must be from 0.01 to 0.1");
  EXPECT_EQ(fault({.kind = CodecKind::kTopK, .fraction = std::nan("")}),
            "'fraction' must be from 0.01 to 0.1");
  EXPECT_EQ(fault({.kind = CodecKind::kPowerSgd, .rank = 5}), "'rank' must be from 1 to 4");
  EXPECT_EQ(fault({.kind = CodecKind::kInt8, .rank = 1}), "'rank' is of no use: int8 has none");
  EXPECT_EQ(fault({.kind = CodecKind::kSign, .values = CodecValues::kFp16}),
            "'values' is of no use: sign has none");
  EXPECT_EQ(fault({.warmup = 1}), "'warmup' is of no use: off has none");
  EXPECT_EQ(fault({.kind = CodecKind::kPowerSgd, .warmup = 1}),
            "'warmup' is of no use: power_sgd has none");
  EXPECT_EQ(fault({.kind = CodecKind::kSign, .warmup = -1}),
            "'warmup' must be from 0 to 1000000000 steps");
  EXPECT_NE(fault({.kind = CodecKind::kPowerSgd, .values = CodecValues::kInt8}), "");
}

TEST(CodecSpec, IsToldToPeople) {
  EXPECT_EQ(to_text({}), "off");
  EXPECT_EQ(to_text({.kind = CodecKind::kTopK}), "top_k 1%");
  EXPECT_EQ(to_text({.kind = CodecKind::kTopK, .fraction = 0.025, .values = CodecValues::kFp16}),
            "top_k 2.5% in fp16");
  EXPECT_EQ(to_text({.kind = CodecKind::kPowerSgd, .rank = 2}), "power_sgd of rank 2");
  EXPECT_EQ(to_text({.kind = CodecKind::kSign, .warmup = 50}), "sign after 50 steps");
}

TEST(CodecSpec, WarmUpFollowsFromTheStep) {
  const CodecSpec sign{.kind = CodecKind::kSign, .warmup = 50};
  EXPECT_EQ(codec_in_step(sign, 50), CodecSpec{});
  EXPECT_EQ(codec_in_step(sign, 51), sign);
  const CodecSpec at_once{.kind = CodecKind::kTopK, .warmup = 0};
  EXPECT_EQ(codec_in_step(at_once, 1), at_once);
  const CodecSpec int8{.kind = CodecKind::kInt8};
  EXPECT_EQ(codec_in_step(int8, 1), int8);
}

TEST(CodecSpec, TopKSendsLessByAndBy) {
  const CodecSpec codec{.kind = CodecKind::kTopK, .fraction = 0.01, .warmup = 50};
  EXPECT_EQ(codec_in_step(codec, 50), CodecSpec{});
  double before = 0.25;
  for (int step = 51; step < 150; ++step) {
    const CodecSpec now = codec_in_step(codec, step);
    EXPECT_LT(now.fraction, before) << step;
    EXPECT_GT(now.fraction, codec.fraction) << step;
    EXPECT_LT(encoded_bytes(now, 1000), 4000) << step;  // buffers are made for what is not encoded
    before = now.fraction;
  }
  EXPECT_NEAR(codec_in_step(codec, 100).fraction, std::sqrt(0.01 * 0.25), 1e-9);
  EXPECT_EQ(codec_in_step(codec, 150), codec);
}

}  // namespace
}  // namespace motley
