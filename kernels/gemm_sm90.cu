// gemm_forward on Hopper. Every kernel here has the bits of the "tiles" body, so that which one runs, and with which tiles, may be chosen by the
// number of rows (tests/gpu/gemm_test.cpp holds them to it).
#include "kernels/check_shape.h"
#include "kernels/gemm_join_norm.cuh"
#include "kernels/gemm_plan_sm90.cuh"
#include "kernels/gemm_store.cuh"
#include "kernels/projection_steps.h"
#include "kernels/written.h"

namespace hone {
namespace {

bool supports(const Tensor&, const Tensor& x, const Tensor& w, const Tensor&, const Tensor&) { return maps(x) && maps(w) && w.dim(1) > 0; }

struct Call : GemmCall<GemmPlain> {
  const Tensor &y, &bias, &residual;
};
struct NormedCall : Call {
  GemmRowNorm norm;
  void join(cudaStream_t stream, const GemmPartials& partials) const { join_gemm_norm(stream, partials, output.to, norm); }
};

template <class Tile, class Call>
void run_tile(const Call& c, int) {
  if (maps(c.y) && (!c.residual || maps(c.residual))) {
    const GemmStoreBox store{map_of(c.y, 64),
                             map_of(c.residual ? c.residual : c.y, 64),
                             c.bias ? c.bias.data : nullptr,
                             static_cast<int>(c.N()),
                             c.bias.dtype == DType::bf16,
                             static_cast<bool>(c.residual)};
    launch_gemm_sm90<Tile>(cuda_stream(c.context), c.x, c.w, store);
    if (c.residual.data != c.y.data) tell_written(c.context, c.y);
  } else {
    with_storage(gemm_forward, c.y.dtype, [&](auto type) {
      launch_gemm_sm90<Tile>(cuda_stream(c.context), c.x, c.w, GemmStore<decltype(type)>{c.output.to, c.M(), c.N(), c.output.pairs});
    });
  }
}

Call call_of(Context& context, const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& residual) {
  const bool pairs = y.row_stride % 2 == 0 && reinterpret_cast<uintptr_t>(y.data) % (2 * size_of(y.dtype)) == 0;
  return {{context, x, w, GemmPlain{GemmEpilogue(y, bias, residual), static_cast<int>(w.dim(0)), pairs}}, y, bias, residual};
}

// For more rows than few_rows().
template <class Call>
GemmPlan<Call> plan_of(const Call& call) {
  using Wide = GemmTile<192, 4, 1>;
  using Narrow = GemmTile<128, 6, 1>;
  const int64_t M = call.M();
  GemmPlan<Call> plan;
  if (M <= 512) plan = gemm_rows_plan(call);
  if (M > 64) {
    plan.consider(gemm_tile_plan<Wide>(call, 0.46, run_tile<Wide, Call>));
    plan.consider(gemm_tile_plan<Narrow>(call, 0.31, run_tile<Narrow, Call>));
  }
  if (M > 1024) {
    // The products take all of the time: what counts is how full the rounds are, and the narrow tile is slower by some 5%.
    const auto rounds = [&](int64_t columns) {
      return static_cast<double>(gemm_pieces(gemm_pieces(M, 128) * gemm_pieces(call.N(), columns), num_multiprocessors()) * columns);
    };
    plan.run = rounds(128) * 1.05 < rounds(192) ? run_tile<Narrow, Call> : run_tile<GemmTile<192, 4, 2>, Call>;
  }
  return plan;
}

void forward(Context& context, Tensor y, Tensor x, Tensor w, Tensor bias, Tensor residual) {
  check_gemm_forward_cuda(y, x, w, bias, residual);
  if (y.size() == 0 || run_gemm_forward_fast(context, y, x, w, bias, residual)) return;
  const Call call = call_of(context, y, x, w, bias, residual);
  if (few_rows(x.dim(0), w.dim(1))) return launch_gemm_few(cuda_stream(context), x, w, call.output);
  const GemmPlan<Call> plan = plan_of(call);
  plan.run(call, plan.splits);
  check_launch(gemm_forward);
}

// A row is normed where its partial sums are joined, if they are.
void forward_normed(Context& context, Tensor y, Tensor normed, Tensor x, Tensor w, Tensor bias, Tensor residual, RowNorm norm) {
  check_gemm_forward_cuda(y, x, w, bias, residual);
  const int64_t M = x.dim(0), N = w.dim(0);
  check_shape(gemm_norm_forward, "normed", normed, {M, N}, DType::bf16);
  check_shape(gemm_norm_forward, "norm", norm.weight, {N}, DType::bf16);
  if (y.size() > 0 && M <= 512 && !few_rows(M, w.dim(1)) && context.numerics() == Numerics::exact) {
    const NormedCall call{call_of(context, y, x, w, bias, residual),
                          {numbers<__nv_bfloat16>(normed), numbers<const __nv_bfloat16>(norm.weight), normed.row_stride, norm.eps,
                           RmsNormRows::shape(N, pack_size<__nv_bfloat16>)}};
    const GemmPlan<NormedCall> plan = plan_of(call);
    if (plan.splits > 1) return plan.run(call, plan.splits), check_launch(gemm_norm_forward);
  }
  gemm_norm_steps(context, y, normed, x, w, bias, residual, norm);
}

bool supports_normed(const Tensor& y, const Tensor& normed, const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& residual,
                     const RowNorm& norm) {
  const auto vector = [](const Tensor& v) { return !v || (v.dtype == DType::bf16 && reinterpret_cast<uintptr_t>(v.data) % 16 == 0); };
  return supports(y, x, w, bias, residual) && joins_norm(w.dim(0)) && maps(y) && maps(normed) && (!residual || maps(residual)) && vector(bias) &&
         vector(norm.weight);
}

[[maybe_unused]] const bool added = gemm_forward.add({"sm90", DeviceKind::cuda, forward, 10, supports}) &&
                                    gemm_norm_forward.add({"sm90", DeviceKind::cuda, forward_normed, 10, supports_normed});

}  // namespace
}  // namespace hone
