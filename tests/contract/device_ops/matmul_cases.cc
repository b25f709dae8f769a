#include "tests/contract/device_ops/op_cases.h"

namespace motley::testing {
namespace {

struct Product {
  int64_t m, n, k;
};

/// One of the 16 ways in which operands lie and sums begin.
struct Form {
  bool transpose_a = false, transpose_b = false, accumulate = false, bias = false;

  static Form number(int form) {
    return {(form & 1) != 0, (form & 2) != 0, (form & 4) != 0, (form & 8) != 0};
  }
  std::string text() const {
    return std::string(transpose_a ? "_TA" : "") + (transpose_b ? "_TB" : "") +
           (accumulate ? "_add" : "") + (bias ? "_bias" : "");
  }
};

MatmulArgs operands(Bench& bench, Random& random, const Product& shape, const Form& form) {
  const int64_t size = shape.m * shape.n;
  return {.a = bench.put(random.normal(shape.m * shape.k)),
          .b = bench.put(random.normal(shape.k * shape.n)),
          .c = form.accumulate ? bench.put(random.normal(size)) : bench.poisoned(size),
          .bias = form.bias ? bench.put(random.normal(shape.n)) : Address(),
          .m = shape.m,
          .n = shape.n,
          .k = shape.k,
          .transpose_a = form.transpose_a,
          .transpose_b = form.transpose_b,
          .accumulate = form.accumulate};
}

std::vector<Address> matmul(Bench& bench, const Product& shape, const Form& form) {
  Random random(1);
  const MatmulArgs args = operands(bench, random, shape, form);
  bench.run(args);
  return {args.c};
}

/// With factors of which some are so large that gelu saturates on either side.
std::vector<Address> gelu(Bench& bench, const Product& shape, const Form& form) {
  Random random(8);
  MatmulArgs args = operands(bench, random, shape, form);
  args.a = bench.put(random.normal(shape.m * shape.k, 6));
  args.pre_activation = bench.poisoned(shape.m * shape.n);
  args.epilogue = Epilogue::kGelu;
  bench.run(args);
  return {args.c, args.pre_activation};
}

std::vector<Address> gelu_gradient(Bench& bench, const Product& shape, const Form& form) {
  Random random(9);
  MatmulArgs args = operands(bench, random, shape, form);
  Values x = random.normal(shape.m * shape.n, 3);
  x[0] = 40;
  if (x.size() > 3) x[3] = -40;
  args.pre_activation = bench.put(x);
  args.epilogue = Epilogue::kGeluGradient;
  bench.run(args);
  return {args.c};
}

std::vector<Address> with_gaps(Bench& bench, const Product& shape, const Form& form, int64_t gap,
                               bool full_output = false) {
  Random random(1);
  MatmulArgs args = operands(bench, random, shape, form);
  const int64_t a_columns = form.transpose_a ? shape.m : shape.k;
  args.a = bench.put(spread(bench.get(args.a), a_columns, gap));
  args.c = bench.put(spread(bench.get(args.c), shape.n, gap));
  args.a_stride = a_columns + gap;
  args.c_stride = shape.n + gap;
  args.full_output = full_output;
  bench.run(args);
  return {bench.put(gathered(bench.get(args.c), shape.n, gap))};
}

constexpr int kForms = 16;

void add_products(std::vector<OpCase>& cases) {
  constexpr Product kShapes[] = {{1, 1, 1},    {3, 17, 5},     {17, 3, 65},
                                 {65, 64, 63}, {1, 129, 7},    {300, 1, 33},
                                 {130, 70, 1}, {257, 513, 40}, {900, 33, 65}};
  for (const Product& shape : kShapes)
    for (int number = 0; number < kForms; ++number) {
      const Form form = Form::number(number);
      cases.push_back({label("matmul", {shape.m, shape.n, shape.k}) + form.text(), 2e-6,
                       [=](Bench& bench) { return matmul(bench, shape, form); }, 8, 1});
    }
}

/// Rows of 16 bytes and others, one tile and several.
void add_epilogues(std::vector<OpCase>& cases) {
  // Not a single element: far below 0 gelu depends too much on how its argument was rounded.
  constexpr Product kShapes[] = {{1, 9, 1}, {5, 17, 3}, {24, 32, 16}, {33, 24, 40}, {300, 264, 8}};
  for (const Product& shape : kShapes)
    for (const bool bias : {false, true}) {
      const auto numbers = {shape.m, shape.n, shape.k, int64_t{bias}};
      const Form forward{.transpose_b = true, .bias = bias}, backward{.bias = bias};
      cases.push_back({label("matmul_gelu", numbers), 2e-6,
                       [=](Bench& bench) { return gelu(bench, shape, forward); }, 16, 0.1});
      cases.push_back({label("matmul_gelu_gradient", numbers), 2e-6,
                       [=](Bench& bench) { return gelu_gradient(bench, shape, backward); }, 16,
                       0.1});
    }
}

void add_gaps(std::vector<OpCase>& cases) {
  for (const Product& shape : {Product{3, 17, 5}, {64, 40, 24}, {130, 257, 33}})
    for (const int64_t gap : {1, 47})
      for (int number = 0; number < kForms; number += 3) {
        const Form form = Form::number(number);
        cases.push_back({label("matmul_gaps", {shape.m, shape.n, shape.k, gap}) + form.text(), 2e-6,
                         [=](Bench& bench) { return with_gaps(bench, shape, form, gap); }});
      }
  // Many rows that end within 16 bytes, apart by whole ones: a GPU computes the last by themselves.
  for (const bool full : {false, true}) {
    const Product shape{1287, 40, 24};
    const Form form{.transpose_a = true, .accumulate = full, .bias = !full};
    cases.push_back({label("matmul_gaps", {shape.m, shape.n, shape.k, 9}) + form.text(), 2e-6,
                     [=](Bench& bench) { return with_gaps(bench, shape, form, 9, full); }});
  }
}

}  // namespace

void add_matmul_cases(std::vector<OpCase>& cases) {
  add_products(cases);
  add_epilogues(cases);
  add_gaps(cases);
}

}  // namespace motley::testing
