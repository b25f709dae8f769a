#pragma once
// Every operation with shapes, forms and the error a float implementation may have.

#include "tests/contract/device_ops/bench.h"

namespace motley::testing {

struct OpCase {
  std::string name;  ///< letters, digits and underscores
  /// Allowed difference from float64, relative to the largest magnitude of the output.
  double tolerance = 0;
  Trial trial;
  int64_t alignment =
      8;             ///< bytes; its bits are the same at all addresses that are multiples of it
  double least = 0;  ///< an output below is measured against this: its terms may have cancelled
};

/// Outputs start as NaN, so an operand that is read where the contract says "written" is found.
/// Shapes are odd, and some are large enough for several tasks and tiles.
std::vector<OpCase> op_cases();

/// Of each operation one that goes a little beyond a tile, a block or a vector: for tools that slow
/// everything down.
std::vector<OpCase> small_op_cases();

/// "matmul_3_17_5": an operation with numbers.
std::string label(std::string name, std::initializer_list<int64_t> numbers);

/// The rows of a dense matrix with `gap` elements after each, which are 1000.
Values spread(const Values& dense, int64_t columns, int64_t gap);
/// The dense matrix again.
Values gathered(const Values& spread, int64_t columns, int64_t gap);

/// Products of matrices, with all that may come with them.
void add_matmul_cases(std::vector<OpCase>& cases);

/// The part of op_cases() whose operands may be cut along the vocabulary.
void add_vocabulary_cases(std::vector<OpCase>& cases);

}  // namespace motley::testing
