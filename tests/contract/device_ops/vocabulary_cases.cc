#include <bit>

#include "tests/contract/device_ops/op_cases.h"

namespace motley::testing {
namespace {

constexpr int64_t kContext = 5, kVocab = 7;
constexpr int64_t kRows = 3 * kContext;

/// Of a loss, on the device: a double whatever it computes in.
Address scale_in(Bench& bench) {
  return bench.put(std::vector<int64_t>{std::bit_cast<int64_t>(0.25)});
}

/// The rows of the vocabulary that a table holds.
struct Held {
  int64_t first, count;
};

std::vector<Address> embedding_forward(Bench& bench, int64_t width, Held held, bool positions) {
  Random random(3);
  const EmbeddingForwardArgs args{
      .tokens = bench.put(random.integers(kRows, kVocab)),
      .token_table = bench.put(random.normal(held.count * width)),
      .position_table = positions ? bench.put(random.normal(kContext * width)) : Address(),
      .out = bench.poisoned(kRows * width),
      .rows = kRows,
      .context = kContext,
      .width = width,
      .vocab = held.count,
      .first_token = held.first};
  bench.run(args);
  return {args.out};
}

std::vector<Address> embedding_backward(Bench& bench, int64_t width, Held held, bool positions,
                                        bool accumulate) {
  Random random(4);
  const auto gradient = [&](int64_t rows) {
    return accumulate ? bench.put(random.normal(rows * width)) : bench.poisoned(rows * width);
  };
  const EmbeddingBackwardArgs args{.tokens = bench.put(random.integers(kRows, kVocab)),
                                   .d_out = bench.put(random.normal(kRows * width)),
                                   .token_gradient = gradient(held.count),
                                   .position_gradient = positions ? gradient(kContext) : Address(),
                                   .rows = kRows,
                                   .context = kContext,
                                   .width = width,
                                   .vocab = held.count,
                                   .accumulate = accumulate,
                                   .first_token = held.first,
                                   .workspace = bench.poisoned_workspace(kRows, width, held.count)};
  bench.run(args);
  if (!positions) return {args.token_gradient};
  return {args.token_gradient, args.position_gradient};
}

void add_embedding(std::vector<OpCase>& cases, int64_t width, Held held, bool positions) {
  cases.push_back({label("embedding_forward", {width, held.first, held.count, positions}), 1e-7,
                   [=](Bench& bench) { return embedding_forward(bench, width, held, positions); }});
  for (const bool accumulate : {false, true})
    cases.push_back(
        {label("embedding_backward", {width, held.first, held.count, positions, accumulate}), 1e-6,
         [=](Bench& bench) {
           return embedding_backward(bench, width, held, positions, accumulate);
         },
         8, 1});
}

void add_embeddings(std::vector<OpCase>& cases) {
  constexpr Held kHeld[] = {{0, kVocab}, {0, 3}, {3, 3}, {6, 1}};
  for (const int64_t width : {1, 3, 17, 65, 130, 2000})
    for (const Held& held : kHeld)
      for (const bool positions : {false, true}) add_embedding(cases, width, held, positions);
}

/// Tokens as in text: few of them make up most of it, one nearly half of it.
std::vector<int32_t> unequal_tokens(Random& random, int64_t rows, int32_t vocab) {
  std::vector<int32_t> tokens = random.integers(rows, vocab);
  const std::vector<int32_t> kinds = random.integers(rows, 10);
  for (size_t row = 0; row < tokens.size(); ++row) {
    if (kinds[row] < 7) tokens[row] %= 20;
    if (kinds[row] < 4) tokens[row] = vocab / 2;
  }
  return tokens;
}

std::vector<Address> embedding_of_text(Bench& bench, int64_t rows, int64_t width, int32_t vocab) {
  Random random(5);
  const EmbeddingBackwardArgs args{.tokens = bench.put(unequal_tokens(random, rows, vocab)),
                                   .d_out = bench.put(random.normal(rows * width)),
                                   .token_gradient = bench.put(random.normal(vocab * width)),
                                   .position_gradient = bench.put(random.normal(kContext * width)),
                                   .rows = rows,
                                   .context = kContext,
                                   .width = width,
                                   .vocab = vocab,
                                   .accumulate = true,
                                   .workspace = bench.poisoned_workspace(rows, width, vocab)};
  bench.run(args);
  return {args.token_gradient, args.position_gradient};
}

/// A token in many rows, tokens of one to three digits, rows of several tiles.
void add_embeddings_of_text(std::vector<OpCase>& cases) {
  struct Text {
    int64_t rows, width;
    int32_t vocab;
  };
  for (const Text& text : {Text{33, 8, 40}, Text{700, 8, 255}, Text{700, 17, 256},
                           Text{1025, 40, 300}, Text{3000, 1, 70000}})
    cases.push_back({label("embedding_backward_of_text", {text.rows, text.width, text.vocab}), 1e-5,
                     [=](Bench& bench) {
                       return embedding_of_text(bench, text.rows, text.width, text.vocab);
                     }});
}

enum class Gradient { kNone, kApart, kInPlace };

std::vector<Address> cross_entropy(Bench& bench, int64_t rows, int64_t vocab, Gradient gradient) {
  Random random(12);
  CrossEntropyArgs args{.logits = bench.put(random.normal(rows * vocab, 4)),
                        .targets = bench.put(random.integers(rows, static_cast<int32_t>(vocab))),
                        .losses = bench.poisoned(rows),
                        .rows = rows,
                        .vocab = vocab};
  if (gradient == Gradient::kApart) args.scale = scale_in(bench);
  if (gradient == Gradient::kApart) args.d_logits = bench.poisoned(rows * vocab);
  if (gradient == Gradient::kInPlace) args.d_logits = args.logits;
  bench.run(args);
  if (gradient == Gradient::kNone) return {args.losses};
  return {args.losses, args.d_logits};
}

std::vector<Address> cross_entropy_part(Bench& bench, int64_t rows, Held held) {
  Random random(16);
  const CrossEntropyPartArgs args{.logits = bench.put(random.normal(rows * held.count, 4)),
                                  .targets = bench.put(random.integers(rows, 300)),
                                  .stats = bench.poisoned(rows * 3),
                                  .rows = rows,
                                  .vocab = held.count,
                                  .first_token = held.first};
  bench.run(args);
  return {args.stats};
}

/// Statistics as parts of 400 columns would give them.
Values random_stats(Random& random, int64_t parts, int64_t rows) {
  const Values target_logits = random.normal(rows);
  Values stats;
  for (int64_t part = 0; part < parts; ++part)
    for (size_t row = 0; row < target_logits.size(); ++row) {
      const Values drawn = random.normal(2, 4);
      stats.push_back(drawn[0]);
      stats.push_back(400 + drawn[1]);
      stats.push_back(part == static_cast<int64_t>(row) % parts ? target_logits[row] : 0);
    }
  return stats;
}

std::vector<Address> cross_entropy_combine(Bench& bench, int64_t parts, Held held,
                                           Gradient gradient) {
  constexpr int64_t kLossRows = 5;
  Random random(17);
  CrossEntropyCombineArgs args{.stats = bench.put(random_stats(random, parts, kLossRows)),
                               .logits = bench.put(random.normal(kLossRows * held.count, 4)),
                               .targets = bench.put(random.integers(kLossRows, 300)),
                               .losses = bench.poisoned(kLossRows),
                               .parts = parts,
                               .rows = kLossRows,
                               .vocab = held.count,
                               .first_token = held.first};
  if (gradient == Gradient::kApart) args.scale = scale_in(bench);
  if (gradient == Gradient::kApart) args.d_logits = bench.poisoned(kLossRows * held.count);
  if (gradient == Gradient::kInPlace) args.d_logits = args.logits;
  bench.run(args);
  if (gradient == Gradient::kNone) return {args.losses};
  return {args.losses, args.d_logits};
}

constexpr int64_t kGapRows = 6;

std::vector<Address> cross_entropy_with_gaps(Bench& bench, int64_t vocab, int64_t gap) {
  Random random(12);
  CrossEntropyArgs args{
      .logits = bench.put(spread(random.normal(kGapRows * vocab, 4), vocab, gap)),
      .targets = bench.put(random.integers(kGapRows, static_cast<int32_t>(vocab))),
      .losses = bench.poisoned(kGapRows),
      .rows = kGapRows,
      .vocab = vocab,
      .stride = vocab + gap};
  args.d_logits = args.logits;
  bench.run(args);
  return {args.losses, args.d_logits};
}

/// One holder of all columns.
std::vector<Address> cross_entropy_part_with_gaps(Bench& bench, int64_t vocab, int64_t gap) {
  Random random(16);
  const CrossEntropyPartArgs part{
      .logits = bench.put(spread(random.normal(kGapRows * vocab, 4), vocab, gap)),
      .targets = bench.put(random.integers(kGapRows, static_cast<int32_t>(vocab))),
      .stats = bench.poisoned(kGapRows * 3),
      .rows = kGapRows,
      .vocab = vocab,
      .stride = vocab + gap};
  bench.run(part);
  const CrossEntropyCombineArgs whole{.stats = part.stats,
                                      .logits = part.logits,
                                      .targets = part.targets,
                                      .losses = bench.poisoned(kGapRows),
                                      .d_logits = part.logits,
                                      .parts = 1,
                                      .rows = kGapRows,
                                      .vocab = vocab,
                                      .stride = vocab + gap};
  bench.run(whole);
  return {part.stats, whole.losses, whole.d_logits};
}

/// A logit less the logarithm of their sum, up to 30, is what a probability's exponent is rounded
/// to.
constexpr double kOfLogits = 5e-6;

void add_cross_entropy_with_gaps(std::vector<OpCase>& cases) {
  for (const int64_t vocab : {3, 17, 65, 257})
    for (const int64_t gap : {1, 31}) {
      cases.push_back({label("cross_entropy_gaps", {vocab, gap}), kOfLogits,
                       [=](Bench& bench) { return cross_entropy_with_gaps(bench, vocab, gap); }});
      cases.push_back(
          {label("cross_entropy_part_gaps", {vocab, gap}), kOfLogits,
           [=](Bench& bench) { return cross_entropy_part_with_gaps(bench, vocab, gap); }});
    }
}

void add_cross_entropy_of_parts(std::vector<OpCase>& cases) {
  constexpr Held kHeld[] = {{0, 1}, {17, 3}, {100, 65}, {5, 257}, {299, 1}, {0, 20000}};
  for (const Held& held : kHeld) {
    for (const int64_t rows : {1, 33})
      cases.push_back({label("cross_entropy_part", {rows, held.first, held.count}), 2e-6,
                       [=](Bench& bench) { return cross_entropy_part(bench, rows, held); }});
    for (const int64_t parts : {1, 2, 5})
      for (const auto gradient : {Gradient::kNone, Gradient::kApart, Gradient::kInPlace})
        cases.push_back({label("cross_entropy_combine",
                               {parts, held.first, held.count, static_cast<int64_t>(gradient)}),
                         kOfLogits, [=](Bench& bench) {
                           return cross_entropy_combine(bench, parts, held, gradient);
                         }});
  }
}

void add_cross_entropy(std::vector<OpCase>& cases) {
  for (const int64_t vocab : {1, 3, 17, 65, 256, 257, 3000, 20000})
    for (const auto gradient : {Gradient::kNone, Gradient::kApart, Gradient::kInPlace})
      cases.push_back({label("cross_entropy", {vocab, static_cast<int64_t>(gradient)}), kOfLogits,
                       [=](Bench& bench) { return cross_entropy(bench, 5, vocab, gradient); }});
}

}  // namespace

void add_vocabulary_cases(std::vector<OpCase>& cases) {
  add_embeddings(cases);
  add_embeddings_of_text(cases);
  add_cross_entropy(cases);
  add_cross_entropy_with_gaps(cases);
  add_cross_entropy_of_parts(cases);
}

}  // namespace motley::testing
