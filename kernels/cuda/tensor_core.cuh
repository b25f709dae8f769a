#pragma once
// What CUDA C++ offers only as PTX: products on tensor cores, the loads that arrange their operands
// and copies to shared memory that do not wait. Names of instructions and layouts of fragments are
// those of the PTX ISA's chapter "Warp Level Matrix Instructions"; `lane / 4` is a fragment's row
// group, `lane % 4` the thread within it. For GPUs from sm_75 on (bf16: sm_80); code for older ones
// compiles and stops the kernel.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstring>

#ifndef __CUDACC__
#include <tensor_core_on_host.h>
#endif

namespace motley::cuda {

/// Two elements as tensor cores take them, the first in the lower half.
__device__ inline unsigned pack(__nv_bfloat162 pair) {
  unsigned bits;
  memcpy(&bits, &pair, sizeof(bits));
  return bits;
}
__device__ inline unsigned pack(__half2 pair) {
  unsigned bits;
  memcpy(&bits, &pair, sizeof(bits));
  return bits;
}
template <class T>
__device__ unsigned pack(float x, float y);
template <>
__device__ inline unsigned pack<__nv_bfloat16>(float x, float y) {
  return pack(__floats2bfloat162_rn(x, y));
}
template <>
__device__ inline unsigned pack<__half>(float x, float y) {
  return pack(__floats2half2_rn(x, y));
}

#ifdef __CUDACC__

/// 2 to the power of x; exactly 0 for minus infinity.
__device__ inline float fast_exp2(float x) {
  float result;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

/// mma.m16n8k16: d[16,8] += a[16,16]·b[16,8] of the whole warp. a: {row, k} = {lane / 4 + 8·(i %
/// 2), 2·(lane % 4) + 8·(i / 2)} and the next k; b: k = 2·(lane % 4) + 8·i and the next, column
/// lane / 4; d: row lane / 4 + 8·(i / 2), column 2·(lane % 4) + i % 2.
__device__ inline void multiply_add(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2],
                                    __nv_bfloat16) {
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
  __trap();
#endif
}
__device__ inline void multiply_add(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2],
                                    __half) {
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#elif __CUDA_ARCH__ >= 750
  // Half as deep there: the fragments are those of the two halves.
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(b[0]));
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[2]), "r"(a[3]), "r"(b[1]));
#else
  __trap();
#endif
}

__device__ inline unsigned shared_address(const void* shared) {
  return static_cast<unsigned>(__cvta_generic_to_shared(shared));
}

/// ldmatrix.x4: four matrices of 8x8 elements of two bytes; lane l gives row l % 8 of matrix l / 8,
/// 16-byte aligned. Of matrix i a lane gets r[i]: row lane / 4, columns 2·(lane % 4) and the next.
__device__ inline void load_matrices(unsigned (&r)[4], const void* row) {
#if __CUDA_ARCH__ >= 750
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
#else
  __trap();
#endif
}
/// ldmatrix.x4.trans: the same of the matrices transposed: rows 2·(lane % 4) and the next, column
/// lane / 4.
__device__ inline void load_matrices_transposed(unsigned (&r)[4], const void* row) {
#if __CUDA_ARCH__ >= 750
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
#else
  __trap();
#endif
}

/// cp.async: 16 bytes, both ends 16-byte aligned; zeros unless `present`, when `global` is not
/// read. They are there once the thread has waited for them, for other threads after a barrier.
__device__ inline void copy_async(void* shared, const void* global, bool present) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)),
               "l"(__cvta_generic_to_global(global)), "r"(present ? 16 : 0)
               : "memory");
#else
  *static_cast<uint4*>(shared) =
      present ? *static_cast<const uint4*>(global) : make_uint4(0, 0, 0, 0);
#endif
}
/// Ends a group of this thread's copies.
__device__ inline void end_copy_group() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}
/// Waits for this thread's groups but for the newest kNewest.
template <int kNewest>
__device__ void wait_for_copies() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(kNewest) : "memory");
#endif
}

#endif

}  // namespace motley::cuda
