// What a training step costs on one CPU thread: fast, and exact beside it with the same
// micro-batch. Arguments: [--json] [CASE].

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "core/median.h"
#include "tests/bench/rows.h"
#include "worker/engine/engine.h"

namespace motley {
namespace {

constexpr double kExactLimit = 1.6;  // times fast
constexpr double kEnoughSeconds = 6;
constexpr int kRounds = 15;

struct Case {
  const char* name;
  int layers, heads, width, context, vocab;
  int grain, grains;  ///< of a step
};
constexpr Case kCases[] = {{"quickstart fp32", 4, 4, 128, 64, 256, 4, 8},
                           {"width256 fp32", 4, 8, 256, 128, 256, 4, 4},
                           {"gpt2-124m fp32", 12, 12, 768, 1024, 50257, 1, 1}};

/// An engine that trains on the same samples again and again.
class Trainee {
 public:
  static Result<Trainee> create(Device& device, const Case& shape, Numerics numerics) {
    EngineOptions options;
    options.model.layers = shape.layers;
    options.model.heads = shape.heads;
    options.model.width = shape.width;
    options.model.context = shape.context;
    options.model.vocab = shape.vocab;
    options.numerics = numerics;
    options.micro_batches = {shape.grain};
    Trainee trainee(shape);
    MOTLEY_TRY(trainee.engine_, Engine::create(device, options));
    return trainee;
  }

  Result<double> seconds_of_step() {
    const double start = thread_seconds();
    engine_->begin_step();
    for (int i = 0; i < shape_.grains; ++i)
      MOTLEY_TRY_VOID(run_micro_batch(*engine_, tokens_, shape_.grain));
    const int64_t tokens = engine_->sums()->tokens;
    MOTLEY_TRY(const double norm, engine_->gradient_norm(tokens, *solo_communicator()));
    MOTLEY_TRY_VOID(engine_->update(++step_, 1e-3, tokens, std::min(1.0, 1.0 / norm)));
    engine_->set_exact_exponent(engine_->next_exact_exponent(engine_->sums()->overflow != 0));
    return thread_seconds() - start;
  }

  double gflops() const { return engine_->flops(shape_.grain).total() * shape_.grains * 1e-9; }

 private:
  explicit Trainee(const Case& shape) : shape_(shape) {
    for (int i = 0; i < shape.grain * (shape.context + 1); ++i)
      tokens_.push_back(i * 7919 % shape.vocab);
  }

  Case shape_;
  std::unique_ptr<Engine> engine_;
  std::vector<int32_t> tokens_;
  int64_t step_ = 0;
};

struct Timing {
  double fast = 0, exact = 0;  ///< median seconds of a step
  double gflops = 0;           ///< of a step
};

/// Rounds of one step of each, so that both meet the same machine.
Result<Timing> measure(const Case& shape) {
  DeviceSpec spec;
  spec.kind = DeviceKind::kCpu;
  MOTLEY_TRY(const auto device, open_device(spec));
  MOTLEY_TRY(Trainee fast, Trainee::create(*device, shape, Numerics::kFast));
  MOTLEY_TRY(Trainee exact, Trainee::create(*device, shape, Numerics::kExact));
  MOTLEY_TRY_VOID(fast.seconds_of_step());
  MOTLEY_TRY_VOID(exact.seconds_of_step());
  std::vector<double> fast_seconds, exact_seconds;
  double total = 0;
  for (int round = 0; round < kRounds && (round < 3 || total < kEnoughSeconds); ++round) {
    MOTLEY_TRY(const double of_fast, fast.seconds_of_step());
    MOTLEY_TRY(const double of_exact, exact.seconds_of_step());
    fast_seconds.push_back(of_fast);
    exact_seconds.push_back(of_exact);
    total += of_fast + of_exact;
  }
  return Timing{*median(fast_seconds), *median(exact_seconds), fast.gflops()};
}

void report(const Case& shape, const Timing& timing, bool json, Rows* rows) {
  const double ratio = timing.exact / timing.fast;
  const double tokens = static_cast<double>(shape.grain) * shape.grains * shape.context;
  rows->add({shape.name, "tokens_per_second", "tokens/s", "higher", tokens / timing.fast});
  rows->add({shape.name, "exact_over_fast", "ratio", "lower", ratio, kExactLimit});
  if (json) return;
  std::printf("%-16s %9.0f tokens/s %7.1f GFLOP/s   exact / fast %.2f (limit %.1f)\n", shape.name,
              tokens / timing.fast, timing.gflops / timing.fast, ratio, kExactLimit);
}

int run(bool json, const std::string& only) {
  Rows rows("engine");
  for (const Case& shape : kCases) {
    if (!only.empty() && only != shape.name) continue;
    const auto timing = measure(shape);
    if (!timing) {
      std::fprintf(stderr, "%s: %s\n", shape.name, timing.error().to_string().c_str());
      return 1;
    }
    report(shape, *timing, json, &rows);
  }
  if (json) rows.print();
  return 0;
}

}  // namespace
}  // namespace motley

int main(int argc, char** argv) {
  const auto [json, only] = motley::bench_arguments(argc, argv);
  return motley::run(json, only);
}
