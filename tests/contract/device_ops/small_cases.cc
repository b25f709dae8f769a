#include <algorithm>

#include "core/check.h"
#include "tests/contract/device_ops/op_cases.h"

namespace motley::testing {
namespace {

constexpr const char* kSmallCases[] = {"matmul_65_64_63_TB_bias",
                                       "matmul_257_513_40_TA_add",
                                       "matmul_gelu_33_24_40_1",
                                       "matmul_gelu_gradient_33_24_40_0",
                                       "matmul_gaps_64_40_24_1",
                                       "bias_gradient_257_130_1",
                                       "layer_norm_forward_33_130",
                                       "layer_norm_of_sum_33_130_0",
                                       "layer_norm_backward_33_130_3",
                                       "copy_65",
                                       "round_65",
                                       "scale_65",
                                       "add_65_0",
                                       "dropout_65_10_0",
                                       "attention_forward_1_17_3_8",
                                       "attention_forward_1_65_1_17",
                                       "attention_forward_1_63_2_64",
                                       "attention_forward_1_70_2_136",
                                       "attention_backward_1_17_3_8",
                                       "attention_backward_1_65_1_17",
                                       "attention_backward_1_63_2_64",
                                       "attention_backward_1_70_2_136",
                                       "embedding_forward_65_0_7_1",
                                       "embedding_backward_65_3_3_1_1",
                                       "embedding_backward_of_text_700_17_256",
                                       "cross_entropy_257_2",
                                       "cross_entropy_3000_1",
                                       "cross_entropy_gaps_257_1",
                                       "cross_entropy_part_33_5_257",
                                       "cross_entropy_part_gaps_257_1",
                                       "cross_entropy_combine_2_5_257_1",
                                       "adamw_65",
                                       "adamw_of_runs_0",
                                       "from_fixed_65"};

/// "layer_norm_forward" of "layer_norm_forward_33_130".
std::string operation_of(const std::string& name) {
  return name.substr(0, name.find_first_of("0123456789") - 1);
}

}  // namespace

std::vector<OpCase> small_op_cases() {
  const std::vector<OpCase> all = op_cases();
  std::vector<OpCase> small;
  for (const char* name : kSmallCases) {
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const OpCase& op) { return op.name == name; });
    MOTLEY_CHECK(found != all.end(), name);
    small.push_back(*found);
  }
  for (const OpCase& op : all) {
    const bool covered = std::any_of(small.begin(), small.end(), [&](const OpCase& chosen) {
      return operation_of(chosen.name) == operation_of(op.name);
    });
    MOTLEY_CHECK(covered, "no small case of " + operation_of(op.name));
  }
  return small;
}

}  // namespace motley::testing
