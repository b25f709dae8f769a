// A shard is a plain safetensors file: the standard library of Python reads it by the published
// layout.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdio.h>

#include "tests/support/paths.h"
#include "tests/support/temporary_directory.h"
#include "worker/checkpoint/store.h"

namespace motley::testing {
namespace {

std::string output_of(const std::string& command) {
  std::string output;
  FILE* const pipe = popen(command.c_str(), "r");
  if (!pipe) return "cannot start";
  char buffer[4096];
  for (size_t count; (count = fread(buffer, 1, sizeof buffer, pipe)) > 0;)
    output.append(buffer, count);
  if (pclose(pipe) != 0) output += "FAILED";
  return output;
}

TEST(ShardFormat, AnyToolReadsIt) {
  const TemporaryDirectory directory;
  std::vector<float> weights{0, 1, 2, 3, 4, 5, 6, 7, 8};
  std::vector<double> moments{0.5, 1.5, 2.5};
  const std::vector<int64_t> matrix{3, 3}, vector{3};
  const std::vector<StateView> views{{"weight/norm.gain", "F32", vector, whole(vector),
                                      std::as_writable_bytes(std::span(weights).first(3))},
                                     {"weight/block.0.mlp", "F32", matrix, whole(matrix),
                                      std::as_writable_bytes(std::span(weights))},
                                     {"adam_m/norm.gain", "F64", vector, whole(vector),
                                      std::as_writable_bytes(std::span(moments))}};
  const std::vector<Ownership> owners{{"norm.gain", whole(vector), Rank(0)},
                                      {"block.0.mlp", {{0, 1}, {3, 1}}, Rank(0)},
                                      {"block.0.mlp", {{1, 2}, {2, 1}}, Rank(0)}};
  auto writer =
      ShardWriter::create(real_file_system(), directory.path(), Epoch(1), 0, views, owners);
  ASSERT_TRUE(writer) << writer.error().to_string();
  ASSERT_TRUE((*writer)->snapshot(3));
  (*writer)->wait();
  ASSERT_TRUE((*writer)->report().ok);

  const std::string script = source_dir() / "tests/contract/read_safetensors.py";
  EXPECT_EQ(output_of("python3 '" + script + "' '" + directory.path() +
                      "/.tmp-step-00000003.e1/s0000.safetensors' 2>&1"),
            "adam_m/norm.gain F64 [3] 0.5 1.5 2.5\n"
            "weight/norm.gain F32 [3] 0.0 1.0 2.0\n"
            "weight/block.0.mlp@0,1 F32 [3, 1] 1.0 4.0 7.0\n"
            "weight/block.0.mlp@1,2 F32 [2, 1] 5.0 8.0\n");
}

}  // namespace
}  // namespace motley::testing
