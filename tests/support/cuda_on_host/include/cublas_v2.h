#pragma once
// Stands for cuBLAS' header of this name, see cuda_runtime.h.

#include <cuda_runtime.h>

enum cublasStatus_t { CUBLAS_STATUS_SUCCESS, CUBLAS_STATUS_INVALID_VALUE = 7 };
enum cublasOperation_t { CUBLAS_OP_N, CUBLAS_OP_T };
enum cudaDataType_t { CUDA_R_32F = 0, CUDA_R_16F = 2, CUDA_R_16BF = 14 };
enum cublasComputeType_t { CUBLAS_COMPUTE_32F = 68 };
enum cublasGemmAlgo_t { CUBLAS_GEMM_DEFAULT = -1 };
enum libraryPropertyType { MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL };
using cublasHandle_t = struct cublasContext*;

const char* cublasGetStatusString(cublasStatus_t);
cublasStatus_t cublasCreate(cublasHandle_t*);
cublasStatus_t cublasDestroy(cublasHandle_t);
cublasStatus_t cublasSetStream(cublasHandle_t, cudaStream_t);
cublasStatus_t cublasSetWorkspace(cublasHandle_t, void* workspace, size_t size);
cublasStatus_t cublasSetSmCountTarget(cublasHandle_t, int multiprocessors);
cublasStatus_t cublasGetProperty(libraryPropertyType, int* value);
cublasStatus_t cublasGemmEx_64(cublasHandle_t, cublasOperation_t transpose_a,
                               cublasOperation_t transpose_b, int64_t m, int64_t n, int64_t k,
                               const void* alpha, const void* a, cudaDataType_t, int64_t lda,
                               const void* b, cudaDataType_t, int64_t ldb, const void* beta,
                               void* c, cudaDataType_t, int64_t ldc, cublasComputeType_t,
                               cublasGemmAlgo_t);
