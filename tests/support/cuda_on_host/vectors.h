#pragma once
// CUDA's short vectors, aligned as they are on a GPU. Kernels reach arrays of other types with
// them.

#define MOTLEY_VECTOR2(name, T)                           \
  struct alignas(2 * sizeof(T)) [[gnu::may_alias]] name { \
    T x, y;                                               \
  };                                                      \
  inline name make_##name(T x, T y) { return {x, y}; }
#define MOTLEY_VECTOR4(name, T)                           \
  struct alignas(4 * sizeof(T)) [[gnu::may_alias]] name { \
    T x, y, z, w;                                         \
  };                                                      \
  inline name make_##name(T x, T y, T z, T w) { return {x, y, z, w}; }

MOTLEY_VECTOR2(float2, float)
MOTLEY_VECTOR4(float4, float)
MOTLEY_VECTOR2(int2, int)
MOTLEY_VECTOR4(int4, int)
MOTLEY_VECTOR2(uint2, unsigned)
MOTLEY_VECTOR4(uint4, unsigned)
MOTLEY_VECTOR2(double2, double)

#undef MOTLEY_VECTOR2
#undef MOTLEY_VECTOR4
