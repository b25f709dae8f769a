#include "kernels/cuda/cudnn_graph.h"

#include <utility>

namespace motley::cudnn {
namespace {

constexpr int64_t kAlignment = 16;  // bytes; our addresses are 256-byte aligned at their start

Extents packed(const Extents& extents) {
  Extents strides{};
  int64_t stride = 1;
  for (size_t i = extents.size(); i-- > 0; stride *= extents[i]) strides[i] = stride;
  return strides;
}

DataType result_type(PointwiseMode mode) {
  if (mode == PointwiseMode::kIndex) return DataType::kInt32;
  return mode == PointwiseMode::kAtLeast ? DataType::kBoolean : DataType::kFloat;
}

}  // namespace

Descriptors::~Descriptors() {
  for (auto at = made_.rbegin(); at != made_.rend(); ++at) library_->destroy_descriptor(*at);
}

Descriptor Descriptors::make(DescriptorType type) {
  Descriptor made = nullptr;
  if (!good()) return made;
  note(library_->create_descriptor(type, &made), "descriptor", static_cast<int>(type));
  if (good()) made_.push_back(made);
  return made;
}

void Descriptors::set(Descriptor descriptor, Attribute name, AttributeType type, int64_t count,
                      const void* values) {
  if (!good()) return;
  note(library_->set_attribute(descriptor, name, type, count, values), "attribute",
       static_cast<int>(name));
}

void Descriptors::finish(Descriptor descriptor) {
  if (!good()) return;
  note(library_->finalize(descriptor), "finish", static_cast<int>(made_.size()));
}

void Descriptors::note(Status status, const char* what, int number) {
  if (status == Status::kSuccess) return;
  refusal_ = std::string(what) + " " + std::to_string(number) + ": " + library_->reason(status);
}

Tensor Graph::tensor(const Placement& place, DataType type, const Extents& extents,
                     const Extents& strides) {
  const Descriptor made = d_.make(DescriptorType::kTensor);
  d_.set(made, Attribute::kTensorType, type);
  d_.set_all(made, Attribute::kTensorDimensions, std::span<const int64_t>(extents));
  d_.set_all(made, Attribute::kTensorStrides, std::span<const int64_t>(strides));
  d_.set(made, Attribute::kTensorId, place.id);
  d_.set(made, Attribute::kTensorAlignment, kAlignment);
  d_.set(made, Attribute::kTensorVirtual, place.is_virtual);
  d_.set(made, Attribute::kTensorByValue, place.by_value);
  d_.finish(made);
  return {made, extents, strides};
}

Tensor Graph::memory(int64_t id, DataType type, const Extents& extents, const Extents& strides) {
  return tensor({id, false, false}, type, extents, strides);
}

Tensor Graph::scalar(int64_t id) {
  return tensor({id, false, true}, DataType::kFloat, {1, 1, 1, 1}, {1, 1, 1, 1});
}

Tensor Graph::inside(DataType type, const Extents& extents) {
  return tensor({next_id_++, true, false}, type, extents, packed(extents));
}

Descriptor Graph::pointwise_kind(PointwiseMode mode, DataType precision) {
  const Descriptor kind = d_.make(DescriptorType::kPointwise);
  d_.set(kind, Attribute::kPointwiseMode, mode);
  d_.set(kind, Attribute::kPointwisePrecision, precision);
  return kind;
}

void Graph::pointwise(PointwiseMode mode, const Ternary& operands, const Tensor& result) {
  const Descriptor kind =
      pointwise_kind(mode, mode == PointwiseMode::kAtLeast ? DataType::kBoolean : DataType::kFloat);
  d_.finish(kind);
  const Descriptor operation = d_.make(DescriptorType::kPointwiseOperation);
  d_.set(operation, Attribute::kPointwiseDescriptor, kind);
  d_.set(operation, Attribute::kPointwiseX, operands.x.descriptor);
  if (operands.b.descriptor != nullptr)
    d_.set(operation, Attribute::kPointwiseB, operands.b.descriptor);
  if (operands.t.descriptor != nullptr)
    d_.set(operation, Attribute::kPointwiseT, operands.t.descriptor);
  d_.set(operation, Attribute::kPointwiseY, result.descriptor);
  add(operation);
}

Tensor Graph::pointwise(PointwiseMode mode, const Ternary& operands) {
  const Tensor result = inside(result_type(mode), operands.x.extents);
  pointwise(mode, operands, result);
  return result;
}

Tensor Graph::index(const Tensor& like, int64_t axis) {
  const Descriptor kind = pointwise_kind(PointwiseMode::kIndex, DataType::kInt32);
  d_.set(kind, Attribute::kPointwiseAxis, axis);
  d_.finish(kind);
  const Tensor result = inside(DataType::kInt32, like.extents);
  const Descriptor operation = d_.make(DescriptorType::kPointwiseOperation);
  d_.set(operation, Attribute::kPointwiseDescriptor, kind);
  d_.set(operation, Attribute::kPointwiseX, like.descriptor);
  d_.set(operation, Attribute::kPointwiseY, result.descriptor);
  add(operation);
  return result;
}

void Graph::reduce(Reduction reduction, const Tensor& x, const Tensor& result) {
  const Descriptor kind = d_.make(DescriptorType::kReduction);
  d_.set(kind, Attribute::kReductionOperator, reduction);
  d_.set(kind, Attribute::kReductionPrecision, DataType::kFloat);
  d_.finish(kind);
  const Descriptor operation = d_.make(DescriptorType::kReductionOperation);
  d_.set(operation, Attribute::kReductionDescriptor, kind);
  d_.set(operation, Attribute::kReductionX, x.descriptor);
  d_.set(operation, Attribute::kReductionY, result.descriptor);
  add(operation);
}

Tensor Graph::reduce(Reduction reduction, const Tensor& x) {
  const Tensor result = inside(DataType::kFloat, {x.extents[0], x.extents[1], x.extents[2], 1});
  reduce(reduction, x, result);
  return result;
}

void Graph::product(const Tensor& a, const Tensor& b, const Tensor& result) {
  const Descriptor kind = d_.make(DescriptorType::kMatmul);
  d_.set(kind, Attribute::kMatmulPrecision, DataType::kFloat);
  d_.finish(kind);
  const Descriptor operation = d_.make(DescriptorType::kMatmulOperation);
  d_.set(operation, Attribute::kMatmulDescriptor, kind);
  d_.set(operation, Attribute::kMatmulA, a.descriptor);
  d_.set(operation, Attribute::kMatmulB, b.descriptor);
  d_.set(operation, Attribute::kMatmulC, result.descriptor);
  add(operation);
}

Tensor Graph::product(const Tensor& a, const Tensor& b) {
  const Tensor result =
      inside(DataType::kFloat, {a.extents[0], a.extents[1], a.extents[2], b.extents[3]});
  product(a, b, result);
  return result;
}

Tensor Graph::transpose(const Tensor& x, DataType type) {
  Extents extents = x.extents, strides = x.strides;
  std::swap(extents[2], extents[3]);
  std::swap(strides[2], strides[3]);
  const Tensor result = tensor({next_id_++, true, false}, type, extents, strides);
  const Descriptor operation = d_.make(DescriptorType::kReshapeOperation);
  d_.set(operation, Attribute::kReshapeX, x.descriptor);
  d_.set(operation, Attribute::kReshapeY, result.descriptor);
  add(operation);
  return result;
}

void Graph::add(Descriptor operation) {
  d_.finish(operation);
  operations_.push_back(operation);
}

Descriptor Graph::finish(Handle handle) {
  const Descriptor graph = d_.make(DescriptorType::kOperationGraph);
  d_.set_all(graph, Attribute::kGraphOperations, std::span<const Descriptor>(operations_));
  if (handle != nullptr) d_.set(graph, Attribute::kGraphHandle, AttributeType::kHandle, 1, &handle);
  d_.finish(graph);
  return graph;
}

}  // namespace motley::cudnn
