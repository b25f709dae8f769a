#pragma once
// NVIDIA's cuDNN, opened at run time: what attention needs of its backend API. The declarations
// are our own, after the cuDNN backend API reference; streams are CUDA's. Where the header was
// found at configure time, cudnn_numbers_test compares them with it.

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/result.h"
#include "core/vendor_library.h"

namespace motley::cudnn {

using Handle = void*;      ///< cudnnHandle_t
using Descriptor = void*;  ///< cudnnBackendDescriptor_t
using Stream = void*;

/// cudnnStatus_t
enum class Status : int { kSuccess = 0 };

/// cudnnDataType_t
enum class DataType : int { kFloat = 0, kHalf = 2, kInt32 = 4, kBfloat16 = 9, kBoolean = 11 };

/// cudnnPointwiseMode_t
enum class PointwiseMode : int {
  kMultiply = 1,
  kAdd = 0,
  kDivide = 6,
  kSubtract = 9,
  kExp = 13,
  kLog = 15,
  kAtLeast = 303,
  kIndex = 501,
  kSelect = 601
};

/// cudnnReduceTensorOp_t
enum class Reduction : int { kSum = 0, kMax = 3 };

/// cudnnBackendHeurMode_t
enum class HeuristicMode : int { kA = 3 };

/// cudnnBackendNumericalNote_t
enum class NumericalNote : int { kNondeterministic = 4 };

/// cudnnBackendDescriptorType_t
enum class DescriptorType : int {
  kPointwise = 0,
  kEngine = 2,
  kEngineConfig = 3,
  kHeuristic = 4,
  kPlan = 5,
  kPointwiseOperation = 13,
  kOperationGraph = 15,
  kVariantPack = 16,
  kTensor = 17,
  kMatmul = 18,
  kMatmulOperation = 19,
  kReduction = 21,
  kReductionOperation = 22,
  kReshapeOperation = 31,
  kDeviceProperties = 38
};

/// cudnnBackendAttributeName_t
enum class Attribute : int {
  kPointwiseMode = 0,
  kPointwisePrecision = 1,
  kPointwiseAxis = 9,
  kHeuristicMode = 200,
  kHeuristicGraph = 201,
  kHeuristicResults = 202,
  kHeuristicDevice = 204,
  kConfigEngine = 300,
  kConfigWorkspaceSize = 303,
  kPlanHandle = 400,
  kPlanConfig = 401,
  kPlanWorkspaceSize = 402,
  kPointwiseDescriptor = 750,
  kPointwiseX = 751,
  kPointwiseB = 752,
  kPointwiseY = 753,
  kPointwiseT = 758,
  kGraphHandle = 800,
  kGraphOperations = 801,
  kTensorAlignment = 900,
  kTensorType = 901,
  kTensorDimensions = 902,
  kTensorStrides = 903,
  kTensorId = 906,
  kTensorVirtual = 907,
  kTensorByValue = 908,
  kPackIds = 1000,
  kPackPointers = 1001,
  kPackWorkspace = 1003,
  kEngineNumericalNotes = 1303,
  kMatmulPrecision = 1500,
  kMatmulA = 1520,
  kMatmulB = 1521,
  kMatmulC = 1522,
  kMatmulDescriptor = 1523,
  kReductionOperator = 1600,
  kReductionPrecision = 1601,
  kReductionX = 1610,
  kReductionY = 1611,
  kReductionDescriptor = 1612,
  kReshapeX = 2200,
  kReshapeY = 2201,
  kDeviceJson = 2702
};

/// cudnnBackendAttributeType_t
enum class AttributeType : int {
  kHandle = 0,
  kDataType = 1,
  kBoolean = 2,
  kInt64 = 3,
  kPointer = 6,
  kHeuristicMode = 8,
  kNumericalNote = 11,
  kPointwiseMode = 14,
  kDescriptor = 15,
  kReduction = 18,
  kChar = 24
};

/// The functions used; none is null.
struct Library {
  /// kUnsupported with one line where there is no such library, it lacks a function, or is older
  /// than 9.10, the first that takes minus infinity for a mask. Stays open for the life of the
  /// process. Touches no GPU.
  static Result<const Library*> open(const char* name);

  /// "9.19.0"
  std::string version_text() const;
  /// For open_vendor_library().
  void find_all(VendorSymbols& symbols);
  int64_t ask_version();
  /// What the library says of a status, and of why it gave it to this thread last.
  std::string reason(Status status) const;

  size_t version = 0;  ///< 91900

  size_t (*get_version)() = nullptr;
  const char* (*error_string)(Status status) = nullptr;
  void (*last_error)(char* text, size_t size) = nullptr;
  Status (*create)(Handle* handle) = nullptr;
  Status (*destroy)(Handle handle) = nullptr;
  Status (*set_stream)(Handle handle, Stream stream) = nullptr;
  Status (*create_descriptor)(DescriptorType type, Descriptor* descriptor) = nullptr;
  Status (*destroy_descriptor)(Descriptor descriptor) = nullptr;
  Status (*finalize)(Descriptor descriptor) = nullptr;
  Status (*set_attribute)(Descriptor descriptor, Attribute name, AttributeType type, int64_t count,
                          const void* values) = nullptr;
  Status (*get_attribute)(Descriptor descriptor, Attribute name, AttributeType type, int64_t most,
                          int64_t* count, void* values) = nullptr;
  Status (*execute)(Handle handle, Descriptor plan, Descriptor variant_pack) = nullptr;
};

}  // namespace motley::cudnn
