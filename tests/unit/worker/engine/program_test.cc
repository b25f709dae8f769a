#include "worker/program/program.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "worker/engine/stage.h"
#include "worker/program/final_gradients.h"

namespace motley {
namespace {

TEST(ProgramBuilder, ABufferLivesFromItsFirstUseToItsLast) {
  ProgramBuilder builder(Precision::kFp32);
  const Address input = builder.fixed(Segment::kExchange, Bytes(64), Bytes(400));
  const Address first = builder.activation(100);
  const Address second = builder.activation(100);
  const Address third = builder.activation(100);
  builder.emit(RoundArgs{.in = input, .out = first, .count = 100});
  builder.emit(AddArgs{.a = first, .b = first, .out = second, .count = 100});
  builder.emit(RoundArgs{.in = second, .out = third, .count = 100});
  const Program program = builder.finish(false);
  EXPECT_EQ(program.symbols[1].first_use, 0);
  EXPECT_EQ(program.symbols[1].last_use, 1);
  EXPECT_EQ(program.symbols[3].last_use, 2);
  // The third takes the place of the first, which nobody reads any more.
  EXPECT_EQ(program.symbols[1].offset, program.symbols[3].offset);
  EXPECT_EQ(program.arena, Bytes(2 * 448));
  EXPECT_EQ(program.flops(), 100);
}

TEST(ProgramBuilder, BindingReplacesEverySymbol) {
  ProgramBuilder builder(Precision::kFp64);
  const Address weight = builder.fixed(Segment::kParameters, Bytes(16), Bytes(16));
  const Address gradient = builder.fixed(Segment::kGradients, Bytes(8), Bytes(16));
  const Address activation = builder.activation(2);
  builder.emit(AddArgs{.a = weight, .b = weight, .out = activation, .count = 2});
  builder.set_layer(3);
  builder.begin_backward();
  builder.emit(AddArgs{.a = activation, .b = weight, .out = gradient, .count = 2});
  const Program program = builder.finish(false);

  alignas(64) std::array<std::byte, 256> memory{};
  const SegmentBases bases{.parameters = memory.data(),
                           .gradients = memory.data() + 64,
                           .activations = memory.data() + 128};
  const std::vector<Instruction> bound = bind(program, bases);
  const auto& add = std::get<AddArgs>(std::get<OpCall>(bound[1].work));
  EXPECT_EQ(add.a.as<std::byte>(), memory.data() + 128);
  EXPECT_EQ(add.b.as<std::byte>(), memory.data() + 16);
  EXPECT_EQ(add.out.as<std::byte>(), memory.data() + 72);
  EXPECT_EQ(bound[0].layer, 0);
  EXPECT_EQ(bound[1].layer, 3);
  EXPECT_EQ(program.backward, 1U);
  EXPECT_TRUE(std::get<AddArgs>(std::get<OpCall>(program.instructions[1].work)).a.is_symbol());
}

TEST(ProgramBuilder, KeepsApartWhatTheBackwardPassNeeds) {
  ProgramBuilder builder(Precision::kFp32);
  const Address input = builder.fixed(Segment::kSlot, Bytes(0), Bytes(400));
  const Address saved = builder.activation(100);
  const Address passing = builder.activation(100);
  builder.emit(RoundArgs{.in = input, .out = passing, .count = 100});
  builder.emit(RoundArgs{.in = passing, .out = saved, .count = 100});
  builder.begin_backward();
  builder.emit(RoundArgs{.in = saved, .out = input, .count = 100});
  const Program program = builder.finish(true);
  EXPECT_EQ(program.symbols[1].segment, Segment::kKept);
  EXPECT_EQ(program.symbols[2].segment, Segment::kActivations);
  EXPECT_EQ(program.kept, Bytes(448));
  EXPECT_EQ(program.arena, Bytes(448));
}

TEST(ProgramBuilderDeath, ReadingWhatNothingWroteIsABug) {
  ProgramBuilder builder(Precision::kFp32);
  const Address never = builder.activation(10);
  builder.emit(RoundArgs{.in = never, .out = builder.activation(10), .count = 10});
  EXPECT_DEATH(builder.finish(false), "read before anything has written it");
}

StageSpec stage_spec(Numerics numerics) {
  StageSpec stage;
  stage.model.layers = 3;
  stage.model.heads = 2;
  stage.model.width = 8;
  stage.model.context = 4;
  stage.model.vocab = 16;
  stage.layers = whole_model(stage.model);
  stage.numerics = numerics;
  return stage;
}

TEST(TrainingProgram, RunsLayersUpAndDown) {
  const StageSpec stage = stage_spec(Numerics::kFast);
  const Program program =
      compile_training(stage, ParameterLayout(stage.model), ExchangeLayout(stage, 2), 2);
  std::vector<std::pair<LayerIndex, bool>> order;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const std::pair<LayerIndex, bool> at{program.instructions[i].layer, i >= program.backward};
    if (order.empty() || order.back() != at) order.push_back(at);
  }
  const std::vector<std::pair<LayerIndex, bool>> expected = {
      {0, false}, {1, false}, {2, false}, {3, false}, {4, false},
      {4, true},  {3, true},  {2, true},  {1, true},  {0, true}};
  EXPECT_EQ(order, expected);
}

/// Every element of every gradient is written exactly once, the tied embedding twice.
TEST(TrainingProgram, ExactQuantisesEachContributionOnItsOwn) {
  const StageSpec stage = stage_spec(Numerics::kExact);
  const ParameterLayout parameters(stage.model);
  const Program program = compile_training(stage, parameters, ExchangeLayout(stage, 2), 2);
  std::vector<int> contributions(static_cast<size_t>(parameters.elements()));
  for (const Instruction& instruction : program.instructions) {
    const auto* add = std::get_if<AccumulateFixedArgs>(&std::get<OpCall>(instruction.work));
    if (add == nullptr) continue;
    const Symbol& sum = program.symbols[add->acc.symbol_id()];
    ASSERT_EQ(sum.segment, Segment::kGradients);
    for (int64_t i = 0; i < add->count; ++i)
      ++contributions[static_cast<size_t>(sum.offset.value() / 8 + i)];
  }
  const ParameterRange tied = parameters.range("embed.token.weight");
  for (int64_t i = 0; i < parameters.elements(); ++i)
    EXPECT_EQ(contributions[static_cast<size_t>(i)], i < tied.offset + tied.count ? 2 : 1) << i;
}

Symbol gradient_symbol(int64_t offset, int64_t size, int last_use) {
  return {.segment = Segment::kGradients,
          .offset = Bytes(offset),
          .size = Bytes(size),
          .first_use = 1,
          .last_use = last_use};
}

/// Each as {after, offset, size}.
std::vector<std::array<int64_t, 3>> finals_of(const std::vector<Symbol>& symbols, int64_t least) {
  std::vector<std::array<int64_t, 3>> found;
  for (const FinalGradients& one : final_gradients(symbols, Bytes(least)))
    found.push_back({static_cast<int64_t>(one.after), one.offset.value(), one.size.value()});
  return found;
}

TEST(FinalGradientsOfProgram, FollowTheLastUseAndWaitForNeighbours) {
  using ::testing::ElementsAre;
  using Found = std::array<int64_t, 3>;
  Symbol other = gradient_symbol(0, 50, 20), unused = gradient_symbol(700, 50, -1);
  other.segment = Segment::kParameters;
  unused.first_use = -1;
  const std::vector<Symbol> symbols = {gradient_symbol(0, 100, 3),  // tied: used again by the last
                                       gradient_symbol(100, 100, 8), gradient_symbol(200, 50, 6),
                                       gradient_symbol(250, 150, 4), gradient_symbol(400, 20, 4),
                                       gradient_symbol(0, 100, 9),   other,
                                       gradient_symbol(420, 0, 30),  unused};
  EXPECT_THAT(finals_of(symbols, 1),
              ElementsAre(Found{4, 400, 20}, Found{4, 250, 150}, Found{6, 200, 50},
                          Found{8, 100, 100}, Found{9, 0, 100}));
  EXPECT_THAT(finals_of(symbols, 120),
              ElementsAre(Found{4, 250, 170}, Found{8, 100, 150}, Found{9, 0, 100}))
      << "what stays short comes with the last";
  EXPECT_THAT(finals_of(symbols, 10'000), ElementsAre(Found{9, 0, 420}));
  EXPECT_THAT(finals_of({}, 1), ElementsAre());
}

TEST(FinalGradientsOfProgram, NoLaterInstructionUsesThem) {
  for (const Numerics numerics : {Numerics::kFast, Numerics::kExact}) {
    for (const LayerIndex first : {0, 2}) {
      StageSpec stage = stage_spec(numerics);
      stage.model.width = 192;
      stage.model.vocab = 3000;
      stage.layers.first_layer = first;
      stage.layers.recompute.assign(static_cast<size_t>(stage.layers.layers()), Recompute::kBlock);
      const ParameterLayout parameters(holdings_of(stage.model, stage.layers, 0));
      const Program program = compile_training(stage, parameters, ExchangeLayout(stage, 2), 2);
      ASSERT_GT(program.final_gradients.size(), 3U);
      Bytes all(0);
      for (const FinalGradients& found : program.final_gradients) {
        all += found.size;
        EXPECT_GE(found.after, program.backward);
        EXPECT_LT(found.after, program.instructions.size());
        int last_use = 0;
        for (const Symbol& symbol : program.symbols)
          if (symbol.segment == Segment::kGradients && symbol.offset < found.offset + found.size &&
              found.offset < symbol.offset + symbol.size)
            last_use = std::max(last_use, symbol.last_use);
        if (&found == &program.final_gradients.back()) continue;  // may have waited
        EXPECT_EQ(static_cast<size_t>(last_use), found.after);
        EXPECT_GE(found.size, kLeastFinalGradients);
      }
      EXPECT_EQ(all.value(), parameters.elements() * (numerics == Numerics::kExact ? 8 : 4));
      const bool token_first = program.final_gradients.front().offset == Bytes(0);
      EXPECT_EQ(token_first, first > 0) << "the head alone uses it, or the embedding, too";
    }
  }
}

TEST(NeededWeightsOfProgram, ComeBeforeTheInstructionsThatUseThem) {
  StageSpec stage = stage_spec(Numerics::kFast);
  stage.model.width = 192;
  const ParameterLayout parameters(stage.model);
  const Program program = compile_training(stage, parameters, ExchangeLayout(stage, 2), 2);
  const auto& needed = program.needed_weights;
  EXPECT_TRUE(std::is_sorted(needed.begin(), needed.end(),
                             [](const auto& a, const auto& b) { return a.before < b.before; }));
  EXPECT_EQ(needed.front().before, 0U);
  EXPECT_GT(needed.back().before, program.backward / 2) << "not all at once";
  for (const Symbol& symbol : program.symbols) {
    if (symbol.segment != Segment::kParameters || symbol.first_use < 0) continue;
    const bool in_time = std::any_of(needed.begin(), needed.end(), [&](const NeededWeights& one) {
      return static_cast<int>(one.before) <= symbol.first_use && one.offset <= symbol.offset &&
             symbol.offset + symbol.size <= one.offset + one.size;
    });
    EXPECT_TRUE(in_time) << symbol.offset.value();
  }
}

TEST(TrainingProgram, FlopsAreThoseOfTheTextbook) {
  StageSpec stage = stage_spec(Numerics::kFast);
  stage.model.width = 128;
  stage.model.heads = 4;
  stage.model.context = 64;
  stage.model.vocab = 256;
  const ParameterLayout parameters(stage.model);
  const double flops = compile_training(stage, parameters, ExchangeLayout(stage, 4), 4).flops();
  // 6 operations a token for each weight of a matrix, and the attention itself.
  const double tokens = 4 * 64;
  const double matrices = 3 * 12.0 * 128 * 128 + 256 * 128;
  const double attention = 3 * 14.0 * tokens * 64 * 128;
  EXPECT_NEAR(flops, 6 * tokens * matrices + attention, 0.05 * flops);
}

TEST(TrainingProgram, ForwardAloneSavesNothing) {
  const StageSpec stage = stage_spec(Numerics::kFast);
  const ParameterLayout parameters(stage.model);
  const ExchangeLayout exchange(stage, 2);
  Address logits;
  const Program forward = compile_forward(stage, parameters, exchange, 2, &logits);
  const Program training = compile_training(stage, parameters, exchange, 2);
  EXPECT_LT(forward.arena.value(), training.arena.value() / 2);
  EXPECT_EQ(forward.symbols[logits.symbol_id()].last_use,
            static_cast<int>(forward.instructions.size()) - 1);
}

TEST(ParameterLayout, PacksTensorsWithoutGaps) {
  const ModelSpec model = stage_spec(Numerics::kFast).model;
  const ParameterLayout layout(model);
  EXPECT_EQ(layout.elements(), parameter_count(model));
  int64_t end = 0;
  for (const FlatTensor& flat : layout.tensors()) {
    EXPECT_EQ(flat.offset, end);
    end += flat.elements();
  }
  const ParameterRange qkv = layout.range("block.1.attention.q.weight", 3);
  EXPECT_EQ(qkv.count, 3 * 8 * 8);
  EXPECT_EQ(qkv.offset + qkv.count, layout.range("block.1.attention.q.bias").offset);
}

/// The products of the head among those of a program.
std::vector<MatmulArgs> head_products(const StageSpec& stage, const Program& program) {
  std::vector<MatmulArgs> products;
  for (const Instruction& instruction : program.instructions)
    if (const auto* product = std::get_if<MatmulArgs>(&std::get<OpCall>(instruction.work));
        product != nullptr && instruction.layer == stage.model.layers + 1)
      products.push_back(*product);
  return products;
}

/// With this kind of device, the vocabulary as the products of a head with the table take it.
std::vector<int64_t> head_extents(DeviceKind kind, Precision precision, int blocks) {
  StageSpec stage = stage_spec(Numerics::kFast);
  stage.model.vocab = 83;
  stage.layers.first_layer = stage.model.layers + 1 - blocks;
  stage.kind = kind;
  stage.precision = precision;
  const ParameterLayout parameters(holdings_of(stage.model, stage.layers, 0));
  const Program program = compile_training(stage, parameters, ExchangeLayout(stage, 2), 2);
  const std::vector<MatmulArgs> products = head_products(stage, program);
  EXPECT_EQ(products.size(), 3U);
  const MatmulArgs &logits = products[0], &d_weight = products[1], &d_input = products[2];
  EXPECT_EQ(d_weight.m, 83) << "behind the gradient of the table lies that of another tensor";
  const Bytes copy(rounded_elements(stage, parameters) * reduced_bytes(precision));
  for (const Address table : {logits.b, d_input.b}) {
    const Symbol& symbol = program.symbols[table.symbol_id()];
    EXPECT_EQ(symbol.size.value(), logits.n * stage.model.width * reduced_bytes(precision));
    if (symbol.segment == Segment::kRounded) {
      EXPECT_LE(symbol.offset + symbol.size, copy);
    }
  }
  return {logits.n, d_input.k};
}

TEST(Head, TakesMoreOfTheVocabularyOnAGpuInReducedPrecision) {
  using ::testing::Each;
  for (const int blocks : {0, 2}) {
    EXPECT_THAT(head_extents(DeviceKind::kCuda, Precision::kBf16, blocks), Each(128));
    EXPECT_THAT(head_extents(DeviceKind::kCuda, Precision::kFp32, blocks), Each(83));
    EXPECT_THAT(head_extents(DeviceKind::kCpu, Precision::kBf16, blocks), Each(83));
  }
}

}  // namespace
}  // namespace motley
