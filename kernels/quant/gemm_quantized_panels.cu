// gemm_quantized for every shape, alignment and dtype: dequantizes 4096 rows of w at a time to x's dtype, which is
// exact, and runs gemm_forward. gemm_quantized_sm90.cu and, for few rows, gemm_quantized_small_m.cu have the same bits
// and read w once, but need aligned rows.
#include "kernels/cuda/elementwise.cuh"
#include "kernels/gemm/epilogue.cuh"
#include "kernels/gemm/gemm.h"
#include "kernels/quant/internal.h"
#include "kernels/quant/quant_format.cuh"

namespace hone {

void check_gemm_quantized_cuda(const GemmQuantized& args) {
  const int64_t M = args.x.dim(0), N = args.w.values.dim(0), K = args.w.values.dim(1);
  check_quantized(gemm_quantized, "w", args.w, N, K);
  check_shape(gemm_quantized, "x", args.x, {M, K}, args.x.dtype);
  check_shape(gemm_quantized, "y", args.y, {M, N}, args.y.dtype);
  check_optional(gemm_quantized, "bias", args.bias, {N}, args.bias.dtype);
  check_optional(gemm_quantized, "residual", args.residual, {M, N}, args.residual.dtype);
  HONE_CHECK(M < int64_t{1} << 30 && N < int64_t{1} << 30 && K < int64_t{1} << 30, "gemm_quantized: M = ", M,
             ", N = ", N, ", K = ", K, "; each must be below 2^30");
}

namespace {

constexpr int64_t panel = 4096;  // rows of w per panel

template <class Format, class T>
struct Unpack {
  T* to;
  const uint8_t* values;
  int64_t to_stride, values_stride;
  template <int N>
  __device__ void run(int64_t row, int64_t column) const {
    const auto bytes = *reinterpret_cast<const Pack<uint8_t, N>*>(values + row * values_stride + column);
    float out[N];
#pragma unroll
    for (int i = 0; i < N; ++i) out[i] = __uint_as_float(Format::decode(bytes.value[i]) << 16);
    store_numbers(to + row * to_stride + column, out);
  }
};

struct Finish {
  GemmEpilogue epilogue;
  const float *sums, *scales;
  int64_t sums_stride, first;  // first: column of y at which the panel starts
  template <int N>
  __device__ void run(int64_t row, int64_t column) const {
#pragma unroll
    for (int i = 0; i < N; ++i)
      epilogue.store(sums[row * sums_stride + column + i] * scales[first + column + i], row, first + column + i);
  }
};

template <class T>
void unpack(Context& context, Tensor to, const QuantizedMatrix& w, int64_t first) {
  constexpr int N = vec_size<T>;
  const Tensor values = w.values.rows(first, to.dim(0));
  const bool whole = packs_of(N, values.dim(0), values) && packs_of(N, to.dim(0), to);
  with_pairs(w.format, [&]<class Format>(Format) {
    launch_elementwise<N>(
        cuda_stream(context), Extent{to.dim(0), to.dim(1)}, whole,
        Unpack<Format, T>{numbers<T>(to), numbers<const uint8_t>(values), to.row_stride, values.row_stride});
  });
}

void forward(Context& context, const GemmQuantized& args) {
  check_gemm_quantized_cuda(args);
  const int64_t M = args.x.dim(0), N = args.w.values.dim(0), K = args.w.values.dim(1), rows = std::min(panel, N);
  if (args.y.size() == 0 || quantized::run_few(context, args)) return;
  const ScratchScope scope(context);
  const Tensor unpacked = context.scratch().take(args.x.dtype, {rows, K}),
               sums = context.scratch().take(DType::f32, {M, rows});
  for (int64_t first = 0; first < N; first += panel) {
    const int64_t count = std::min(panel, N - first);
    const Tensor numbers_of_panel = unpacked.rows(0, count), sums_of_panel = sums.columns(0, count);
    with_storage(gemm_quantized, args.x.dtype,
                 [&](auto type) { unpack<decltype(type)>(context, numbers_of_panel, args.w, first); });
    context.zero(sums.rows(0, 1));  // gemm_forward may read its weights before the kernel queued last has ended
    GemmForward product{};
    product.y = sums_of_panel;
    product.x = args.x;
    product.w = numbers_of_panel;
    gemm_forward(context, product);
    launch_elementwise<1>(cuda_stream(context), Extent{M, count}, true,
                          Finish{GemmEpilogue(args.y, args.bias, args.residual), numbers<const float>(sums),
                                 numbers<const float>(args.w.scales), rows, first});
  }
  check_launch(gemm_quantized);
}

size_t scratch(const GemmQuantized& args) {
  const int64_t rows = std::min(panel, args.w.values.dim(0));
  return static_cast<size_t>(rows * args.x.dim(1)) * size_of(args.x.dtype) +
         static_cast<size_t>(rows * args.x.dim(0)) * size_of(DType::f32);
}

[[maybe_unused]] const bool added = gemm_quantized.add({"panels", DeviceKind::cuda, forward, 0, nullptr, scratch});

}  // namespace
}  // namespace hone
