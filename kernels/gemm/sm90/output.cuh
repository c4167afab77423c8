#pragma once
// What becomes of the totals of a product with few rows of x. A tile is two runs of `half` rows of w each, and one
// thread finishes row r of both, for one row m of x (`count` neighbours r at a time), so that an output may need a
// pair. .cu files alone include it.
//
// An output is a struct that is passed to a kernel by value:
//   static constexpr bool neighbours;                     whether the second run follows the first, and nothing needs a
//   pair template <int half> int tiles() const; template <int half> int2 row_ranges(int tile) const;        the first
//   rows of w of both runs; rows that w has not are never stored template <int half, int count> Extra<count> fetch(m,
//   tile, r) const;   what is added or needed beside, read ahead of the totals template <int half, int count> void
//   store(first, second, Extra<count>, m, tile, r) const;
#include "kernels/gemm/epilogue.cuh"

namespace hone {

// y, as gemm_forward has it; count is 1.
struct LinearEpilogue {
  static constexpr bool neighbours = true;
  GemmEpilogue to;
  int N;
  bool pairs;  // y can be written two numbers at a time

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
