// quantize_rows on a GPU: one scale per row, int8 or e4m3 values.
//
// Use       every dtype and alignment.
// Tile      one row per thread block, 16-byte vectors (or single elements if unaligned).
// Roles     256 threads, all alike.
// Pipeline  none: the row is read twice.
// Smem      static, 32 bytes.
// Numerics  scale = largest magnitude / largest value of the format (f32); values are rounded to nearest even. A row
//           with an infinity or NaN has the scale NaN.
// PDL       none.
// Limits    fewer than 2^31 rows and 2^30 columns.
#include "kernels/cuda/elementwise.cuh"
#include "kernels/quant/internal.h"
#include "kernels/quant/quant_format.cuh"

namespace hone {
namespace {

constexpr int threads = 256;

struct QuantizeRows {
  uint8_t* values;
  float* scales;
  int64_t values_stride, w_stride;
  int columns;
};

// Maximum over the block's threads; `shared` holds one number per warp.
__device__ uint32_t block_most(uint32_t x, uint32_t* shared) {
  x = __reduce_max_sync(0xffffffffu, x);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
  __syncthreads();  // the maxima of all warps are in shared memory
  uint32_t most = 0;
#pragma unroll
  for (int warp = 0; warp < threads / 32; ++warp) most = max(most, shared[warp]);
  return most;
}

// One row per block; a thread reads N adjacent elements at a time.
template <class Format, class T, int N>
__global__ void __launch_bounds__(threads) kernel(QuantizeRows rows, const T* w) {
  __shared__ uint32_t shared[threads / 32];
  const T* const from = w + int64_t{blockIdx.x} * rows.w_stride;
  uint8_t* const to = rows.values + int64_t{blockIdx.x} * rows.values_stride;
  // Largest magnitude of the row.
  uint32_t most = 0;
  for (int k = static_cast<int>(threadIdx.x) * N; k < rows.columns; k += threads * N) {
    float x[N];
    load_numbers(x, from + k);
#pragma unroll
    for (int i = 0; i < N; ++i) most = max(most, __float_as_uint(x[i]) & 0x7fffffffu);
  }
  most = block_most(most, shared);
  const float scale = scale_of<Format>(most);
  // Encode with the row's scale.
  if (threadIdx.x == 0) rows.scales[blockIdx.x] = scale;
  for (int k = static_cast<int>(threadIdx.x) * N; k < rows.columns; k += threads * N) {
    float x[N];
    load_numbers(x, from + k);
    Pack<uint8_t, N> out;
#pragma unroll
    for (int i = 0; i < N; ++i) out.value[i] = encode_scaled<Format>(x[i], scale);
    *reinterpret_cast<Pack<uint8_t, N>*>(to + k) = out;
  }
}

void run(Context& context, QuantizedMatrix to, Tensor w) {
  const int64_t N = w.dim(0), K = w.dim(1);
  check_shape(quantize_rows, "w", w, {N, K}, w.dtype);
  check_quantized(quantize_rows, "to", to, N, K);
  HONE_CHECK(N < int64_t{1} << 31 && K < int64_t{1} << 30, "quantize_rows: ", N, " rows of ", K,
             " columns; the maximum is 2^31 - 1 rows and 2^30 - 1 columns");
  if (N == 0) return;
  const QuantizeRows rows{numbers<uint8_t>(to.values), numbers<float>(to.scales), to.values.row_stride, w.row_stride,
                          static_cast<int>(K)};
  with_storage(quantize_rows, w.dtype, [&](auto type) {
    using T = decltype(type);
    constexpr int pack = vec_size<T>;
    with_pairs(to.format, [&]<class Format>(Format) {
      const bool whole =
          packs<T>(w) && to.values.row_stride % pack == 0 && reinterpret_cast<uintptr_t>(to.values.data) % pack == 0;
      const auto launch = [&](auto* body) {
        body<<<static_cast<unsigned>(N), threads, 0, cuda_stream(context)>>>(rows, numbers<const T>(w));
      };
      whole ? launch(kernel<Format, T, pack>) : launch(kernel<Format, T, 1>);
    });
  });
  check_launch(quantize_rows);
}

[[maybe_unused]] const bool added = quantize_rows.add({"row_a_block", DeviceKind::cuda, run});

}  // namespace
}  // namespace hone
