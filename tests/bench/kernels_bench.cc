// What each operation of a GPT step costs on one CPU thread, beside cblas_sgemm alone on the same
// shapes. Arguments: [--json] [MODEL].

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "kernels/cpu/blas.h"
#include "kernels/device.h"
#include "tests/bench/rows.h"

namespace motley {
namespace {

/// Seconds each call takes: the best of several rounds of at least 5 ms, taken in turns.
std::vector<double> seconds_of(const std::vector<std::function<void()>>& calls) {
  constexpr int kRounds = 7;
  constexpr double kRound = 0.005, kEnough = 2;
  std::vector<double> best(calls.size(), 1e9);
  const double begin = thread_seconds();
  for (const auto& call : calls) call();
  for (int round = 0; round < kRounds && thread_seconds() < begin + kEnough; ++round) {
    for (size_t i = 0; i < calls.size(); ++i) {
      const double start = thread_seconds();
      double elapsed = 0;
      int times = 0;
      for (; elapsed < kRound; ++times, elapsed = thread_seconds() - start) calls[i]();
      best[i] = std::min(best[i], elapsed / times);
    }
  }
  return best;
}

struct ModelShape {
  const char* name;
  int64_t samples, context, width, heads, vocab, layers;
  int64_t rows() const { return samples * context; }
};
constexpr ModelShape kModels[] = {{"quickstart", 8, 64, 128, 4, 256, 4},
                                  {"gpt2-124m", 1, 1024, 768, 12, 50257, 12}};

/// Operands big enough for every operation of a model, filled with small numbers.
class Operands {
 public:
  Operands(Device& device, const ModelShape& model) : device_(device) {
    const int64_t rows = model.rows(), width = model.width;
    largest_ =
        std::max({rows * width * 4, rows * model.vocab, model.vocab * width, width * width * 4,
                  attention_workspace_elements({.qkv = {},
                                                .out = {},
                                                .lse = {},
                                                .workspace = {},
                                                .samples = model.samples,
                                                .context = model.context,
                                                .heads = model.heads,
                                                .head_dim = width / model.heads},
                                               DeviceKind::kCpu, 1)});
  }
  /// A buffer of its own, the same for the same number.
  Address operator[](int number) {
    auto [entry, inserted] = buffers_.try_emplace(number);
    if (inserted) {
      entry->second = std::move(*device_.allocate(Bytes(largest_ * 4)));
      auto* values = static_cast<float*>(entry->second.data());
      for (int64_t i = 0; i < largest_; ++i) values[i] = static_cast<float>(i % 17) * 0.01f;
    }
    return Address::of(entry->second.data());
  }
  Address tokens() {
    const Address address = (*this)[100];
    std::memset(address.as<void>(), 0, static_cast<size_t>(largest_ * 4));
    return address;
  }

 private:
  Device& device_;
  int64_t largest_ = 0;
  std::map<int, DeviceBuffer> buffers_;
};

struct Timed {
  std::string name;
  OpCall call;
  int64_t times;  ///< in a micro-batch's forward and backward pass
  bool gemm = false;
};

struct Product {
  int64_t m, n, k;
  const char* form;  ///< N or T for either operand, + for adding to C
};

Timed matmul(Operands& at, std::string name, int64_t times, const Product& product) {
  return {std::move(name),
          MatmulArgs{.a = at[0],
                     .b = at[1],
                     .c = at[2],
                     .m = product.m,
                     .n = product.n,
                     .k = product.k,
                     .transpose_a = product.form[0] == 'T',
                     .transpose_b = product.form[1] == 'T',
                     .accumulate = product.form[2] == '+'},
          times, true};
}

void add_matmuls(std::vector<Timed>& ops, Operands& at, const ModelShape& model) {
  const int64_t rows = model.rows(), width = model.width, layers = model.layers;
  const auto linear = [&](const std::string& name, int64_t times, int64_t in, int64_t out) {
    ops.push_back(matmul(at, name + " forward", times, {rows, out, in, "NT"}));
    ops.push_back(matmul(at, name + " input gradient", times, {rows, in, out, "NN"}));
    ops.push_back(matmul(at, name + " weight gradient", times, {out, in, rows, "TN+"}));
  };
  linear("qkv", layers, width, 3 * width);
  linear("attention out", layers, width, width);
  linear("mlp up", layers, width, 4 * width);
  linear("mlp down", layers, 4 * width, width);
  const auto with_gelu = [&](Timed& product, Epilogue epilogue) {
    product.name += " with gelu";
    auto& args = std::get<MatmulArgs>(product.call);
    args.pre_activation = at[3];
    args.epilogue = epilogue;
  };
  with_gelu(ops[ops.size() - 6], Epilogue::kGelu);          // mlp up forward
  with_gelu(ops[ops.size() - 2], Epilogue::kGeluGradient);  // mlp down input gradient
  linear("head", 1, width, model.vocab);
}

void add_attention(std::vector<Timed>& ops, Operands& at, const ModelShape& model) {
  const int64_t head_dim = model.width / model.heads;
  ops.push_back({"attention forward",
                 AttentionForwardArgs{at[0], at[1], at[2], at[3], model.samples, model.context,
                                      model.heads, head_dim},
                 model.layers, true});
  ops.push_back({"attention backward",
                 AttentionBackwardArgs{at[0], at[1], at[2], at[4], at[5], at[3], model.samples,
                                       model.context, model.heads, head_dim},
                 model.layers, true});
}

void add_the_rest(std::vector<Timed>& ops, Operands& at, const ModelShape& model) {
  const int64_t rows = model.rows(), width = model.width, layers = model.layers;
  const int64_t parameters =
      std::min(12 * layers * width * width + model.vocab * width, model.vocab * width * 2);
  static const int32_t exponent = 20;
  ops.push_back({"layer norm forward",
                 LayerNormForwardArgs{at[0], at[1], at[2], at[3], at[4], at[5], rows, width},
                 2 * layers + 1});
  ops.push_back({"layer norm backward",
                 LayerNormBackwardArgs{at[0], at[1], at[4], at[5], at[3], at[6], at[7], at[8], rows,
                                       width, true, true},
                 2 * layers + 1});
  ops.push_back(
      {"bias gradient width", BiasGradientArgs{at[0], at[1], rows, width, true}, 2 * layers});
  ops.push_back(
      {"bias gradient 4 width", BiasGradientArgs{at[0], at[1], rows, 4 * width, true}, 2 * layers});
  ops.push_back({"residual add", AddArgs{at[0], at[1], at[2], rows * width}, 2 * layers});
  ops.push_back(
      {"cross entropy", CrossEntropyArgs{at[0], at.tokens(), at[1], at[2], rows, model.vocab}, 1});
  ops.push_back({"embedding forward",
                 EmbeddingForwardArgs{at.tokens(), at[1], at[2], at[3], rows, model.context, width,
                                      model.vocab},
                 1});
  ops.push_back({"embedding backward",
                 EmbeddingBackwardArgs{at.tokens(), at[1], at[2], at[3], rows, model.context, width,
                                       model.vocab, true},
                 1});
  const int64_t half = std::min<int64_t>(parameters, model.vocab * width) / 2;
  ops.push_back({"accumulate fixed (half)",
                 AccumulateFixedArgs{at[0], at[1], at[2], Address::of(&exponent), half}, 0});
  ops.push_back({"from fixed (half)", FromFixedArgs{at[1], at[0], half, exponent}, 0});
  ops.push_back({"adamw (half)",
                 AdamwArgs{at[0], at[1], at[2], at[3], half, 1e-3, .9, .95, 1e-8, .1, 1, .1, .05},
                 0});
  ops.push_back({"square sum (half)", SquareSumArgs{at[0], at[1], half}, 0});
}

void bare_sgemm(const Blas& blas, const MatmulArgs& args) {
  const auto lda = static_cast<int>(args.transpose_a ? args.m : args.k);
  const auto ldb = static_cast<int>(args.transpose_b ? args.k : args.n);
  blas.sgemm(kCblasRowMajor, args.transpose_a ? kCblasTrans : kCblasNoTrans,
             args.transpose_b ? kCblasTrans : kCblasNoTrans, static_cast<int>(args.m),
             static_cast<int>(args.n), static_cast<int>(args.k), 1, args.a.as<float>(), lda,
             args.b.as<float>(), ldb, args.accumulate ? 1.0f : 0.0f, args.c.as<float>(),
             static_cast<int>(args.n));
}

class Report {
 public:
  explicit Report(bool json) : json_(json) {}
  ~Report() {
    if (json_) rows_.print();
  }

  void op(const ModelShape& model, const Timed& timed, double seconds, double peer_seconds) {
    const double gflops = flops_of(timed.call) / seconds * 1e-9;
    const double peer = peer_seconds > 0 ? flops_of(timed.call) / peer_seconds * 1e-9 : 0;
    Row row{model.name + (" " + timed.name), "gflops", "GFLOP/s", "higher", gflops};
    if (peer > 0) row.peers["cblas_sgemm"] = peer;
    rows_.add(row);
    if (json_) return;
    std::printf("%-11s %-26s %9.1f us %8.1f GFLOP/s", model.name, timed.name.c_str(), seconds * 1e6,
                gflops);
    if (peer > 0) std::printf("   cblas_sgemm %8.1f  (%.0f %%)", peer, 100 * gflops / peer);
    std::printf("\n");
  }

  void gemm_share(const ModelShape& model, double share) {
    rows_.add({model.name, "gemm_share", "ratio", "higher", share, 1.0});
    if (json_) return;
    std::printf("%-11s %-26s %9.1f %% of the micro-batch\n\n", model.name, "GEMM and attention",
                100 * share);
  }

 private:
  bool json_;
  Rows rows_{"kernels"};
};

void run_model(Device& device, const Blas& blas, const ModelShape& model, Report& report) {
  Operands operands(device, model);
  std::vector<Timed> ops;
  add_matmuls(ops, operands, model);
  add_attention(ops, operands, model);
  add_the_rest(ops, operands, model);
  double gemm = 0, all = 0;
  for (const Timed& timed : ops) {
    std::vector<std::function<void()>> calls{[&] { execute(device, timed.call); }};
    if (const auto* args = std::get_if<MatmulArgs>(&timed.call))
      calls.push_back([&blas, args] { bare_sgemm(blas, *args); });
    const std::vector<double> best = seconds_of(calls);
    const double seconds = best[0];
    report.op(model, timed, seconds, best.size() > 1 ? best[1] : 0);
    all += static_cast<double>(timed.times) * seconds;
    if (timed.gemm) gemm += static_cast<double>(timed.times) * seconds;
  }
  report.gemm_share(model, gemm / all);
}

int run(bool json, const std::string& only) {
  DeviceSpec spec;
  spec.kind = DeviceKind::kCpu;
  auto device = open_device(spec);
  const auto blas = open_blas();
  if (!device || !blas) {
    std::fprintf(stderr, "%s\n", (device ? blas.error() : device.error()).to_string().c_str());
    return 1;
  }
  Report report(json);
  if (!json) std::printf("%s\n", (*device)->arithmetic_class().c_str());
  for (const ModelShape& model : kModels)
    if (only.empty() || only == model.name) run_model(**device, **blas, model, report);
  return 0;
}

}  // namespace
}  // namespace motley

int main(int argc, char** argv) {
  const auto [json, only] = motley::bench_arguments(argc, argv);
  return motley::run(json, only);
}
