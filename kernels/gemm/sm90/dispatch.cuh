#pragma once
// Choice of the Hopper kernel for y = x . w^T: shared by gemm_forward and by the op that also normalizes y. Every
// kernel has the bits of the "tiles" body, so the number of rows may decide which one runs (tests/gpu/gemm_test.cpp
// checks it). Only .cu and .cuh files include it.
#include "kernels/cuda/sanitizer.h"
#include "kernels/gemm/sm90/store.cuh"
#include "kernels/gemm/sm90/tuning.cuh"

namespace hone {

inline bool gemm_forward_sm90_supports(const Tensor& x, const Tensor& w) {
  return tma_compatible(x) && tma_compatible(w) && w.dim(1) > 0;
}

struct GemmForwardCall : GemmProblem<LinearEpilogue> {
  const Tensor &y, &bias, &residual;
};

template <class Tile, class Call>
void run_gemm_forward_tile(const Call& c, int) {
  if (tma_compatible(c.y) && (!c.residual || tma_compatible(c.residual))) {
    const GemmStoreBox store{make_tensor_map(c.y, 64),       make_tensor_map(c.residual ? c.residual : c.y, 64),
                             c.bias ? c.bias.data : nullptr, static_cast<int>(c.N()),
                             c.bias.dtype == DType::bf16,    static_cast<bool>(c.residual)};
    launch_gemm_sm90<Tile>(cuda_stream(c.context), c.x, c.w, store);
    if (c.residual.data != c.y.data) mark_initialized(c.context, c.y);
  } else {
    with_storage(gemm_forward, c.y.dtype, [&](auto type) {
      launch_gemm_sm90<Tile>(cuda_stream(c.context), c.x, c.w,
                             GemmStore<decltype(type)>{c.output.to, c.M(), c.N(), c.output.pairs});
    });
  }
}

inline GemmForwardCall gemm_forward_call(Context& context, const Tensor& y, const Tensor& x, const Tensor& w,
                                         const Tensor& bias, const Tensor& residual) {
  const bool pairs = y.row_stride % 2 == 0 && reinterpret_cast<uintptr_t>(y.data) % (2 * size_of(y.dtype)) == 0;
  return {{context, x, w, LinearEpilogue{GemmEpilogue(y, bias, residual), static_cast<int>(w.dim(0)), pairs}},
          y,
          bias,
          residual};
}

// For more rows than is_small_m() accepts.
template <class Call>
GemmChoice<Call> gemm_forward_plan(const Call& call) {
  using Wide = GemmTile<192, 4, 1>;
  using Narrow = GemmTile<128, 6, 1>;
  const int64_t M = call.M();
  GemmChoice<Call> plan;
  if (M <= 512) plan = gemm_rows_plan(call);
  if (M > 64) {
    plan.consider(gemm_tile_plan<Wide>(call, 0.46, run_gemm_forward_tile<Wide, Call>));
    plan.consider(gemm_tile_plan<Narrow>(call, 0.31, run_gemm_forward_tile<Narrow, Call>));
  }
  if (M > 1024) {
    // The GEMM dominates: what counts is how full the waves of tiles are. The narrow tile is about 5% slower.
    const auto rounds = [&](int64_t columns) {
      return static_cast<double>(ceil_div(ceil_div(M, 128) * ceil_div(call.N(), columns), num_sms()) * columns);
    };
    plan.run = rounds(128) * 1.05 < rounds(192) ? run_gemm_forward_tile<Narrow, Call>
                                                : run_gemm_forward_tile<GemmTile<192, 4, 2>, Call>;
  }
  return plan;
}

}  // namespace hone
