#pragma once
// Choice of the Hopper kernel for y = x . w^T: shared by gemm_forward and by the op that also normalizes y. Every
// kernel has the bits of the "tiles" body, so the number of rows may decide which one runs (tests/gpu/gemm_test.cpp
// checks it). Only .cu and .cuh files include it.
#include "kernels/cuda/sanitizer.h"
#include "kernels/gemm/sm90/store.cuh"
#include "kernels/gemm/sm90/tuning.cuh"

namespace hone {

inline bool gemm_forward_sm90_supports(const Tensor& x, const Tensor& w) {
  return runs_hopper_bodies() && tma_compatible(x) && tma_compatible(w) && w.dim(1) > 0;
}

struct GemmForwardCall : GemmProblem<LinearEpilogue> {
  const GemmForward& args;
};

template <class Tile, class Call>
void run_gemm_forward_tile(const Call& c, int) {
  if (tma_compatible(c.args.y) && (!c.args.residual || tma_compatible(c.args.residual))) {
    const GemmStoreBox store{make_tensor_map(c.args.y, 64),
                             make_tensor_map(c.args.residual ? c.args.residual : c.args.y, 64),
                             c.args.bias ? c.args.bias.data : nullptr,
                             static_cast<int>(c.N()),
                             c.args.bias.dtype == DType::bf16,
                             static_cast<bool>(c.args.residual)};
    launch_gemm_sm90<Tile>(cuda_stream(c.context), c.x, c.w, store);
    mark_written(c.context, c.args);
  } else {
    with_storage(gemm_forward, c.args.y.dtype, [&](auto type) {
      launch_gemm_sm90<Tile>(cuda_stream(c.context), c.x, c.w,
                             GemmStore<decltype(type)>{c.output.to, c.M(), c.N(), c.output.pairs});
    });
  }
}

inline GemmForwardCall gemm_forward_call(Context& context, const GemmForward& args) {
  const bool pairs =
      args.y.row_stride % 2 == 0 && reinterpret_cast<uintptr_t>(args.y.data) % (2 * size_of(args.y.dtype)) == 0;
  return {{context, args.x, args.w,
           LinearEpilogue{GemmEpilogue(args.y, args.bias, args.residual), static_cast<int>(args.w.dim(0)), pairs}},
          args};
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
