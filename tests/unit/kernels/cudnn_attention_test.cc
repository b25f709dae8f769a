// Attention through cuDNN, with a stand-in for the library, in the host's memory.

#include "kernels/cuda/cudnn_attention.h"

#include <gmock/gmock.h>

#include <cmath>
#include <utility>
#include <vector>

#include "core/reduced_floats.h"
#include "tests/support/paths.h"

namespace motley::cudnn {
namespace {

using ::testing::HasSubstr;

std::string stand_in(const std::string& name) {
  return (testing::bin_dir().parent_path() / "lib/stand_in" / (name + ".so")).string();
}

const Library& library() {
  static const auto opened = Library::open(stand_in("cudnn_stand_in").c_str());
  return **opened;
}

TEST(CudnnLibrary, OneThatIsAbsentOldOrAnotherIsRefusedInOneLine) {
  const auto absent = Library::open("libno-such-cudnn.so");
  ASSERT_FALSE(absent);
  EXPECT_THAT(absent.error().message, HasSubstr("no cuDNN: libno-such-cudnn.so"));
  const auto old = Library::open(stand_in("cudnn_stand_in_old").c_str());
  ASSERT_FALSE(old);
  EXPECT_EQ(old.error().message, "cuDNN 9.7.1 is too old: 9.10.0 is the first that serves");
  const auto other = Library::open("libc.so.6");
  ASSERT_FALSE(other);
  EXPECT_THAT(other.error().message, HasSubstr("is no cuDNN"));
}

TEST(CudnnAttention, IsForGpusOnWhichBackwardRepeatsItsBits) {
  Library cudnn;
  cudnn.version = 91002;
  EXPECT_EQ(attention_refusal(cudnn, 75), "cuDNN's need sm_80");
  EXPECT_EQ(attention_refusal(cudnn, 90), "");
  EXPECT_EQ(attention_refusal(cudnn, 80),
            "backward of cuDNN 9.10.2 may not repeat its bits on sm_80");
  cudnn.version = 91900;
  for (const int capability : {80, 86, 89, 90, 120})
    EXPECT_EQ(attention_refusal(cudnn, capability), "");
  EXPECT_EQ(attention_refusal(cudnn, 100),
            "backward of cuDNN 9.19.0 may not repeat its bits on sm_100");
}

TEST(CudnnAttention, BackwardIsDoneInEqualSlicesThatFitTheWorkspace) {
  const AttentionShape all{6, 1000, 12, 64, 12, DataType::kHalf};
  constexpr int64_t kHead = 1024 * 1024 * 2, kBesides = 4096;
  const auto slice = [&](int64_t workspace) {
    const AttentionShape of = attention_slice(all, workspace);
    return std::pair(of.samples, of.heads);
  };
  EXPECT_EQ(slice(100 * 12 * kHead), std::pair(6L, 12L));
  EXPECT_EQ(slice(5 * 12 * kHead + kBesides), std::pair(3L, 12L));
  EXPECT_EQ(slice(12 * kHead + kBesides), std::pair(1L, 12L));
  EXPECT_EQ(slice(11 * kHead + kBesides), std::pair(1L, 6L));
  EXPECT_EQ(slice(kHead + kBesides), std::pair(1L, 1L));
  EXPECT_EQ(slice(kHead).first, 0);
  EXPECT_EQ(slice(0).first, 0);
}

constexpr int64_t kSamples = 4, kContext = 9, kHeads = 6, kHeadDim = 8;
constexpr int64_t kRows = kSamples * kContext, kWidth = kHeads * kHeadDim;
constexpr int64_t kScores = 128 * 128 * 2;  // bytes for those of a head

/// Operands in the host's memory; results are NaN until they are written.
struct Operands {
  std::vector<uint16_t> qkv, d_out;
  std::vector<uint16_t> out = std::vector<uint16_t>(kRows * kWidth, 0x7fff);
  std::vector<uint16_t> d_qkv = std::vector<uint16_t>(3 * kRows * kWidth, 0x7fff);
  std::vector<float> lse = std::vector<float>(kRows * kHeads, NAN);
  std::vector<float> scratch = std::vector<float>(kRows * kHeads, NAN);

  Operands() {
    for (int i = 0; i < 3 * kRows * kWidth; ++i)
      qkv.push_back(Bf16::round(std::sin(static_cast<float>(i))));
    for (int i = 0; i < kRows * kWidth; ++i)
      d_out.push_back(Bf16::round(std::cos(static_cast<float>(i))));
  }
  AttentionForwardArgs forward() {
    return {Address::of(qkv.data()),
            Address::of(out.data()),
            Address::of(lse.data()),
            Address::of(scratch.data()),
            kSamples,
            kContext,
            kHeads,
            kHeadDim};
  }
  AttentionBackwardArgs backward() {
    return {Address::of(qkv.data()),
            Address::of(out.data()),
            Address::of(lse.data()),
            Address::of(d_out.data()),
            Address::of(d_qkv.data()),
            Address::of(scratch.data()),
            kSamples,
            kContext,
            kHeads,
            kHeadDim};
  }
};

/// d_qkv as it comes with so many bytes of workspace.
std::vector<uint16_t> gradient(int64_t workspace_size) {
  std::vector<std::byte> workspace(static_cast<size_t>(workspace_size));
  const auto attention =
      Attention::start(library(), nullptr, workspace.data(), workspace_size).value();
  Operands operands;
  EXPECT_TRUE(attention->serves(shape_of(operands.forward(), DataType::kBfloat16)));
  for (int repeat = 0; repeat < 2; ++repeat) {  // the second finds the plans made
    EXPECT_EQ(attention->forward(operands.forward(), DataType::kBfloat16), "");
    EXPECT_EQ(attention->backward(operands.backward(), DataType::kBfloat16), "");
  }
  for (const uint16_t bits : operands.out) EXPECT_TRUE(std::isfinite(Bf16::widen(bits)));
  for (const uint16_t bits : operands.d_qkv) EXPECT_TRUE(std::isfinite(Bf16::widen(bits)));
  return operands.d_qkv;
}

TEST(CudnnAttention, SlicesMakeNoDifference) {
  const std::vector<uint16_t> whole = gradient(kSamples * kHeads * kScores + 4096);
  EXPECT_EQ(gradient(2 * kHeads * kScores + 4096), whole);
  EXPECT_EQ(gradient(3 * kScores + 4096), whole);
}

TEST(CudnnAttention, DoesNeitherDirectionOfWhatDoesNotFit) {
  std::vector<std::byte> workspace(kScores);
  const auto attention = Attention::start(library(), nullptr, workspace.data(), kScores).value();
  EXPECT_FALSE(attention->serves(shape_of(Operands().forward(), DataType::kBfloat16)));
}

TEST(CudnnAttention, WhatTheLibraryRefusesIsAFault) {
  std::vector<std::byte> workspace(kHeads * kScores + 4096);
  const auto attention =
      Attention::start(library(), nullptr, workspace.data(), kHeads * kScores + 4096).value();
  Operands operands;
  AttentionForwardArgs args = operands.forward();
  args.out = {};
  EXPECT_EQ(attention->forward(args, DataType::kBfloat16), "refused by the stand-in");
}

}  // namespace
}  // namespace motley::cudnn
