#include "worker/program/program.h"

#include <algorithm>
#include <variant>

#include "worker/program/final_gradients.h"
#include "worker/program/placement.h"

namespace motley {

namespace {

/// Extends the lives of one instruction's operands.
class LivenessVisitor {
 public:
  LivenessVisitor(std::vector<Symbol>& symbols, int instruction)
      : symbols_(symbols), instruction_(instruction) {}

  void read(const Operand& operand) {
    if (operand.address.null()) return;
    const Symbol& symbol = symbols_[operand.address.symbol_id()];
    MOTLEY_CHECK(symbol.segment != Segment::kActivations || symbol.first_use >= 0,
                 "an activation is read before anything has written it");
    use(operand.address);
  }
  void update(const Operand& operand) { read(operand); }
  void write(const Operand& operand) {
    if (!operand.address.null()) use(operand.address);
  }

 private:
  void use(Address operand) {
    Symbol& symbol = symbols_[operand.symbol_id()];
    if (symbol.first_use < 0) symbol.first_use = instruction_;
    symbol.last_use = instruction_;
  }

  std::vector<Symbol>& symbols_;
  int instruction_;
};

std::byte* base_of(Segment segment, const SegmentBases& bases) {
  switch (segment) {
    case Segment::kParameters:
      return bases.parameters;
    case Segment::kRounded:
      return bases.rounded;
    case Segment::kGradients:
      return bases.gradients;
    case Segment::kExchange:
      return bases.exchange;
    case Segment::kSlot:
      return bases.slot;
    case Segment::kKept:
      return bases.kept;
    case Segment::kActivations:
      return bases.activations;
  }
  return nullptr;
}

bool placed(Segment segment) {
  return segment == Segment::kKept || segment == Segment::kActivations;
}

template <class Visitor>
void visit_operands(Work& work, Visitor& visitor) {
  const auto visit = [&](auto& args) { args.operands(visitor); };
  if (auto* call = std::get_if<OpCall>(&work)) return std::visit(visit, *call);
  if (auto* sum = std::get_if<GroupSum>(&work)) return visit(*sum);
  visit(std::get<GroupGather>(work));
}

struct BindingVisitor {
  const Program& program;
  const SegmentBases& bases;

  void read(const Operand& operand) { operand.address = bind(program, bases, operand.address); }
  void update(const Operand& operand) { read(operand); }
  void write(const Operand& operand) { read(operand); }
};

}  // namespace

double Program::flops() const {
  double sum = 0;
  for (const Instruction& instruction : instructions) sum += instruction.flops;
  return sum;
}

Address ProgramBuilder::add(const Symbol& symbol) {
  program_.symbols.push_back(symbol);
  return Address::symbol(static_cast<uint32_t>(program_.symbols.size() - 1));
}

Address ProgramBuilder::fixed(Segment segment, Bytes offset, Bytes size) {
  MOTLEY_CHECK(!placed(segment), "symbols of the program have no fixed place");
  Symbol symbol;
  symbol.segment = segment;
  symbol.offset = offset;
  symbol.size = size;
  return add(symbol);
}

Address ProgramBuilder::activation(int64_t elements) {
  return add_placed(Bytes(elements * reduced_bytes(precision_)));
}

Address ProgramBuilder::statistic(int64_t elements) {
  return add_placed(Bytes(elements * full_bytes(precision_)));
}

Address ProgramBuilder::add_placed(Bytes size) {
  Symbol symbol;
  symbol.size = size;
  return add(symbol);
}

Program ProgramBuilder::finish(bool keep_apart) {
  for (size_t i = 0; i < program_.instructions.size(); ++i) {
    LivenessVisitor visitor(program_.symbols, static_cast<int>(i));
    visit_operands(program_.instructions[i].work, visitor);
  }
  const auto backward = static_cast<int>(program_.backward);
  for (Symbol& symbol : program_.symbols)
    if (keep_apart && symbol.segment == Segment::kActivations && symbol.first_use < backward &&
        symbol.last_use >= backward)
      symbol.segment = Segment::kKept;
  program_.kept = place_symbols(program_.symbols, Segment::kKept);
  program_.arena = place_symbols(program_.symbols, Segment::kActivations);
  program_.final_gradients = final_gradients(program_.symbols, kLeastFinalGradients);
  program_.needed_weights =
      needed_weights(program_.symbols, program_.backward, kLeastFinalGradients);
  return std::move(program_);
}

std::vector<Instruction> bind(const Program& program, const SegmentBases& bases) {
  std::vector<Instruction> bound = program.instructions;
  BindingVisitor visitor{program, bases};
  for (Instruction& instruction : bound) visit_operands(instruction.work, visitor);
  return bound;
}

Address bind(const Program& program, const SegmentBases& bases, Address address) {
  if (address.null()) return address;
  const Symbol& symbol = program.symbols[address.symbol_id()];
  return Address::of(base_of(symbol.segment, bases) + symbol.offset.value());
}

}  // namespace motley
