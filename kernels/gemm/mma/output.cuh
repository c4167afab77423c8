#pragma once
// Epilogues of the small-M GEMMs. A tile covers two ranges of `half` output columns (rows of w). One thread finishes
// element r of both ranges for one row m of x (`count` adjacent r at a time), so that it owns both elements of a pair:
// gate and up, or the two RoPE halves. Only .cu and .cuh files include it.
//
// An epilogue is a struct that a kernel takes by value:
//   static constexpr bool adjacent_ranges;
//       true if the second range follows the first and no pairs are needed
//   template <int half> int tiles() const;
//   template <int half> int2 row_ranges(int tile) const;
//       the first rows of w of both ranges; rows past the end of w are never stored
//   template <int half, int count> Extra<count> fetch(m, tile, r) const;
//       what is added to the totals; loaded before they are complete
//   template <int half, int count> void store(first, second, Extra<count>, m, tile, r) const;
#include "kernels/gemm/epilogue.cuh"

namespace hone {

// y as in gemm_forward; count is 1.
struct LinearEpilogue {
  static constexpr bool adjacent_ranges = true;
  GemmEpilogue to;
  int N;
  bool pairs;  // y can be written two elements at a time

  template <int>
  struct Extra {
    GemmEpilogue::Extra first{}, second{};
  };
  template <int half>
  __host__ __device__ int tiles() const {
    return (N + 2 * half - 1) / (2 * half);
  }
  template <int half>
  __device__ int2 row_ranges(int tile) const {
    return {tile * 2 * half, tile * 2 * half + half};
  }
  template <int half, int count>
  __device__ Extra<count> fetch(int m, int tile, int r) const {
    const int2 n = row_ranges<half>(tile);
    Extra<count> out;
    if (n.x + r < N) out.first = to.fetch(m, n.x + r);
    if (n.y + r < N) out.second = to.fetch(m, n.y + r);
    return out;
  }
  template <int half, int count>
  __device__ void store(const float (&first)[count], const float (&second)[count], const Extra<count>& extra, int m,
                        int tile, int r) const {
    const int2 n = row_ranges<half>(tile);
    if (n.x + r < N) to.put(to.finish(first[0], extra.first), m, n.x + r);
    if (n.y + r < N) to.put(to.finish(second[0], extra.second), m, n.y + r);
  }
};

}  // namespace hone
