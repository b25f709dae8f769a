#include "tests/gpu/step_operations.h"

#include <cxxabi.h>

#include <cctype>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <typeinfo>

#include "core/holdings.h"
#include "worker/engine/stage.h"
#include "worker/engine/updater.h"

namespace motley::testing {
namespace {

/// "motley::LayerNormForwardArgs" -> "layer norm forward"
std::string words_of(const std::type_info& type) {
  const std::unique_ptr<char, void (*)(void*)> demangled(
      abi::__cxa_demangle(type.name(), nullptr, nullptr, nullptr), std::free);
  std::string name = demangled.get();
  name = name.substr(name.rfind(':') + 1);
  if (name.ends_with("Args")) name.resize(name.size() - 4);
  std::string words;
  for (const char c : name) {
    const bool begins = std::isupper(static_cast<unsigned char>(c)) != 0;
    if (begins && !words.empty()) words += ' ';
    words += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return words;
}

std::string times_signs(std::initializer_list<int64_t> numbers) {
  std::string text;
  for (const int64_t number : numbers) text += (text.empty() ? " " : "x") + std::to_string(number);
  return text;
}

/// What of the arguments says how much there is to do, whatever the operation.
template <class Args>
std::string shape_of(const Args& args) {
  if constexpr (requires { args.transpose_a; })
    return times_signs({args.m, args.n, args.k}) + (args.transpose_a ? " T" : " N") +
           (args.transpose_b ? "T" : "N") + (args.accumulate ? "+" : "") +
           (args.epilogue == Epilogue::kGelu ? " gelu" : "") +
           (args.epilogue == Epilogue::kGeluGradient ? " gelu gradient" : "");
  else if constexpr (requires { args.head_dim; })
    return times_signs({args.samples, args.context, args.heads, args.head_dim});
  else if constexpr (requires { args.residual; })
    return times_signs({args.rows, args.width}) + (args.residual.null() ? "" : " of a sum");
  else if constexpr (requires { args.rows, args.width; })
    return times_signs({args.rows, args.width});
  else if constexpr (requires { args.rows, args.vocab; })
    return times_signs({args.rows, args.vocab});
  else if constexpr (requires { args.rows, args.n; })
    return times_signs({args.rows, args.n});
  else if constexpr (requires { args.count; })
    return times_signs({args.count});
  else if constexpr (requires { args.bytes; })
    return times_signs({args.bytes});
  else
    return "";
}

template <class Args>
double tensor_flops_of(const Args& args) {
  if constexpr (requires { args.transpose_a; })
    return 2.0 * static_cast<double>(args.m) * static_cast<double>(args.n) *
           static_cast<double>(args.k);
  else if constexpr (requires { args.head_dim; })
    return args.flops() / 2;
  else
    return 0;
}

using SizeOf = std::function<Bytes(uint32_t symbol)>;

/// Numbers an operation's symbols from 0, counts what it moves, and says what must lie where.
class OperandCollector {
 public:
  OperandCollector(Precision precision, const SizeOf& size_of)
      : precision_(precision), size_of_(size_of) {}

  void read(const Operand& operand) { add(operand, 1); }
  void write(const Operand& operand) { add(operand, 1); }
  void update(const Operand& operand) { add(operand, 2); }

  double bytes() const { return bytes_; }
  std::vector<OperandBuffer> buffers() const { return buffers_; }

 private:
  int64_t element_bytes(ElementType type) const {
    if (type == ElementType::kBytes) return 1;
    return type == ElementType::kFull ? full_bytes(precision_) : reduced_bytes(precision_);
  }
  void add(const Operand& operand, int passes) {
    if (operand.address.null()) return;
    const int64_t size = operand.count * element_bytes(operand.type);
    bytes_ += static_cast<double>(size * passes);
    const uint32_t symbol = operand.address.symbol_id();
    const auto [entry, is_new] = ids_.try_emplace(symbol, static_cast<uint32_t>(buffers_.size()));
    if (is_new) buffers_.push_back({Bytes(0), operand.type});
    Bytes& held = buffers_[entry->second].size;
    held = std::max({held, Bytes(size), size_of_(symbol)});
    operand.address = Address::symbol(entry->second);
  }

  Precision precision_;
  const SizeOf& size_of_;
  double bytes_ = 0;
  std::vector<OperandBuffer> buffers_;
  std::map<uint32_t, uint32_t> ids_;
};

StepOperation described(OpCall call, Precision precision, const SizeOf& size_of) {
  StepOperation operation;
  OperandCollector collector(precision, size_of);
  std::visit(
      [&](auto& args) {
        args.operands(collector);
        operation.name = words_of(typeid(args)) + shape_of(args);
        operation.tensor_flops = tensor_flops_of(args);
        operation.buffers = collector.buffers();
        const auto holds_tokens = [&](Address address) {
          operation.buffers[address.symbol_id()].tokens = true;
        };
        if constexpr (requires { args.tokens; }) holds_tokens(args.tokens);
        if constexpr (requires { args.targets; }) holds_tokens(args.targets);
        if constexpr (requires { args.vocab; }) operation.vocab = args.vocab;
      },
      call);
  operation.bytes = collector.bytes();
  operation.call = call;
  return operation;
}

/// Of symbols that are as large as their operands.
Bytes as_counted(uint32_t /*symbol*/) { return Bytes(0); }

/// What tells operations apart: the same name may do more or less with other operands.
std::string key_of(const StepOperation& operation) {
  std::string key = operation.name;
  for (const OperandBuffer& buffer : operation.buffers)
    key += " " + std::to_string(static_cast<int>(buffer.type)) + ":" +
           std::to_string(buffer.size.value());
  return key + " " + std::to_string(operation.bytes);
}

class DistinctOperations {
 public:
  void add(StepOperation operation) {
    const auto [entry, is_new] = index_.try_emplace(key_of(operation), operations_.size());
    if (!is_new) return void(++operations_[entry->second].times);
    const int same = ++names_[operation.name];
    if (same > 1) operation.name += " #" + std::to_string(same);
    operations_.push_back(std::move(operation));
  }
  std::vector<StepOperation> take() { return std::move(operations_); }

 private:
  std::vector<StepOperation> operations_;
  std::map<std::string, size_t> index_;
  std::map<std::string, int> names_;
};

Address symbol(uint32_t id) { return Address::symbol(id); }

/// The table that an operation over many runs reads.
std::vector<ParameterRun> table_of(const std::vector<UpdateRun>& runs, double weight_decay) {
  std::vector<ParameterRun> table;
  int64_t blocks = 0;
  for (const UpdateRun& run : runs) {
    table.push_back({run.parameter, run.state, run.count, blocks, run.decay ? weight_decay : 0});
    blocks += blocks_of_run(run.count);
  }
  return table;
}

StepOperation square_sum(const UpdateLayout& layout, Precision precision) {
  const UpdateTables places(layout);
  StepOperation operation =
      described(SquareSumArgs{.x = symbol(0),
                              .out = symbol(1),
                              .count = places.owned_elements,
                              .runs = symbol(2),
                              .run_count = static_cast<int64_t>(layout.owned.size()),
                              .blocks = places.owned_blocks,
                              .parts = symbol(3)},
                precision, as_counted);
  operation.buffers[2].runs = table_of(layout.owned, 0);
  return operation;
}

StepOperation adamw(const UpdateLayout& layout, Precision precision) {
  const UpdateTables places(layout);
  const bool rounds = is_reduced(precision);
  StepOperation operation =
      described(AdamwArgs{.parameter = symbol(0),
                          .gradient = symbol(1),
                          .m = symbol(2),
                          .v = symbol(3),
                          .count = places.updated_elements,
                          .lr = 1e-4,
                          .beta1 = 0.9,
                          .beta2 = 0.95,
                          .eps = 1e-8,
                          .rounded = rounds ? symbol(4) : Address(),
                          .runs = symbol(5),
                          .run_count = static_cast<int64_t>(layout.updated.size()),
                          .blocks = places.updated_blocks,
                          .extent = places.extent},
                precision, as_counted);
  operation.buffers.back().runs = table_of(layout.updated, 0.1);
  // What lies between the runs stays, but nobody reads it.
  if (rounds) operation.bytes -= static_cast<double>(places.extent * reduced_bytes(precision));
  return operation;
}

/// What a step does once, as Updater and StageEngine call it: gradients to zero, their norm, the
/// update with the weights rounded.
std::vector<StepOperation> update_operations(const ModelSpec& model, Precision precision) {
  EngineOptions options;
  options.model = model;
  const ParameterLayout parameters(model);
  const UpdateLayout layout(options, parameters);
  return {
      described(ZeroArgs{.out = symbol(0), .bytes = parameters.elements() * full_bytes(precision)},
                precision, as_counted),
      square_sum(layout, precision), adamw(layout, precision)};
}

}  // namespace

std::vector<StepOperation> limit_operations(Precision precision, Bytes copied, int64_t side) {
  std::vector<StepOperation> operations = {described(
      CopyArgs{.in = symbol(0), .out = symbol(1), .bytes = copied.value()}, precision, as_counted)};
  operations.back().limit = "copy";
  for (const int64_t rows : {side, 2 * side}) {
    operations.push_back(described(MatmulArgs{.a = symbol(0),
                                              .b = symbol(1),
                                              .c = symbol(2),
                                              .m = rows,
                                              .n = side,
                                              .k = side,
                                              .transpose_b = true},
                                   precision, as_counted));
    operations.back().limit = "matmul";
  }
  return operations;
}

std::vector<StepOperation> step_operations(const ModelSpec& model, const DeviceTraits& device,
                                           int samples) {
  const Precision precision = device.precision;
  const StageSpec stage{.model = model,
                        .layers = whole_model(model),
                        .precision = precision,
                        .kind = device.kind,
                        .threads = device.threads};
  const ParameterLayout parameters(model);
  const ExchangeLayout exchange(stage, samples);
  const Program program = compile_training(stage, parameters, exchange, samples);
  DistinctOperations distinct;
  for (const Instruction& instruction : program.instructions)
    if (const auto* call = std::get_if<OpCall>(&instruction.work))
      distinct.add(
          described(*call, precision, [&](uint32_t id) { return program.symbols[id].size; }));
  for (StepOperation& operation : update_operations(model, precision))
    distinct.add(std::move(operation));
  return distinct.take();
}

}  // namespace motley::testing
