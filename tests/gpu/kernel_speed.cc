// Times every operation of a training step on a device, back to back and out of cache, and what
// they could take at best: a copy, the largest product. One JSON object a line, as it is measured:
//
//   motley_kernel_speed cpu|cuda full|tiny LAYERS HEADS WIDTH CONTEXT VOCAB SAMPLES [FIRST [LAST]]
//
// A GPU that has faulted computes no more: the program then ends with 1, and whoever started it
// goes on behind with FIRST, the index of the operation to begin with. LAST is that of the first
// which is left out.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "core/clock.h"
#include "core/median.h"
#include "core/spec/names.h"
#include "tests/gpu/operand_sets.h"

namespace motley::testing {
namespace {

constexpr int kRounds = 7;
constexpr int kMostCalls = 2000;

/// How much is enough: for a GPU, or to try out this program.
struct Scale {
  Bytes random{0};   ///< drawn on the host
  Bytes sets{0};     ///< of operands: several times the largest cache
  Bytes copied{0};   ///< by the copy that sets the limit
  int64_t side = 0;  ///< of the largest product
  double round = 0;  ///< seconds
};
constexpr Scale kFull = {Bytes(64 << 20), Bytes(1 << 30), Bytes(2LL << 30), 8192, 0.03};
constexpr Scale kTiny = {Bytes(1 << 20), Bytes(1 << 20), Bytes(1 << 20), 64, 0.0005};

struct Timing {
  double seconds = 0;  ///< of a call, median of rounds
  double spread = 0;   ///< (slowest - fastest round) / median
};

/// Seconds that `count` calls take, with one wait for the device at their end.
Result<double> seconds_of(Device& device, const OperandSets& sets, int count) {
  const size_t different = sets.calls().size();
  const Nanos start = steady_clock().now();
  for (size_t i = 0; i < static_cast<size_t>(count); ++i)
    execute(device, sets.calls()[i % different]);
  MOTLEY_TRY_VOID(device.synchronize());
  return static_cast<double>((steady_clock().now() - start).value()) * 1e-9;
}

Result<Timing> time_operation(Device& device, const OperandSets& sets, double round) {
  MOTLEY_TRY_VOID(seconds_of(device, sets, 3));  // what is loaded and chosen at first
  MOTLEY_TRY(const double estimate, seconds_of(device, sets, 3));
  const int calls = static_cast<int>(std::clamp(3 * round / estimate, 3.0, 1.0 * kMostCalls));
  std::vector<double> seconds;
  for (int i = 0; i < kRounds; ++i) {
    MOTLEY_TRY(const double all, seconds_of(device, sets, calls));
    seconds.push_back(all / calls);
  }
  const auto [fastest, slowest] = std::minmax_element(seconds.begin(), seconds.end());
  const double middle = *median(seconds);
  return Timing{middle, (*slowest - *fastest) / middle};
}

Result<Timing> measure(Device& device, const StepOperation& operation, const Scale& scale,
                       RandomFill& fill) {
  MOTLEY_TRY_VOID(device.reserve_scratch(scratch_bytes(operation.call, device.precision())));
  MOTLEY_TRY(const OperandSets sets, OperandSets::create(device, operation, scale.sets, fill));
  return time_operation(device, sets, scale.round);
}

void print(const StepOperation& operation, size_t index, const Result<Timing>& timing) {
  nlohmann::json line = {{"index", index},
                         {"name", operation.name},
                         {"times", operation.times},
                         {"bytes", operation.bytes},
                         {"tensor_flops", operation.tensor_flops}};
  if (!operation.limit.empty()) line["limit"] = operation.limit;
  if (timing) {
    line["seconds"] = timing->seconds;
    line["spread"] = timing->spread;
  } else {
    line["error"] = timing.error().to_string();
  }
  std::printf("%s\n", line.dump().c_str());
  std::fflush(stdout);
}

struct Task {
  DeviceKind kind = DeviceKind::kCuda;
  Scale scale;
  ModelSpec model;
  int samples = 0;
  size_t first = 0, last = SIZE_MAX;
};

Result<Unit> run(const Task& task) {
  DeviceSpec spec;
  spec.kind = task.kind;
  MOTLEY_TRY(const auto device, open_device(spec, Precision::kBf16));
  const Scale& scale = task.scale;
  MOTLEY_TRY(RandomFill fill, RandomFill::create(*device, scale.random));
  auto operations = limit_operations(device->precision(), scale.copied, scale.side);
  auto of_step = step_operations(task.model, traits_of(*device), task.samples);
  std::move(of_step.begin(), of_step.end(), std::back_inserter(operations));
  for (size_t i = task.first; i < std::min(task.last, operations.size()); ++i) {
    const auto timing = measure(*device, operations[i], scale, fill);
    print(operations[i], i, timing);
    if (!timing) return fail(timing.error());
  }
  return Unit{};
}

}  // namespace
}  // namespace motley::testing

int main(int argc, char** argv) {
  using namespace motley;
  const std::string scale = argc > 2 ? argv[2] : "";
  const auto kind = argc > 1 ? from_spec_name<DeviceKind>(argv[1]) : std::nullopt;
  if (!kind || (scale != "full" && scale != "tiny") || argc < 9 || argc > 11) {
    std::fprintf(stderr,
                 "usage: motley_kernel_speed cpu|cuda full|tiny LAYERS HEADS WIDTH CONTEXT VOCAB "
                 "SAMPLES [FIRST [LAST]]\n");
    return exit_code(ErrorCode::kUsage);
  }
  const auto number = [&](int i) { return std::atoi(argv[i]); };
  testing::Task task;
  task.kind = *kind;
  task.scale = scale == "full" ? testing::kFull : testing::kTiny;
  task.model.layers = number(3);
  task.model.heads = number(4);
  task.model.width = number(5);
  task.model.context = number(6);
  task.model.vocab = number(7);
  task.samples = number(8);
  if (argc > 9) task.first = static_cast<size_t>(number(9));
  if (argc > 10) task.last = static_cast<size_t>(number(10));
  const auto done = testing::run(task);
  if (done) return 0;
  std::fprintf(stderr, "motley_kernel_speed: %s\n", done.error().to_string().c_str());
  return exit_code(done.error().code);
}
