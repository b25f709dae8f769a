#pragma once
// The PTX instructions of kernels/cuda/tensor_core.cuh for tests/support/cuda_on_host, after the
// layouts of the PTX ISA. A copy to shared memory is made when its thread waits for it, no earlier.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <array>
#include <cmath>
#include <deque>
#include <vector>

#include "core/check.h"

namespace motley::cuda {

inline float fast_exp2(float x) { return std::exp2(x); }

/// Elements `half` (0, 1) of a register of two.
inline float element(unsigned bits, int half, __nv_bfloat16) {
  return Bf16::widen(static_cast<uint16_t>(bits >> (16 * half)));
}
inline float element(unsigned bits, int half, __half) {
  return Fp16::widen(static_cast<uint16_t>(bits >> (16 * half)));
}

/// The operands of a product, as the lanes hold them.
struct Fragments {
  unsigned a[4], b[2];
};
inline Fragments fragments_of(const std::byte* given, int lane) {
  Fragments fragments;
  std::memcpy(&fragments, given + static_cast<size_t>(lane) * cuda_on_host::kMostExchanged,
              sizeof(fragments));
  return fragments;
}

template <class T>
void multiply_add(float (&d)[4], const unsigned (&a)[4], const unsigned (&b)[2], T type) {
  const Fragments mine{{a[0], a[1], a[2], a[3]}, {b[0], b[1]}};
  const std::byte* given = cuda_on_host::warp_exchange(&mine, sizeof(mine));
  const int group = cuda_on_host::lane() / 4, thread = cuda_on_host::lane() % 4;
  for (int i = 0; i < 4; ++i) {
    const int column = 2 * thread + i % 2;
    for (int k = 0; k < 16; ++k) {
      const int holder = k % 8 / 2;  // of this k within the four lanes of a row or column
      const Fragments of_row = fragments_of(given, group * 4 + holder);
      const Fragments of_column = fragments_of(given, column * 4 + holder);
      d[i] += element(of_row.a[i / 2 + k / 8 * 2], k % 2, type) *
              element(of_column.b[k / 8], k % 2, type);
    }
  }
}

/// The row of eight elements that a lane has given.
using MatrixRow = std::array<uint16_t, 8>;
template <class Element>  // of (matrix, which of the two)
void gather_matrices(unsigned (&r)[4], const Element& element_of) {
  for (int i = 0; i < 4; ++i)
    r[i] = static_cast<unsigned>(element_of(i, 0)) | static_cast<unsigned>(element_of(i, 1)) << 16;
}
inline std::array<MatrixRow, 32> exchange_rows(const void* row) {
  MOTLEY_CHECK(reinterpret_cast<uintptr_t>(row) % 16 == 0, "ldmatrix of an unaligned row");
  MatrixRow mine;
  std::memcpy(&mine, row, sizeof(mine));
  const std::byte* given = cuda_on_host::warp_exchange(&mine, sizeof(mine));
  std::array<MatrixRow, 32> rows;
  for (size_t lane = 0; lane < rows.size(); ++lane)
    std::memcpy(&rows[lane], given + lane * cuda_on_host::kMostExchanged, sizeof(MatrixRow));
  return rows;
}
inline void load_matrices(unsigned (&r)[4], const void* row) {
  const auto rows = exchange_rows(row);
  const auto group = static_cast<size_t>(cuda_on_host::lane() / 4),
             thread = static_cast<size_t>(cuda_on_host::lane() % 4);
  gather_matrices(r, [&](int matrix, int which) {
    return rows[static_cast<size_t>(matrix) * 8 + group][2 * thread + static_cast<size_t>(which)];
  });
}
inline void load_matrices_transposed(unsigned (&r)[4], const void* row) {
  const auto rows = exchange_rows(row);
  const auto group = static_cast<size_t>(cuda_on_host::lane() / 4),
             thread = static_cast<size_t>(cuda_on_host::lane() % 4);
  gather_matrices(r, [&](int matrix, int which) {
    return rows[static_cast<size_t>(matrix) * 8 + 2 * thread + static_cast<size_t>(which)][group];
  });
}

/// Copies of the threads of a block that have not been waited for; a thread leaves none behind.
struct PendingCopy {
  void* to;
  const void* from;  ///< null: zeros
};
struct PendingCopies {
  std::deque<std::vector<PendingCopy>> groups;
  std::vector<PendingCopy> open;
};
inline PendingCopies& pending_copies() {
  static std::vector<PendingCopies> of_threads(1024);
  const auto& thread = cuda_on_host::place().thread;
  const auto& extent = cuda_on_host::place().block_extent;
  return of_threads[thread.x + size_t{extent.x} * (thread.y + size_t{extent.y} * thread.z)];
}
inline void copy_async(void* shared, const void* global, bool present) {
  MOTLEY_CHECK(reinterpret_cast<uintptr_t>(shared) % 16 == 0 &&
                   (!present || reinterpret_cast<uintptr_t>(global) % 16 == 0),
               "cp.async of unaligned bytes");
  pending_copies().open.push_back({shared, present ? global : nullptr});
}
inline void end_copy_group() {
  PendingCopies& pending = pending_copies();
  pending.groups.push_back(std::move(pending.open));
  pending.open.clear();
}
template <size_t kNewest>
void wait_for_copies() {
  PendingCopies& pending = pending_copies();
  for (; pending.groups.size() > kNewest; pending.groups.pop_front())
    for (const PendingCopy& copy : pending.groups.front()) {
      constexpr size_t kBytes = 16;
      if (copy.from != nullptr)
        std::memcpy(copy.to, copy.from, kBytes);
      else
        std::memset(copy.to, 0, kBytes);
    }
}

}  // namespace motley::cuda
