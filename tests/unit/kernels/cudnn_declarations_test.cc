// Our declarations of cuDNN against its header. Needs no GPU.

#include <cudnn.h>
#include <gtest/gtest.h>

#include <type_traits>

#include "kernels/cuda/cudnn_library.h"

namespace motley::cudnn {
namespace {

#define SAME(ours, real) static_assert(static_cast<int>(ours) == static_cast<int>(real))
SAME(Status::kSuccess, CUDNN_STATUS_SUCCESS);
SAME(DataType::kFloat, CUDNN_DATA_FLOAT);
SAME(DataType::kHalf, CUDNN_DATA_HALF);
SAME(DataType::kInt32, CUDNN_DATA_INT32);
SAME(DataType::kBfloat16, CUDNN_DATA_BFLOAT16);
SAME(DataType::kBoolean, CUDNN_DATA_BOOLEAN);
SAME(PointwiseMode::kMultiply, CUDNN_POINTWISE_MUL);
SAME(PointwiseMode::kAdd, CUDNN_POINTWISE_ADD);
SAME(PointwiseMode::kDivide, CUDNN_POINTWISE_DIV);
SAME(PointwiseMode::kSubtract, CUDNN_POINTWISE_SUB);
SAME(PointwiseMode::kExp, CUDNN_POINTWISE_EXP);
SAME(PointwiseMode::kLog, CUDNN_POINTWISE_LOG);
SAME(PointwiseMode::kAtLeast, CUDNN_POINTWISE_CMP_GE);
SAME(PointwiseMode::kIndex, CUDNN_POINTWISE_GEN_INDEX);
SAME(PointwiseMode::kSelect, CUDNN_POINTWISE_BINARY_SELECT);
SAME(Reduction::kSum, CUDNN_REDUCE_TENSOR_ADD);
SAME(Reduction::kMax, CUDNN_REDUCE_TENSOR_MAX);
SAME(HeuristicMode::kA, CUDNN_HEUR_MODE_A);
SAME(NumericalNote::kNondeterministic, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);

SAME(DescriptorType::kPointwise, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
SAME(DescriptorType::kEngine, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
SAME(DescriptorType::kEngineConfig, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
SAME(DescriptorType::kHeuristic, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
SAME(DescriptorType::kPlan, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
SAME(DescriptorType::kPointwiseOperation, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
SAME(DescriptorType::kOperationGraph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
SAME(DescriptorType::kVariantPack, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
SAME(DescriptorType::kTensor, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
SAME(DescriptorType::kMatmul, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
SAME(DescriptorType::kMatmulOperation, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
SAME(DescriptorType::kReduction, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
SAME(DescriptorType::kReductionOperation, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
SAME(DescriptorType::kReshapeOperation, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
SAME(DescriptorType::kDeviceProperties, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);

SAME(Attribute::kPointwiseMode, CUDNN_ATTR_POINTWISE_MODE);
SAME(Attribute::kPointwisePrecision, CUDNN_ATTR_POINTWISE_MATH_PREC);
SAME(Attribute::kPointwiseAxis, CUDNN_ATTR_POINTWISE_AXIS);
SAME(Attribute::kHeuristicMode, CUDNN_ATTR_ENGINEHEUR_MODE);
SAME(Attribute::kHeuristicGraph, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
SAME(Attribute::kHeuristicResults, CUDNN_ATTR_ENGINEHEUR_RESULTS);
SAME(Attribute::kHeuristicDevice, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP);
SAME(Attribute::kConfigEngine, CUDNN_ATTR_ENGINECFG_ENGINE);
SAME(Attribute::kConfigWorkspaceSize, CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE);
SAME(Attribute::kPlanHandle, CUDNN_ATTR_EXECUTION_PLAN_HANDLE);
SAME(Attribute::kPlanConfig, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
SAME(Attribute::kPlanWorkspaceSize, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
SAME(Attribute::kPointwiseDescriptor, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
SAME(Attribute::kPointwiseX, CUDNN_ATTR_OPERATION_POINTWISE_XDESC);
SAME(Attribute::kPointwiseB, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
SAME(Attribute::kPointwiseY, CUDNN_ATTR_OPERATION_POINTWISE_YDESC);
SAME(Attribute::kPointwiseT, CUDNN_ATTR_OPERATION_POINTWISE_TDESC);
SAME(Attribute::kGraphHandle, CUDNN_ATTR_OPERATIONGRAPH_HANDLE);
SAME(Attribute::kGraphOperations, CUDNN_ATTR_OPERATIONGRAPH_OPS);
SAME(Attribute::kTensorAlignment, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
SAME(Attribute::kTensorType, CUDNN_ATTR_TENSOR_DATA_TYPE);
SAME(Attribute::kTensorDimensions, CUDNN_ATTR_TENSOR_DIMENSIONS);
SAME(Attribute::kTensorStrides, CUDNN_ATTR_TENSOR_STRIDES);
SAME(Attribute::kTensorId, CUDNN_ATTR_TENSOR_UNIQUE_ID);
SAME(Attribute::kTensorVirtual, CUDNN_ATTR_TENSOR_IS_VIRTUAL);
SAME(Attribute::kTensorByValue, CUDNN_ATTR_TENSOR_IS_BY_VALUE);
SAME(Attribute::kPackIds, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
SAME(Attribute::kPackPointers, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
SAME(Attribute::kPackWorkspace, CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
SAME(Attribute::kEngineNumericalNotes, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE);
SAME(Attribute::kMatmulPrecision, CUDNN_ATTR_MATMUL_COMP_TYPE);
SAME(Attribute::kMatmulA, CUDNN_ATTR_OPERATION_MATMUL_ADESC);
SAME(Attribute::kMatmulB, CUDNN_ATTR_OPERATION_MATMUL_BDESC);
SAME(Attribute::kMatmulC, CUDNN_ATTR_OPERATION_MATMUL_CDESC);
SAME(Attribute::kMatmulDescriptor, CUDNN_ATTR_OPERATION_MATMUL_DESC);
SAME(Attribute::kReductionOperator, CUDNN_ATTR_REDUCTION_OPERATOR);
SAME(Attribute::kReductionPrecision, CUDNN_ATTR_REDUCTION_COMP_TYPE);
SAME(Attribute::kReductionX, CUDNN_ATTR_OPERATION_REDUCTION_XDESC);
SAME(Attribute::kReductionY, CUDNN_ATTR_OPERATION_REDUCTION_YDESC);
SAME(Attribute::kReductionDescriptor, CUDNN_ATTR_OPERATION_REDUCTION_DESC);
SAME(Attribute::kReshapeX, CUDNN_ATTR_OPERATION_RESHAPE_XDESC);
SAME(Attribute::kReshapeY, CUDNN_ATTR_OPERATION_RESHAPE_YDESC);
SAME(Attribute::kDeviceJson, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION);

SAME(AttributeType::kHandle, CUDNN_TYPE_HANDLE);
SAME(AttributeType::kDataType, CUDNN_TYPE_DATA_TYPE);
SAME(AttributeType::kBoolean, CUDNN_TYPE_BOOLEAN);
SAME(AttributeType::kInt64, CUDNN_TYPE_INT64);
SAME(AttributeType::kPointer, CUDNN_TYPE_VOID_PTR);
SAME(AttributeType::kHeuristicMode, CUDNN_TYPE_HEUR_MODE);
SAME(AttributeType::kNumericalNote, CUDNN_TYPE_NUMERICAL_NOTE);
SAME(AttributeType::kPointwiseMode, CUDNN_TYPE_POINTWISE_MODE);
SAME(AttributeType::kDescriptor, CUDNN_TYPE_BACKEND_DESCRIPTOR);
SAME(AttributeType::kReduction, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE);
SAME(AttributeType::kChar, CUDNN_TYPE_CHAR);
#undef SAME

/// The same number and sizes of arguments, each of which is passed alike.
template <class Ours, class Real>
struct SameCall : std::false_type {};
template <class... Ours, class OurResult, class... Real, class RealResult>
struct SameCall<OurResult (*)(Ours...), RealResult (*)(Real...)>
    : std::bool_constant<(sizeof...(Ours) == sizeof...(Real)) &&
                         ((sizeof(Ours) == sizeof(Real)) && ...) &&
                         ((std::is_pointer_v<Ours> == std::is_pointer_v<Real>)&&...) &&
                         std::is_void_v<OurResult> == std::is_void_v<RealResult>> {};
#define SAME_CALL(ours, real) \
  static_assert(SameCall<decltype(Library::ours), decltype(&(real))>::value)
SAME_CALL(get_version, cudnnGetVersion);
SAME_CALL(error_string, cudnnGetErrorString);
SAME_CALL(last_error, cudnnGetLastErrorString);
SAME_CALL(create, cudnnCreate);
SAME_CALL(destroy, cudnnDestroy);
SAME_CALL(set_stream, cudnnSetStream);
SAME_CALL(create_descriptor, cudnnBackendCreateDescriptor);
SAME_CALL(destroy_descriptor, cudnnBackendDestroyDescriptor);
SAME_CALL(finalize, cudnnBackendFinalize);
SAME_CALL(set_attribute, cudnnBackendSetAttribute);
SAME_CALL(get_attribute, cudnnBackendGetAttribute);
SAME_CALL(execute, cudnnBackendExecute);
#undef SAME_CALL

TEST(CudnnDeclarations, AreTheHeaders) {}  // or this would not have compiled

}  // namespace
}  // namespace motley::cudnn
