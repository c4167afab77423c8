#pragma once
// Cost model that chooses the fastest Hopper GEMM for a number of rows; all have the same bits. The constants are
// fitted to measurements on an H200. gemm_test.cpp and projection_test.cpp of tests/gpu contain shapes for which each
// body is chosen; review them if the constants change. Only .cu and .cuh files include it.
#include <algorithm>

#include "kernels/gemm/mma/small_m.cuh"
#include "kernels/gemm/sm90/m64.cuh"
#include "kernels/gemm/sm90/split_k.cuh"
#include "kernels/gemm/sm90/wgmma.cuh"

namespace hone {

// A GEMM whose totals go to an epilogue of output.cuh.
template <class Output>
struct GemmProblem {
  Context& context;
  const Tensor &x, &w;
  Output output;
  int64_t M() const { return x.dim(0); }
  int64_t N() const { return w.dim(0); }
  int64_t K() const { return w.dim(1); }
  int64_t stages() const { return (K() + 63) / 64; }
  void join(cudaStream_t stream, const SplitKPartials& partials) const { reduce_split_k(stream, partials, output); }
};

// A way to run a call and its expected time in microseconds.
template <class Call>
struct GemmChoice {
  double time = 1e30;
  void (*run)(const Call&, int splits) = nullptr;
  int splits = 1;
  void consider(const GemmChoice& other) {
    if (other.time < time) *this = other;
  }
};

inline int64_t ceil_div(int64_t count, int64_t size) { return (count + size - 1) / size; }

template <class Tile, class Call>
GemmChoice<Call> gemm_tile_plan(const Call& c, double stage_time, void (*run)(const Call&, int)) {
  const int64_t units = ceil_div(c.M(), Tile::rows * Tile::cluster) * ceil_div(c.N(), Tile::columns) * Tile::cluster;
  const double products =
      static_cast<double>(ceil_div(units, num_sms())) * (static_cast<double>(c.stages()) * stage_time + 1.4);
  const double memory = 2 * static_cast<double>(c.N()) * static_cast<double>(c.K()) / 2.9e6;
  return {3 + std::max(products, memory), run};
}

template <class Split, class Call>
void run_gemm_split(const Call& c, int splits) {
  launch_gemm_split_k<Split>(c.context, c.x, c.w, c.output, splits,
                             [&](cudaStream_t stream, const SplitKPartials& from) { c.join(stream, from); });
}

// Finds the best number of thread blocks per tile (splits). Limits: memory, L2, the intake of an SM, and the latency of
// a stage.
template <class Split, class Call>
GemmChoice<Call> gemm_split_plan(const Call& c) {
  const int64_t tiles = ceil_div(c.N(), Split::rows) * ceil_div(c.M(), Split::tokens),
                chunks = ceil_div(c.K(), gemm_cuda_chunk);
  const int64_t processors = num_sms(),
                resident =
                    processors * std::min(static_cast<int>(device_limits().shared_per_block) / Split::shared_bytes, 4);
  const auto M = static_cast<double>(c.M()), N = static_cast<double>(c.N()), K = static_cast<double>(c.K());
  const double start =
      Split::blocks == 1 ? 6 : 2;  // blocks that fill an SM do not overlap the kernels before and after
  GemmChoice<Call> best;
  for (int64_t splits = 1; splits <= std::min<int64_t>(chunks, 16); ++splits) {
    const int64_t per_block = ceil_div(chunks, splits), blocks = tiles * splits;
    if (ceil_div(chunks, per_block) != splits) continue;
    const auto stages = static_cast<double>(std::min(c.stages(), per_block * (gemm_cuda_chunk / Split::depth)));
    const double bytes = stages * Split::bytes_read(static_cast<int>(c.M()));
    const double limits[] = {2 * N * K / 4.0e6, static_cast<double>(blocks) * bytes / 10e6,
                             static_cast<double>(ceil_div(blocks, processors)) * bytes / 95e3,
                             stages * 1.5 / Split::stages + 0.5};
    const double tail = blocks > resident ? 0.9 + bytes / 190e3 : 0;
    const double join = splits > 1 ? 1 + static_cast<double>(1 + chunks - per_block) * M * N * 8 / 5e6 : 0;
    best.consider({start + *std::max_element(std::begin(limits), std::end(limits)) + tail + join,
                   run_gemm_split<Split, Call>, static_cast<int>(splits)});
  }
  return best;
}

template <class Narrow, class Call>
void run_gemm_narrow(const Call& c, int) {
  launch_gemm_m64<Narrow>(cuda_stream(c.context), c.x, c.w, c.output);
}

// For at most 64 rows.
template <class Narrow, class Call>
GemmChoice<Call> gemm_narrow_plan(const Call& c) {
  const int64_t blocks = ceil_div(c.N(), Narrow::columns) * Narrow::cluster, processors = num_sms();
  const int64_t chunks = ceil_div(ceil_div(c.K(), gemm_cuda_chunk), Narrow::cluster),
                stages = std::min(c.stages(), chunks * Narrow::chunk_stages);
  const auto bytes =
      static_cast<double>(stages * Narrow::bytes_read(static_cast<int>(c.M())) + chunks * Narrow::slot_bytes);
  const double limits[] = {2 * static_cast<double>(c.N()) * static_cast<double>(c.K()) / 4.0e6,
                           static_cast<double>(blocks) * bytes / 10e6,
                           static_cast<double>(ceil_div(blocks, processors)) * bytes / 95e3,
                           static_cast<double>(stages) * 1.1 / Narrow::stages + 0.5};
  const double tail = Narrow::blocks == 1 ? 1.5 * static_cast<double>(ceil_div(blocks, processors) - 1) : 0;
  return {3.5 + *std::max_element(std::begin(limits), std::end(limits)) + tail, run_gemm_narrow<Narrow, Call>};
}

// The best body for at most 512 rows, among those whose grids occupy most SMs.
template <class Call>
GemmChoice<Call> gemm_rows_plan(const Call& c) {
  if (c.M() <= 16) return gemm_split_plan<GemmSplitK<1, 16, 8>>(c);
  GemmChoice<Call> plan = gemm_split_plan<GemmSplitK<1, 32, 8>>(c);
  plan.consider(gemm_split_plan<GemmSplitK<1, 32, 5>>(c));
  if (c.M() <= 64) {
    plan.consider(gemm_narrow_plan<GemmM64<12>>(c));
    plan.consider(gemm_narrow_plan<GemmM64<5>>(c));
  }
  plan.consider(gemm_split_plan<GemmSplitK<1, 64, 6>>(c));
  plan.consider(gemm_split_plan<GemmSplitK<1, 64, 4>>(c));
  plan.consider(gemm_split_plan<GemmSplitK<2, 64, 4>>(c));
  if (c.M() > 64) plan.consider(gemm_split_plan<GemmSplitK<2, 128, 6>>(c));
  return plan;
}

}  // namespace hone
