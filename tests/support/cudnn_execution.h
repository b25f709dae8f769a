#pragma once
// A graph that tests/support/cudnn_stand_in.cc was given, and its execution in the host's memory:
// operation after operation, in float32.

#include <array>
#include <cstring>
#include <map>
#include <vector>

#include "kernels/cuda/cudnn_library.h"

namespace motley::testing {

struct Values {
  cudnn::AttributeType type;
  int64_t count = 0;
  std::vector<std::byte> bytes;
};

/// What a descriptor points to.
struct Object {
  cudnn::DescriptorType type;
  std::map<cudnn::Attribute, Values> attributes = {};
  int engine = 0;  // of a configuration and what is made of it
  bool finished = false;

  template <class T>
  std::vector<T> all(cudnn::Attribute name) const {
    const Values& values = attributes.at(name);
    std::vector<T> result(values.bytes.size() / sizeof(T));
    std::memcpy(result.data(), values.bytes.data(), values.bytes.size());
    return result;
  }
  template <class T>
  T one(cudnn::Attribute name) const {
    T value{};
    std::memcpy(&value, attributes.at(name).bytes.data(), sizeof(T));
    return value;
  }
  const Object& object(cudnn::Attribute name) const {
    return *static_cast<const Object*>(one<cudnn::Descriptor>(name));
  }
  bool has(cudnn::Attribute name) const { return attributes.contains(name); }
};

/// Of an engine's configuration or a plan.
const Object& graph_of(const Object& made);
/// Bytes, as cuDNN's: room for the gradients of scores in backward, which is known by its reshapes.
int64_t workspace_of(const Object& graph);

/// In order of their indices.
struct Held {
  std::array<int64_t, 4> extents{};
  std::vector<float> values;

  /// Extents of one stand for any.
  float at(const std::array<int64_t, 4>& index) const;
};

/// One of a plan, with what it was given. Copies compute it again.
class Execution {
 public:
  /// Throws where something is missing, or is no address that a kernel could take.
  Execution(const Object& plan, const Object& pack);
  void run();

 private:
  void accept(const Object& operation, cudnn::Attribute name);
  const Held& read(const Object& tensor);
  template <class Value>
  void write(const Object& tensor, Value&& value_at);
  void run(const Object& operation);
  void pointwise(const Object& operation);
  void product(const Object& operation);
  void reduce(const Object& operation);
  void reshape(const Object& operation);

  const Object* graph_;
  void* workspace_;
  std::map<int64_t, void*> data_;
  std::map<int64_t, Held> held_;
};

}  // namespace motley::testing
