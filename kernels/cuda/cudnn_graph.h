#pragma once
// A graph of operations on tensors, as cuDNN's backend API takes it.

#include <array>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/cuda/cudnn_library.h"

namespace motley::cudnn {

constexpr AttributeType type_of(DataType) { return AttributeType::kDataType; }
constexpr AttributeType type_of(bool) { return AttributeType::kBoolean; }
constexpr AttributeType type_of(int64_t) { return AttributeType::kInt64; }
constexpr AttributeType type_of(HeuristicMode) { return AttributeType::kHeuristicMode; }
constexpr AttributeType type_of(PointwiseMode) { return AttributeType::kPointwiseMode; }
constexpr AttributeType type_of(Reduction) { return AttributeType::kReduction; }
constexpr AttributeType type_of(Descriptor) { return AttributeType::kDescriptor; }

/// Descriptors that live and go together, and the first refusal of the library: after one it is
/// asked for nothing more.
class Descriptors {
 public:
  explicit Descriptors(const Library& library) : library_(&library) {}
  Descriptors(const Descriptors&) = delete;
  Descriptors& operator=(const Descriptors&) = delete;
  ~Descriptors();

  const Library& library() const { return *library_; }
  Descriptor make(DescriptorType type);
  void set(Descriptor descriptor, Attribute name, AttributeType type, int64_t count,
           const void* values);
  template <class T>
  void set(Descriptor descriptor, Attribute name, const T& value) {
    set(descriptor, name, type_of(value), 1, &value);
  }
  template <class T>
  void set_all(Descriptor descriptor, Attribute name, std::span<const T> values) {
    set(descriptor, name, type_of(T{}), static_cast<int64_t>(values.size()), values.data());
  }
  void finish(Descriptor descriptor);

  bool good() const { return refusal_.empty(); }
  /// In one line; empty: none.
  const std::string& refusal() const { return refusal_; }

 private:
  void note(Status status, const char* what, int number);

  const Library* library_;
  std::vector<Descriptor> made_;
  std::string refusal_;
};

using Extents = std::array<int64_t, 4>;  ///< sample, head, row, column

struct Tensor {
  Descriptor descriptor = nullptr;
  Extents extents{}, strides{};
};

/// Collects operations. Results that are not `memory` stay inside the graph; sums, and what is
/// computed of one element, are in float32.
class Graph {
 public:
  explicit Graph(Descriptors& descriptors) : d_(descriptors) {}

  /// In device memory that execution is given for `id`, below kFirstOwnId.
  Tensor memory(int64_t id, DataType type, const Extents& extents, const Extents& strides);
  /// A float32 in the host's memory.
  Tensor scalar(int64_t id);

  struct Ternary {
    Tensor x, b, t;  ///< b, t: by mode
  };
  Tensor pointwise(PointwiseMode mode, const Ternary& operands);
  void pointwise(PointwiseMode mode, const Ternary& operands, const Tensor& result);
  /// Of every element its place along the axis.
  Tensor index(const Tensor& like, int64_t axis);
  /// Over columns.
  Tensor reduce(Reduction reduction, const Tensor& x);
  void reduce(Reduction reduction, const Tensor& x, const Tensor& result);
  Tensor product(const Tensor& a, const Tensor& b);
  void product(const Tensor& a, const Tensor& b, const Tensor& result);
  /// With rows and columns exchanged. `type` as of the result.
  Tensor transpose(const Tensor& x, DataType type);
  /// A result, rounded to `type`.
  Tensor inside(DataType type, const Extents& extents);

  /// For a device of this handle, or, where it is null, for a description of one.
  Descriptor finish(Handle handle);

  static constexpr int64_t kFirstOwnId = 100;

 private:
  struct Placement {
    int64_t id;
    bool is_virtual, by_value;
  };
  Tensor tensor(const Placement& place, DataType type, const Extents& extents,
                const Extents& strides);
  Descriptor pointwise_kind(PointwiseMode mode, DataType precision);
  void add(Descriptor operation);

  Descriptors& d_;
  std::vector<Descriptor> operations_;
  int64_t next_id_ = kFirstOwnId;
};

}  // namespace motley::cudnn
