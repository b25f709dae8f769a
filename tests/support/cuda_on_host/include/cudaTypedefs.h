#pragma once
// Stands for the CUDA driver's header of this name, see cuda_runtime.h: what green contexts need of
// it, with our own declarations after the CUDA Driver API reference.

#include <cuda_runtime.h>

enum CUresult {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION = 915
};
enum CUdevResourceType { CU_DEV_RESOURCE_TYPE_SM = 1 };
inline constexpr unsigned CU_GREEN_CTX_DEFAULT_STREAM = 1, CU_STREAM_NON_BLOCKING = 1;

using CUdevice = int;
using CUstream = cudaStream_t;
using CUgreenCtx = struct CUgreenCtx_st*;
using CUdevResourceDesc = struct CUdevResourceDesc_st*;

struct CUdevResource {
  CUdevResourceType type;
  int division;    // which call made it; 0: the whole GPU
  unsigned first;  // of its multiprocessors
  struct {
    unsigned smCount;
  } sm;
};

using PFN_cuDeviceGet_v2000 = CUresult (*)(CUdevice*, int ordinal);
using PFN_cuGetErrorString_v6000 = CUresult (*)(CUresult, const char** text);
using PFN_cuDeviceGetDevResource_v12040 = CUresult (*)(CUdevice, CUdevResource*, CUdevResourceType);
using PFN_cuDevSmResourceSplitByCount_v12040 = CUresult (*)(CUdevResource* result, unsigned* groups,
                                                            const CUdevResource* input,
                                                            CUdevResource* remaining,
                                                            unsigned flags, unsigned least);
using PFN_cuDevResourceGenerateDesc_v12040 = CUresult (*)(CUdevResourceDesc*, CUdevResource*,
                                                          unsigned count);
using PFN_cuGreenCtxCreate_v12040 = CUresult (*)(CUgreenCtx*, CUdevResourceDesc, CUdevice,
                                                 unsigned flags);
using PFN_cuGreenCtxDestroy_v12040 = CUresult (*)(CUgreenCtx);
using PFN_cuGreenCtxStreamCreate_v12050 = CUresult (*)(CUstream*, CUgreenCtx, unsigned flags,
                                                       int priority);
