// What a training step costs on one CPU thread: fast, and exact beside it with the same
// micro-batch. Arguments: [--json] [CASE].

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

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

/// CPU time of this thread: what a neighbour's load does not count in.
double seconds_now() {
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<long>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

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
    const double start = seconds_now();
    engine_->begin_step();
    for (int i = 0; i < shape_.grains; ++i)
      MOTLEY_TRY_VOID(run_micro_batch(*engine_, tokens_, shape_.grain));
    const int64_t tokens = engine_->sums()->tokens;
    MOTLEY_TRY(const double norm, engine_->gradient_norm(tokens, *solo_communicator()));
    MOTLEY_TRY_VOID(engine_->update(++step_, 1e-3, tokens, std::min(1.0, 1.0 / norm)));
    engine_->set_exact_exponent(engine_->next_exact_exponent(engine_->sums()->overflow != 0));
    return seconds_now() - start;
  }

  double gflops() const { return engine_->flops(shape_.grain) * shape_.grains * 1e-9; }

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
  return Timing{median(fast_seconds), median(exact_seconds), fast.gflops()};
}

class Report {
 public:
  explicit Report(bool json) : json_(json) {
    if (json_) std::printf("[");
  }
  ~Report() { std::printf(json_ ? "\n]\n" : ""); }

  void add(const Case& shape, const Timing& timing) {
    const double ratio = timing.exact / timing.fast;
    const double tokens = static_cast<double>(shape.grain) * shape.grains * shape.context;
    if (!json_) {
      std::printf("%-16s %9.0f tokens/s %7.1f GFLOP/s   exact / fast %.2f (limit %.1f)\n",
                  shape.name, tokens / timing.fast, timing.gflops / timing.fast, ratio,
                  kExactLimit);
      return;
    }
    row(shape, "tokens_per_second", "tokens/s", "higher", tokens / timing.fast, "null");
    row(shape, "exact_over_fast", "ratio", "lower", ratio, std::to_string(kExactLimit).c_str());
  }

 private:
  void row(const Case& shape, const char* metric, const char* unit, const char* better, double ours,
           const char* limit) {
    std::printf(
        "%s\n{\"bench\": \"engine\", \"case\": \"%s\", \"metric\": \"%s\", \"unit\": \"%s\", "
        "\"better\": \"%s\", \"ours\": %.6g, \"limit\": %s, \"peers\": {}, \"kind\": "
        "\"measured\"}",
        std::exchange(first_, false) ? "" : ",", shape.name, metric, unit, better, ours, limit);
  }

  bool json_;
  bool first_ = true;
};

int run(bool json, const std::string& only) {
  Report report(json);
  for (const Case& shape : kCases) {
    if (!only.empty() && only != shape.name) continue;
    const auto timing = measure(shape);
    if (!timing) {
      std::fprintf(stderr, "%s: %s\n", shape.name, timing.error().to_string().c_str());
      return 1;
    }
    report.add(shape, *timing);
  }
  return 0;
}

}  // namespace
}  // namespace motley

int main(int argc, char** argv) {
  const bool json = argc > 1 && std::strcmp(argv[1], "--json") == 0;
  return motley::run(json, argc > (json ? 2 : 1) ? argv[argc - 1] : "");
}
