#pragma once
// Kernel of elementwise ops: each output element depends only on the elements at the same row and column.
//
// Use       ops that pass a functor f: f.run<N>(row, column) computes N adjacent elements of a row.
// Tile      N elements per thread, 256 threads per block. Contiguous tensors are treated as one long row.
// Roles     all threads alike.
// Pipeline  none: each thread runs f once.
// Smem      none.
// Numerics  those of f. run<N> and run<1> must give an element the same bits, so alignment does not change results.
// PDL       with overlaps = true: triggers dependents, then waits, both at the start. Else launched without PDL.
// Limits    vectors of N need rows aligned to min(16, N * sizeof(T)) bytes (packs_of()); else N = 1 is launched.
#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/pdl.cuh"

namespace hone {

// Moves N elements in vectors of at most 16 bytes.
template <int N, class T>
__device__ inline void load_numbers(float (&to)[N], const T* from) {
  constexpr int step = N < vec_size<T> ? N : vec_size<T>;
#pragma unroll
  for (int i = 0; i < N; i += step) load_vec(reinterpret_cast<float(&)[step]>(to[i]), from + i);
}
template <int N, class T>
__device__ inline void store_numbers(T* to, const float (&from)[N]) {
  constexpr int step = N < vec_size<T> ? N : vec_size<T>;
#pragma unroll
  for (int i = 0; i < N; i += step) store_vec(to + i, reinterpret_cast<const float(&)[step]>(from[i]));
}

// The rows and columns to visit: a single row if all tensors are contiguous.
struct Extent {
  int64_t rows = 0, columns = 0;
};
template <class... Others>
Extent extent(const Tensor& first, const Others&... others) {
  if (first.contiguous() && (others.contiguous() && ...)) return {1, first.size()};
  return {first.dim(0), first.row_size()};
}

// True if every row of x can be moved in vectors of `count` elements. `rows` is that of extent().
inline bool packs_of(int count, int64_t rows, const Tensor& x) {
  const size_t bytes = std::min<size_t>(16, static_cast<size_t>(count) * size_of(x.dtype));
  return (rows == 1 || x.row_stride % count == 0) && reinterpret_cast<uintptr_t>(x.data) % bytes == 0;
}

namespace elementwise {
constexpr int threads = 256;

template <int N, bool overlaps, class F>
__global__ void __launch_bounds__(threads) kernel(F f, Extent extent, int64_t packs) {
  if (overlaps) {
    hopper::griddep_launch_dependents();
    hopper::griddep_wait();
  }
  const int64_t i = int64_t{blockIdx.x} * threads + threadIdx.x;
  int64_t row = 0;
  if (extent.rows > 1) {
    row = (i | packs) >> 32 == 0 ? static_cast<uint32_t>(i) / static_cast<uint32_t>(packs) : i / packs;
    if (row >= extent.rows) return;
  }
  int64_t column = (i - row * packs) * N;
  if (column + N <= extent.columns) return f.template run<N>(row, column);
  for (; column < extent.columns; ++column) f.template run<1>(row, column);
}
}  // namespace elementwise

// Launches f over the extent; an empty extent launches nothing. `whole`: vectors of N may be moved. `overlaps`: the
// start overlaps the end of the kernel before, and the next kernel may start early (kernels/cuda/pdl.cuh). Do not use
// it for kernels that write weights.
template <int N, bool overlaps = false, class F>
void launch_elementwise(cudaStream_t stream, Extent extent, bool whole, F f) {
  const auto launch = [&]<int count>() {
    const int64_t packs = (extent.columns + count - 1) / count,
                  blocks = (extent.rows * packs + elementwise::threads - 1) / elementwise::threads;
    if (blocks == 0) return;
    if constexpr (overlaps)
      launch_pdl(stream, elementwise::kernel<count, true, F>, dim3(static_cast<unsigned>(blocks)), elementwise::threads,
                 0, 1, f, extent, packs);
    else
      elementwise::kernel<count, false, F>
          <<<static_cast<unsigned>(blocks), elementwise::threads, 0, stream>>>(f, extent, packs);
  };
  if (whole)
    launch.template operator()<N>();
  else
    launch.template operator()<1>();
}

}  // namespace hone
