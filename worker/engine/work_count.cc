#include "worker/engine/work_count.h"

#include <algorithm>
#include <type_traits>

#include "worker/engine/memory_plan.h"

namespace motley {
namespace {

/// Bytes of one operation's operands, each read or written once.
class OperandBytes {
 public:
  explicit OperandBytes(Precision precision) : precision_(precision) {}

  void read(const Operand& operand) { add(operand, 1); }
  void write(const Operand& operand) { add(operand, 1); }
  void update(const Operand& operand) { add(operand, 2); }

  double bytes() const { return bytes_; }

 private:
  void add(const Operand& operand, int times) {
    if (operand.address.null()) return;
    const int element = operand.type == ElementType::kBytes     ? 1
                        : operand.type == ElementType::kReduced ? reduced_bytes(precision_)
                                                                : full_bytes(precision_);
    bytes_ += 1.0 * times * static_cast<double>(operand.count) * element;
  }

  Precision precision_;
  double bytes_ = 0;
};

template <class Args>
constexpr bool kIsProduct =
    std::is_same_v<Args, MatmulArgs> || std::is_same_v<Args, AttentionForwardArgs> ||
    std::is_same_v<Args, AttentionBackwardArgs>;

/// Of tables only the rows of tokens that occur: as many as there are rows of output at most.
template <class Args>
double bytes_of(Args args, Precision precision) {
  if constexpr (std::is_same_v<Args, EmbeddingForwardArgs>)
    args.vocab = std::min(args.vocab, args.rows);
  if constexpr (std::is_same_v<Args, EmbeddingBackwardArgs>)
    if (args.accumulate) args.vocab = std::min(args.vocab, args.rows);
  OperandBytes counted(precision);
  args.operands(counted);
  return counted.bytes();
}

void add_call(const OpCall& call, double flops, Precision precision, PassWork* pass) {
  ++pass->operations;
  std::visit(
      [&]<class Args>(const Args& args) {
        (kIsProduct<Args> ? pass->product_flops : pass->other_flops) += flops;
        (kIsProduct<Args> ? pass->product_bytes : pass->other_bytes) += bytes_of(args, precision);
      },
      call);
}

/// Elements that the ranks sum for it, in full precision.
int64_t summed(const Work& work, int members) {
  if (const auto* sum = std::get_if<GroupSum>(&work)) return sum->count;
  return members * std::get<GroupGather>(work).count;
}

}  // namespace

CountedWork count_work(const EngineOptions& options, const DeviceTraits& device, int samples) {
  const StageSpec stage = stage_spec(options, device);
  const ParameterLayout parameters(holdings_of(stage.model, stage.layers, stage.member));
  const Program program =
      compile_training(stage, parameters, ExchangeLayout(stage, samples), samples);
  CountedWork counted;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    PassWork& pass = i < program.backward ? counted.forward : counted.backward;
    if (const auto* call = std::get_if<OpCall>(&instruction.work)) {
      add_call(*call, instruction.flops, stage.precision, &pass);
      continue;
    }
    ++pass.sums;
    counted.sum_bytes += 1.0 *
                         static_cast<double>(summed(instruction.work, stage.shape().members)) *
                         full_bytes(stage.precision);
  }
  return counted;
}

double update_bytes(int64_t elements, Precision precision) {
  // The norm reads the gradient; AdamW reads gradient, weight and moments and writes the latter.
  constexpr int kPassesOverState = 1 + 4 + 3;
  const int rounded = is_reduced(precision) ? reduced_bytes(precision) : 0;
  return static_cast<double>(elements) * (kPassesOverState * full_bytes(precision) + rounded);
}

}  // namespace motley
