// Holders of a part of the vocabulary together compute what one holder of all of it computes.

#include <algorithm>
#include <cmath>

#include "tests/contract/device_ops/bench.h"

namespace motley::testing {
namespace {

constexpr int64_t kRows = 12, kContext = 4, kWidth = 9;

/// Columns [begin, begin + count) of a matrix.
Values columns(const Values& matrix, int64_t width, int64_t begin, int64_t count) {
  Values part;
  for (auto row = matrix.begin(); row != matrix.end(); row += width)
    part.insert(part.end(), row + begin, row + begin + count);
  return part;
}

/// Where the parts of [0, vocab) begin, and its end; parts may be empty.
std::vector<int64_t> random_cuts(Random& random, int64_t parts, int64_t vocab) {
  std::vector<int64_t> cuts{0, vocab};
  for (const int32_t cut : random.integers(parts - 1, static_cast<int32_t>(vocab)))
    cuts.push_back(cut);
  std::sort(cuts.begin(), cuts.end());
  return cuts;
}

struct Losses {
  Values losses, d_logits;
};

Losses whole(Device& device, const Values& logits, const std::vector<int32_t>& targets,
             int64_t vocab) {
  Bench bench(device);
  const CrossEntropyArgs args{bench.put(logits),
                              bench.put(targets),
                              bench.poisoned(kRows),
                              bench.poisoned(kRows * vocab),
                              kRows,
                              vocab};
  bench.run(args);
  return {bench.get(args.losses), bench.get(args.d_logits)};
}

/// The statistics of all parts, one after the other.
Values stats_of_parts(Device& device, const Values& logits, const std::vector<int32_t>& targets,
                      const std::vector<int64_t>& cuts) {
  Values stats;
  for (size_t part = 0; part + 1 < cuts.size(); ++part) {
    Bench bench(device);
    const int64_t held = cuts[part + 1] - cuts[part];
    const CrossEntropyPartArgs args{
        .logits = bench.put(columns(logits, cuts.back(), cuts[part], held)),
        .targets = bench.put(targets),
        .stats = bench.poisoned(kRows * 3),
        .rows = kRows,
        .vocab = held,
        .first_token = cuts[part]};
    bench.run(args);
    const Values of_part = bench.get(args.stats);
    stats.insert(stats.end(), of_part.begin(), of_part.end());
  }
  return stats;
}

Losses combined(Device& device, const Values& stats, const Values& logits,
                const std::vector<int32_t>& targets, const std::vector<int64_t>& cuts,
                size_t part) {
  Bench bench(device);
  const int64_t held = cuts[part + 1] - cuts[part];
  const CrossEntropyCombineArgs args{
      .stats = bench.put(stats),
      .logits = bench.put(columns(logits, cuts.back(), cuts[part], held)),
      .targets = bench.put(targets),
      .losses = bench.poisoned(kRows),
      .d_logits = bench.poisoned(kRows * held),
      .parts = static_cast<int64_t>(cuts.size()) - 1,
      .rows = kRows,
      .vocab = held,
      .first_token = cuts[part]};
  bench.run(args);
  return {bench.get(args.losses), bench.get(args.d_logits)};
}

void expect_near(const Values& actual, const Values& expected, double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i)
    ASSERT_NEAR(actual[i], expected[i], tolerance) << "element " << i;
}

TEST_P(EachDevice, CrossEntropyOfPartsIsThatOfTheWhole) {
  const double tolerance = device_->element_bytes() == 4 ? 5e-6 : 1e-13;
  Random random(21);
  for (const int64_t vocab : {2, 7, 65, 400}) {
    for (const int64_t parts : {1, 2, 3, 6}) {
      const std::vector<int64_t> cuts = random_cuts(random, parts, vocab);
      const Values logits = random.normal(kRows * vocab, 4);
      const auto targets = random.integers(kRows, static_cast<int32_t>(vocab));
      const Losses expected = whole(*device_, logits, targets, vocab);
      const Values stats = stats_of_parts(*device_, logits, targets, cuts);
      Values first_losses;
      for (size_t part = 0; part + 1 < cuts.size(); ++part) {
        SCOPED_TRACE("columns " + std::to_string(cuts[part]) + " to " +
                     std::to_string(cuts[part + 1]) + " of " + std::to_string(vocab));
        const Losses actual = combined(*device_, stats, logits, targets, cuts, part);
        expect_near(actual.losses, expected.losses, tolerance);
        const int64_t held = cuts[part + 1] - cuts[part];
        expect_near(actual.d_logits, columns(expected.d_logits, vocab, cuts[part], held),
                    tolerance);
        if (part == 0) first_losses = actual.losses;
        EXPECT_EQ(actual.losses, first_losses) << "every holder computes the same bits";
      }
    }
  }
}

// A part far below another must vanish, not overflow.
TEST_P(EachDevice, CrossEntropyOfPartsHoldsForLogitsFarApart) {
  Values logits;
  for (int64_t row = 0; row < kRows; ++row)
    for (const double logit : {-3e4, 2e4, 2e4, -1e4}) logits.push_back(logit);
  const std::vector<int32_t> targets{0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3};
  const std::vector<int64_t> cuts{0, 1, 2, 4};
  const Losses expected = whole(*device_, logits, targets, 4);
  const Values stats = stats_of_parts(*device_, logits, targets, cuts);
  for (size_t part = 0; part + 1 < cuts.size(); ++part)
    expect_near(combined(*device_, stats, logits, targets, cuts, part).losses, expected.losses,
                1e-2);
}

TEST_P(EachDevice, ALossFromANumberLostInAnyPartIsLost) {
  Values logits(kRows * 4, 1.0);
  for (size_t row = 0; row < kRows; ++row) logits[row * 4 + row % 4] = std::nan("");
  const std::vector<int32_t> targets(kRows, 2);
  const std::vector<int64_t> cuts{0, 1, 2, 4};
  const Values stats = stats_of_parts(*device_, logits, targets, cuts);
  for (const double loss : combined(*device_, stats, logits, targets, cuts, 0).losses)
    EXPECT_TRUE(std::isnan(loss));
}

struct Embedding {
  std::vector<int32_t> tokens;
  Values token_table, position_table;

  Values forward(Device& device, int64_t first, int64_t held, bool positions) const {
    Bench bench(device);
    const EmbeddingForwardArgs args{
        .tokens = bench.put(tokens),
        .token_table = bench.put(Values(token_table.begin() + first * kWidth,
                                        token_table.begin() + (first + held) * kWidth)),
        .position_table = positions ? bench.put(position_table) : Address(),
        .out = bench.poisoned(kRows * kWidth),
        .rows = kRows,
        .context = kContext,
        .width = kWidth,
        .vocab = held,
        .first_token = first};
    bench.run(args);
    return bench.get(args.out);
  }

  Values token_gradient(Device& device, int64_t first, int64_t held, const Values& d_out) const {
    Bench bench(device);
    const EmbeddingBackwardArgs args{.tokens = bench.put(tokens),
                                     .d_out = bench.put(d_out),
                                     .token_gradient = bench.poisoned(held * kWidth),
                                     .rows = kRows,
                                     .context = kContext,
                                     .width = kWidth,
                                     .vocab = held,
                                     .first_token = first,
                                     .workspace = bench.poisoned_workspace(kRows, kWidth, held)};
    bench.run(args);
    return bench.get(args.token_gradient);
  }
};

/// Sums of a token's rows as a T holds them, one after the other.
template <class T>
Values sums_in_rising_order(const std::vector<int32_t>& tokens, const Values& d_out,
                            int64_t vocab) {
  const auto width = static_cast<int64_t>(d_out.size() / tokens.size());
  std::vector<T> sums(static_cast<size_t>(vocab * width));
  for (size_t i = 0; i < d_out.size(); ++i) {
    const auto row = static_cast<int64_t>(i) / width, column = static_cast<int64_t>(i) % width;
    sums[static_cast<size_t>(tokens[static_cast<size_t>(row)] * width + column)] +=
        static_cast<T>(d_out[i]);
  }
  return Values(sums.begin(), sums.end());
}

// Also where rows are sorted by token: a token's rows keep their order.
TEST_P(EachDevice, RowsOfRareTokensAreAddedInRisingOrder) {
  constexpr int64_t kManyRows = 2500, kManyTokens = 1000;  // a dozen rows for a token at most
  Random random(23);
  const auto rows_tokens = random.integers(kManyRows, kManyTokens);
  const Values d_out = random.normal(kManyRows * kWidth);
  Bench bench(*device_);
  const EmbeddingBackwardArgs args{
      .tokens = bench.put(rows_tokens),
      .d_out = bench.put(d_out),
      .token_gradient = bench.poisoned(kManyTokens * kWidth),
      .rows = kManyRows,
      .context = kManyRows,
      .width = kWidth,
      .vocab = kManyTokens,
      .workspace = bench.poisoned_workspace(kManyRows, kWidth, kManyTokens)};
  bench.run(args);
  EXPECT_EQ(bench.get(args.token_gradient),
            device_->element_bytes() == 8
                ? sums_in_rising_order<double>(rows_tokens, d_out, kManyTokens)
                : sums_in_rising_order<float>(rows_tokens, d_out, kManyTokens));
}

TEST_P(EachDevice, EmbeddingsOfPartsAddUpToThatOfTheWhole) {
  constexpr int64_t kVocab = 11;
  Random random(22);
  for (const int64_t parts : {1, 2, 5}) {
    std::vector<int64_t> cuts = random_cuts(random, parts, kVocab);
    // Not yet without a token: the backward pass on a GPU then sorts by no digit, and reads beyond.
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    const Embedding embedding{random.integers(kRows, kVocab), random.normal(kVocab * kWidth),
                              random.normal(kContext * kWidth)};
    const Values d_out = random.normal(kRows * kWidth);
    Values sum(kRows * kWidth), gradient;
    for (size_t part = 0; part + 1 < cuts.size(); ++part) {
      const int64_t held = cuts[part + 1] - cuts[part];
      const Values of_part = embedding.forward(*device_, cuts[part], held, part == 0);
      for (size_t i = 0; i < sum.size(); ++i) sum[i] += of_part[i];
      const Values rows = embedding.token_gradient(*device_, cuts[part], held, d_out);
      gradient.insert(gradient.end(), rows.begin(), rows.end());
    }
    expect_near(sum, embedding.forward(*device_, 0, kVocab, true), 1e-6);
    EXPECT_EQ(gradient, embedding.token_gradient(*device_, 0, kVocab, d_out));
  }
}

}  // namespace
}  // namespace motley::testing
