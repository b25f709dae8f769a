#include "tests/gpu/operand_sets.h"

#include <algorithm>

namespace motley::testing {
namespace {

Result<DeviceBuffer> uniform_block(Device& device, Bytes size, float low, std::mt19937* random) {
  std::uniform_real_distribution<float> draw(low, 1);
  std::vector<float> values(static_cast<size_t>(size.value()) / sizeof(float));
  for (float& value : values) value = draw(*random);
  MOTLEY_TRY(DeviceBuffer block, device.allocate(size));
  MOTLEY_TRY_VOID(device.copy_in(block.data(), std::as_bytes(std::span(values))));
  return block;
}

struct PlaceOperands {
  const std::vector<DeviceBuffer>& memory;
  size_t first;

  void read(const Operand& operand) {
    if (!operand.address.null())
      operand.address = Address::of(memory[first + operand.address.symbol_id()].data());
  }
  void update(const Operand& operand) { read(operand); }
  void write(const Operand& operand) { read(operand); }
};

}  // namespace

Result<RandomFill> RandomFill::create(Device& device, Bytes block) {
  RandomFill fill(device);
  MOTLEY_TRY(fill.full_, uniform_block(device, block, 0.05F, &fill.random_));
  MOTLEY_TRY(fill.reduced_, uniform_block(device, block, -1, &fill.random_));
  if (is_reduced(device.precision())) {
    MOTLEY_TRY(const DeviceBuffer wide, uniform_block(device, block, -1, &fill.random_));
    const int64_t count = block.value() / full_bytes(device.precision());
    fill.reduced_ = DeviceBuffer();
    MOTLEY_TRY(fill.reduced_, device.allocate(Bytes(count * reduced_bytes(device.precision()))));
    execute(device, RoundArgs{.in = Address::of(wide.data()),
                              .out = Address::of(fill.reduced_.data()),
                              .count = count});
    MOTLEY_TRY_VOID(device.synchronize());
  }
  return fill;
}

Result<Unit> RandomFill::put_tokens(const DeviceBuffer& memory, int64_t count, int64_t vocab) {
  std::uniform_int_distribution<int32_t> draw(0, static_cast<int32_t>(vocab - 1));
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (int32_t& token : tokens) token = draw(random_);
  return device_->copy_in(memory.data(), std::as_bytes(std::span(tokens)));
}

Result<Unit> RandomFill::operator()(const DeviceBuffer& memory, const OperandBuffer& what,
                                    int64_t vocab) {
  const int64_t size = what.size.value();
  if (what.tokens) return put_tokens(memory, size / 4, vocab);
  if (!what.runs.empty())
    return device_->copy_in(memory.data(), std::as_bytes(std::span(what.runs)));
  if (what.type == ElementType::kBytes) {
    if (size > 0) execute(*device_, ZeroArgs{.out = Address::of(memory.data()), .bytes = size});
    return Unit{};
  }
  const DeviceBuffer& block = what.type == ElementType::kFull ? full_ : reduced_;
  for (int64_t done = 0; done < size; done += block.size().value())
    execute(*device_, CopyArgs{.in = Address::of(block.data()),
                               .out = Address::of(static_cast<std::byte*>(memory.data()) + done),
                               .bytes = std::min(block.size().value(), size - done)});
  return Unit{};
}

Result<OperandSets> OperandSets::create(Device& device, const StepOperation& operation,
                                        Bytes enough, RandomFill& fill) {
  int64_t size = 1;
  for (const OperandBuffer& buffer : operation.buffers) size += buffer.size.value();
  const int64_t count = std::clamp<int64_t>((enough.value() + size - 1) / size, 1, kMostSets);
  OperandSets sets;
  for (int64_t set = 0; set < count; ++set) {
    for (const OperandBuffer& buffer : operation.buffers) {
      MOTLEY_TRY(DeviceBuffer memory, device.allocate(buffer.size));
      MOTLEY_TRY_VOID(fill(memory, buffer, operation.vocab));
      sets.memory_.push_back(std::move(memory));
    }
  }
  for (int64_t set = 0; set < count; ++set) {
    OpCall call = operation.call;
    PlaceOperands place{sets.memory_, static_cast<size_t>(set) * operation.buffers.size()};
    std::visit([&](auto& args) { args.operands(place); }, call);
    sets.calls_.push_back(call);
  }
  MOTLEY_TRY_VOID(device.synchronize());
  return sets;
}

}  // namespace motley::testing
