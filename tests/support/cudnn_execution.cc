#include "tests/support/cudnn_execution.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <stdexcept>
#include <utility>

#include "core/reduced_floats.h"

namespace motley::testing {
namespace {

using namespace cudnn;  // NOLINT: whose graphs these are
using Extents = std::array<int64_t, 4>;

// --- what tensors hold

int64_t volume(const Extents& extents) { return extents[0] * extents[1] * extents[2] * extents[3]; }

/// Calls with each index and its number in order.
void for_each(const Extents& extents, const std::function<void(const Extents&, size_t)>& body) {
  size_t number = 0;
  Extents at{};
  for (at[0] = 0; at[0] < extents[0]; ++at[0])
    for (at[1] = 0; at[1] < extents[1]; ++at[1])
      for (at[2] = 0; at[2] < extents[2]; ++at[2])
        for (at[3] = 0; at[3] < extents[3]; ++at[3]) body(at, number++);
}

int64_t place(const Extents& at, const Extents& strides) {
  return at[0] * strides[0] + at[1] * strides[1] + at[2] * strides[2] + at[3] * strides[3];
}

struct Shape {
  Extents extents{}, strides{};
  DataType type = DataType::kFloat;
  int64_t id = 0;
  bool is_virtual = false;

  explicit Shape(const Object& tensor)
      : type(tensor.one<DataType>(Attribute::kTensorType)),
        id(tensor.one<int64_t>(Attribute::kTensorId)),
        is_virtual(tensor.one<bool>(Attribute::kTensorVirtual)) {
    std::ranges::copy(tensor.all<int64_t>(Attribute::kTensorDimensions), extents.begin());
    std::ranges::copy(tensor.all<int64_t>(Attribute::kTensorStrides), strides.begin());
  }
};

float load(const void* data, int64_t index, DataType type) {
  if (type == DataType::kFloat) return static_cast<const float*>(data)[index];
  const uint16_t bits = static_cast<const uint16_t*>(data)[index];
  return type == DataType::kHalf ? Fp16::widen(bits) : Bf16::widen(bits);
}

void store(void* data, int64_t index, DataType type, float value) {
  if (type == DataType::kHalf)
    static_cast<uint16_t*>(data)[index] = Fp16::round(value);
  else if (type == DataType::kBfloat16)
    static_cast<uint16_t*>(data)[index] = Bf16::round(value);
  else
    static_cast<float*>(data)[index] = value;
}

float rounded(DataType type, float value) {
  if (type == DataType::kHalf) return Fp16::widen(Fp16::round(value));
  return type == DataType::kBfloat16 ? Bf16::widen(Bf16::round(value)) : value;
}

float of_element(PointwiseMode mode, float x, float b, float t) {
  switch (mode) {
    case PointwiseMode::kAdd:
      return x + b;
    case PointwiseMode::kMultiply:
      return x * b;
    case PointwiseMode::kDivide:
      return x / b;
    case PointwiseMode::kSubtract:
      return x - b;
    case PointwiseMode::kExp:
      return std::exp(x);
    case PointwiseMode::kLog:
      return std::log(x);
    case PointwiseMode::kAtLeast:
      return x >= b ? 1.0F : 0.0F;
    default:
      return t != 0 ? x : b;
  }
}

}  // namespace

const Object& graph_of(const Object& made) {
  if (made.has(Attribute::kPlanConfig)) return graph_of(made.object(Attribute::kPlanConfig));
  return made.object(Attribute::kHeuristicGraph);
}

int64_t workspace_of(const Object& graph) {
  int64_t rows = 0, heads = 0;
  bool backward = false;
  for (const auto* operation : graph.all<const Object*>(Attribute::kGraphOperations)) {
    backward |= operation->type == DescriptorType::kReshapeOperation;
    if (operation->type != DescriptorType::kReductionOperation) continue;
    const Extents extents = Shape(operation->object(Attribute::kReductionX)).extents;
    rows = (extents[2] + 127) / 128 * 128;
    heads = extents[0] * extents[1];
  }
  return backward ? heads * rows * rows * 2 + 256 : 256;
}

float Held::at(const Extents& index) const {
  int64_t number = 0;
  for (size_t i = 0; i < extents.size(); ++i)
    number = number * extents[i] + (extents[i] == 1 ? 0 : index[i]);
  return values[static_cast<size_t>(number)];
}

Execution::Execution(const Object& plan, const Object& pack) : graph_(&graph_of(plan)) {
  workspace_ = pack.one<void*>(Attribute::kPackWorkspace);
  const auto ids = pack.all<int64_t>(Attribute::kPackIds);
  const auto data = pack.all<void*>(Attribute::kPackPointers);
  for (size_t i = 0; i < ids.size(); ++i) data_[ids[i]] = data.at(i);
  for (const auto* operation : graph_->all<const Object*>(Attribute::kGraphOperations))
    for (const auto& [name, values] : operation->attributes) accept(*operation, name);
}

void Execution::run() {
  std::memset(workspace_, 0xff, static_cast<size_t>(workspace_of(*graph_)));
  for (const auto* operation : graph_->all<const Object*>(Attribute::kGraphOperations))
    run(*operation);
}

/// A tensor that is no result of the graph's must have been given; numbers are read now.
void Execution::accept(const Object& operation, Attribute name) {
  const Object& tensor = operation.object(name);
  if (tensor.type != DescriptorType::kTensor) return;
  const Shape shape(tensor);
  if (shape.is_virtual) return;
  const void* data = data_.at(shape.id);
  if (tensor.one<bool>(Attribute::kTensorByValue))
    held_[shape.id] = {shape.extents, {load(data, 0, shape.type)}};
  else if (data == nullptr || reinterpret_cast<uintptr_t>(data) % 4 != 0 ||
           (shape.extents[3] > 1 && reinterpret_cast<uintptr_t>(data) % 16 != 0))
    throw std::invalid_argument("no such memory");
}

const Held& Execution::read(const Object& tensor) {
  const Shape shape(tensor);
  const auto [at, is_new] = held_.try_emplace(shape.id);
  Held& held = at->second;
  if (is_new) {
    held = {shape.extents, std::vector<float>(static_cast<size_t>(volume(shape.extents)))};
    for_each(shape.extents, [&](const Extents& index, size_t number) {
      held.values[number] = load(data_.at(shape.id), place(index, shape.strides), shape.type);
    });
  }
  return held;
}

template <class Value>
void Execution::write(const Object& tensor, Value&& value_at) {
  const Shape shape(tensor);
  Held held{shape.extents, std::vector<float>(static_cast<size_t>(volume(shape.extents)))};
  for_each(shape.extents, [&](const Extents& index, size_t number) {
    held.values[number] = rounded(shape.type, value_at(index));
    if (!shape.is_virtual)
      store(data_.at(shape.id), place(index, shape.strides), shape.type, held.values[number]);
  });
  held_[shape.id] = std::move(held);
}

void Execution::run(const Object& operation) {
  switch (operation.type) {
    case DescriptorType::kPointwiseOperation:
      return pointwise(operation);
    case DescriptorType::kMatmulOperation:
      return product(operation);
    case DescriptorType::kReductionOperation:
      return reduce(operation);
    default:
      return reshape(operation);
  }
}

void Execution::pointwise(const Object& operation) {
  const Object& kind = operation.object(Attribute::kPointwiseDescriptor);
  const auto mode = kind.one<PointwiseMode>(Attribute::kPointwiseMode);
  const Object& y = operation.object(Attribute::kPointwiseY);
  if (mode == PointwiseMode::kIndex) {
    const auto axis = static_cast<size_t>(kind.one<int64_t>(Attribute::kPointwiseAxis));
    return write(y, [=](const Extents& at) { return static_cast<float>(at[axis]); });
  }
  const auto operand = [&](Attribute name) -> const Held* {
    return operation.has(name) ? &read(operation.object(name)) : nullptr;
  };
  const Held *x = operand(Attribute::kPointwiseX), *b = operand(Attribute::kPointwiseB),
             *t = operand(Attribute::kPointwiseT);
  write(y, [=](const Extents& at) {
    return of_element(mode, x->at(at), b == nullptr ? 0 : b->at(at), t == nullptr ? 0 : t->at(at));
  });
}

void Execution::product(const Object& operation) {
  const Held& a = read(operation.object(Attribute::kMatmulA));
  const Held& b = read(operation.object(Attribute::kMatmulB));
  write(operation.object(Attribute::kMatmulC), [&](const Extents& at) {
    float sum = 0;
    for (int64_t k = 0; k < a.extents[3]; ++k)
      sum += a.at({at[0], at[1], at[2], k}) * b.at({at[0], at[1], k, at[3]});
    return sum;
  });
}

void Execution::reduce(const Object& operation) {
  const auto kind = operation.object(Attribute::kReductionDescriptor)
                        .one<Reduction>(Attribute::kReductionOperator);
  const Held& x = read(operation.object(Attribute::kReductionX));
  write(operation.object(Attribute::kReductionY), [&](Extents at) {
    at[3] = 0;
    float result = x.at(at);
    for (at[3] = 1; at[3] < x.extents[3]; ++at[3])
      result = kind == Reduction::kMax ? std::max(result, x.at(at)) : result + x.at(at);
    return result;
  });
}

/// The same memory, seen with other strides.
void Execution::reshape(const Object& operation) {
  const Object &from = operation.object(Attribute::kReshapeX),
               &to = operation.object(Attribute::kReshapeY);
  const Held& x = read(from);
  const Shape seen(from), result(to);
  std::map<int64_t, float> memory;
  for_each(x.extents, [&](const Extents& at, size_t number) {
    memory[place(at, seen.strides)] = x.values[number];
  });
  write(to, [&](const Extents& at) { return memory.at(place(at, result.strides)); });
}

}  // namespace motley::testing
