#include "worker/program/program.h"

#include <algorithm>
#include <variant>

#include "worker/program/placement.h"

namespace motley {

namespace {

/// Extends the lives of one instruction's operands.
class LivenessVisitor {
 public:
  LivenessVisitor(std::vector<Symbol>& symbols, int instruction)
      : symbols_(symbols), instruction_(instruction) {}

  void read(Address operand) {
    if (operand.null()) return;
    const Symbol& symbol = symbols_[operand.symbol_id()];
    MOTLEY_CHECK(symbol.segment != Segment::kActivations || symbol.first_use >= 0,
                 "an activation is read before anything has written it");
    use(operand);
  }
  void update(Address operand) { read(operand); }
  void write(Address operand) {
    if (!operand.null()) use(operand);
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
    case Segment::kGradients:
      return bases.gradients;
    case Segment::kExchange:
      return bases.exchange;
    case Segment::kActivations:
      return bases.activations;
  }
  return nullptr;
}

struct BindingVisitor {
  const Program& program;
  const SegmentBases& bases;

  void read(Address& operand) { operand = bind(program, bases, operand); }
  void update(Address& operand) { read(operand); }
  void write(Address& operand) { read(operand); }
};

}  // namespace

double Program::flops() const {
  double sum = 0;
  for (const Instruction& instruction : instructions) sum += flops_of(instruction.call);
  return sum;
}

Address ProgramBuilder::add(const Symbol& symbol) {
  program_.symbols.push_back(symbol);
  return Address::symbol(static_cast<uint32_t>(program_.symbols.size() - 1));
}

Address ProgramBuilder::fixed(Segment segment, Bytes offset, Bytes size) {
  MOTLEY_CHECK(segment != Segment::kActivations, "activations have no fixed place");
  Symbol symbol;
  symbol.segment = segment;
  symbol.offset = offset;
  symbol.size = size;
  return add(symbol);
}

Address ProgramBuilder::activation(int64_t elements) {
  Symbol symbol;
  symbol.size = Bytes(elements * element_bytes_);
  return add(symbol);
}

Program ProgramBuilder::finish() {
  for (size_t i = 0; i < program_.instructions.size(); ++i) {
    LivenessVisitor visitor(program_.symbols, static_cast<int>(i));
    std::visit([&](auto& args) { args.operands(visitor); }, program_.instructions[i].call);
  }
  program_.arena = place_activations(program_.symbols);
  return std::move(program_);
}

std::vector<Instruction> bind(const Program& program, const SegmentBases& bases) {
  std::vector<Instruction> bound = program.instructions;
  BindingVisitor visitor{program, bases};
  for (Instruction& instruction : bound)
    std::visit([&](auto& args) { args.operands(visitor); }, instruction.call);
  return bound;
}

Address bind(const Program& program, const SegmentBases& bases, Address address) {
  if (address.null()) return address;
  const Symbol& symbol = program.symbols[address.symbol_id()];
  return Address::of(base_of(symbol.segment, bases) + symbol.offset.value());
}

}  // namespace motley
