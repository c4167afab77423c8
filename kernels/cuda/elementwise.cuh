#pragma once
// Ops that compute every number of a row from the numbers at the same place. An op gives a functor f whose run<N>(row,
// column) does N neighbours; launch_elementwise() calls it for packs of N where tensors lie so that packs can be moved
// at once, and for single numbers elsewhere. What is computed for a number is the same either way.
#include "kernels/cuda/cuda.cuh"
#include "kernels/cuda/pdl.cuh"

namespace hone {

// N numbers, in as few moves as 16 bytes a move allow.
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

// Rows and columns to go through: a single row where no tensor has gaps between its own.
struct Extent {
  int64_t rows = 0, columns = 0;
};
template <class... Others>
Extent extent(const Tensor& first, const Others&... others) {
  if (first.contiguous() && (others.contiguous() && ...)) return {1, first.size()};
  return {first.dim(0), first.row_size()};
}

// Whether packs of `count` numbers can be moved in every row; `rows` as extent() gives them.
inline bool packs_of(int count, int64_t rows, const Tensor& x) {
  const size_t bytes = std::min<size_t>(16, static_cast<size_t>(count) * size_of(x.dtype));
  return (rows == 1 || x.row_stride % count == 0) && reinterpret_cast<uintptr_t>(x.data) % bytes == 0;
}

namespace elementwise {
constexpr int threads = 256;

template <int N, bool overlaps, class F>
__global__ void __launch_bounds__(threads) kernel(F f, Extent extent, int64_t packs) {
  if (overlaps) hopper::griddep_launch_dependents(), hopper::griddep_wait();
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

// `whole`: packs of N may be moved. Nothing happens where there is nothing to do. `overlaps`: the kernel's start
// overlaps the end of the one before it, and the next one's its own (kernels/cuda/pdl.cuh): for what never writes a
// weight.
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
