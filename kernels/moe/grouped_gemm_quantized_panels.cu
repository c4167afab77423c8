// grouped_gemm_quantized for every shape, alignment and dtype: decodes some rows of each expert's matrix at a time to
// x's dtype, which is exact, runs grouped_gemm_forward, and scales its sums. The body "mma" has the same bits and reads
// only the experts that have rows.
//
// Use       f32, and rows that are not 16-byte aligned: small models and tests.
// Tile      elementwise.cuh around grouped_gemm_forward.
// Roles     elementwise.cuh.
// Pipeline  none.
// Smem      none.
// Numerics  the sums of grouped_gemm_forward in f32, times the scale, rounded once.
// PDL       none.
// Limits    none.
#include "kernels/cuda/elementwise.cuh"
#include "kernels/moe/grouped_gemm_quantized.h"
#include "kernels/quant/quant_format.cuh"

namespace hone {
namespace {

constexpr int64_t panel = 64;  // rows of each expert

template <class Format, class T>
struct UnpackExperts {
  T* to;  // [E * count, K]
  const uint8_t* values;
  int64_t matrix, K, first, count;
  template <int N>
  __device__ void run(int64_t row, int64_t column) const {
    const uint8_t* const from = values + row / count * matrix + (first + row % count) * K + column;
    float out[N];
#pragma unroll
    for (int i = 0; i < N; ++i) out[i] = __uint_as_float(Format::decode(from[i]) << 16);
    store_numbers(to + row * K + column, out);
  }
};

// y[r, first + n] = sums[r, n] * scales[e, first + n], with e the expert of row r; 0 for rows without one. accumulate:
// y is added.
template <class T>
struct ScaleRows {
  T* y;
  const float *sums, *scales;
  const int32_t* offsets;
  int64_t y_stride, sums_stride, first, columns;
  int num_experts;
  bool accumulate;
  template <int N>
  __device__ void run(int64_t row, int64_t column) const {
    int low = 0, high = num_experts;  // the expert is in [low, high]; high: none
    while (low < high) {
      const int middle = (low + high) / 2;
      if (offsets[middle + 1] > row)
        high = middle;
      else
        low = middle + 1;
    }
    if (low == num_experts && accumulate) return;
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const int64_t n = first + column + i;
      T& to = y[row * y_stride + n];
      float total = low < num_experts ? sums[row * sums_stride + column + i] * scales[low * columns + n] : 0.0f;
      if (accumulate) total += to_f32(to);
      to = from_f32<T>(total);
    }
  }
};

void forward(Context& context, const GroupedGemmQuantized& args) {
  check_grouped_gemm(args);
  if (args.y.size() == 0) return;
  const int64_t P = args.y.dim(0), N = args.y.dim(1), K = args.x.dim(1), E = args.offsets.dim(0) - 1,
                most = std::min(panel, N);
  const ScratchScope scope(context);
  const Tensor unpacked = context.scratch().take(args.x.dtype, {E * most, K}),
               sums = context.scratch().take(DType::f32, {P, most});
  const cudaStream_t stream = cuda_stream(context);
  for (int64_t first = 0; first < N; first += most) {
    const int64_t count = std::min(most, N - first);
    with_storage(grouped_gemm_quantized, args.x.dtype, [&](auto type) {
      using T = decltype(type);
      with_pairs(args.w.format, [&]<class Format>(Format) {
        if (K > 0)
          launch_elementwise<1>(stream, Extent{E * count, K}, true,
                                UnpackExperts<Format, T>{numbers<T>(unpacked), numbers<const uint8_t>(args.w.values),
                                                         args.w.values.row_stride, K, first, count});
      });
    });
    GroupedGemmForward product{};
    product.y = sums.columns(0, count);
    product.x = args.x;
    product.w = unpacked.rows(0, E * count).view({E, count, K});
    product.offsets = args.offsets;
    grouped_gemm_forward(context, product);
    with_storage(grouped_gemm_quantized, args.y.dtype, [&](auto type) {
      using T = decltype(type);
      launch_elementwise<1>(stream, Extent{P, count}, true,
                            ScaleRows<T>{numbers<T>(args.y), numbers<const float>(sums),
                                         numbers<const float>(args.w.scales), numbers<const int32_t>(args.offsets),
                                         args.y.row_stride, most, first, N, static_cast<int>(E), args.accumulate});
    });
  }
  check_launch(grouped_gemm_quantized);
}

size_t scratch(const GroupedGemmQuantized& args) {
  const int64_t most = std::min(panel, args.y.dim(1)), E = args.w.values.dim(0);
  return static_cast<size_t>(E * most * args.x.dim(1)) * size_of(args.x.dtype) +
         static_cast<size_t>(args.y.dim(0) * most) * size_of(DType::f32);
}

[[maybe_unused]] const bool added =
    grouped_gemm_quantized.add({"panels", DeviceKind::cuda, forward, 0, nullptr, scratch});

}  // namespace
}  // namespace hone
