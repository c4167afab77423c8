// The passes over logits as epilogues of the GEMM that computes them (kernel: kernels/gemm/sm90/wgmma.cuh), on Hopper.
#include "kernels/cuda/sanitizer.h"
#include "kernels/gemm/sm90/store.cuh"
#include "kernels/lm_head/logprob_rows.cuh"

namespace hone {
namespace {

enum class LmHeadPass { sums, weighted_sums, exponentials, gradient };

template <LmHeadPass head>
struct HeadEpilogue {
  static constexpr bool stores = head == LmHeadPass::exponentials || head == LmHeadPass::gradient;

  HeadRowsView rows;
  int R, V;
  GemmStoreBox box;

  static constexpr int shared_bytes(int columns) { return stores ? GemmStoreBox::shared_bytes(columns) : 0; }
  static constexpr int column_bytes(int) { return 0; }
  template <int Columns>
  __device__ void begin(const GemmPart&, int, int) const {}
  __device__ void end(const GemmPart& part) const {
    if constexpr (stores) box.end(part);
  }
  template <int Columns>
  __device__ void finish(const GemmPart& part, float (&total)[Columns / 2], int m, int n) const {
    const int lane = part.thread % 32, t = lane % 4;
    // Columns past the vocabulary count as -inf.
    if (head != LmHeadPass::gradient && n + Columns > V) {
#pragma unroll
      for (int j = 0; j < Columns / 8; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (n + 8 * j + 2 * t + e % 2 >= V) total[4 * j + e] = -INFINITY;
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = m + part.thread / 32 * 16 + lane / 4 + 8 * h, known = min(row, R - 1);
      const int target = rows.targets[known] - n - 2 * t;  // relative to this thread's first column
      // Gradient pass: logits become dlogits.
      if constexpr (head == LmHeadPass::gradient) {
        const RowGradient of(rows, known);
#pragma unroll
        for (int j = 0; j < Columns / 8; ++j)
#pragma unroll
          for (int b = 0; b < 2; ++b)
            total[4 * j + 2 * h + b] = of.dlogit(total[4 * j + 2 * h + b], target == 8 * j + b);
      } else {
        // The thread that holds the target's logit stores it.
        if (target >= 0 && target < Columns && row < R) {
#pragma unroll
          for (int j = 0; j < Columns / 8; ++j)
#pragma unroll
            for (int b = 0; b < 2; ++b)
              if (target == 8 * j + b) rows.target_z[row] = total[4 * j + 2 * h + b] * rows.inv_temperature;
        }
#pragma unroll
        // Sums of each chunk; exponentials are rescaled from the chunk's maximum to the guess.
        for (int c = 0; c < Columns / logsumexp_cuda_chunk; ++c) {
          constexpr int chunk_size = logsumexp_cuda_chunk / 2;
          const ChunkSums sums = chunk_sums_of_quad<head == LmHeadPass::weighted_sums>(total, chunk_size * c + 2 * h,
                                                                                       rows.inv_temperature);
          const int chunk = n / logsumexp_cuda_chunk + c;
          if (t == 0 && row < R && chunk < rows.num_chunks) {
            const int64_t at = int64_t{row} * rows.num_chunks + chunk;
            rows.chunks[at] = {sums.max, sums.sum};
            if constexpr (head == LmHeadPass::weighted_sums) rows.chunk_weighted[at] = sums.weighted;
          }
          if constexpr (head == LmHeadPass::exponentials) {
            const float factor = rows.from_chunk(sums.max, known);
#pragma unroll
            for (int j = 0; j < logsumexp_cuda_chunk / 8; ++j)
#pragma unroll
              for (int b = 0; b < 2; ++b) total[chunk_size * c + 4 * j + 2 * h + b] *= factor;
          }
        }
      }
    }
    // dlogits or exponentials leave by TMA.
    if constexpr (stores) box.finish<Columns>(part, total, m, n);
  }
};

template <LmHeadPass head>
void launch(Context& context, const HeadRows& rows, const Tensor& numbers, const Tensor& hidden, const Tensor& w) {
  HeadEpilogue<head> epilogue{HeadRowsView(rows), static_cast<int>(hidden.dim(0)), static_cast<int>(w.dim(0)), {}};
  if constexpr (HeadEpilogue<head>::stores) {
    epilogue.box.y_map = make_tensor_map(numbers, 64);
    epilogue.box.N = static_cast<int>(w.dim(0));
  }
  launch_gemm_sm90<GemmTile<192, HeadEpilogue<head>::stores ? 4 : 5, 1>>(cuda_stream(context), hidden, w, epilogue);
  if constexpr (HeadEpilogue<head>::stores) mark_initialized(context, numbers);
  check_launch(logprob_forward);
}

bool accepts(const Tensor& hidden, const Tensor& w) {
  constexpr int64_t few = 64, least_columns = 256;
  return runs_hopper_bodies() && tma_compatible(hidden) && tma_compatible(w) && hidden.dim(0) >= few &&
         w.dim(1) >= least_columns;
}
void sums(Context& context, const HeadRows& rows, Tensor hidden, Tensor w) {
  if (rows.chunk_weighted)
    launch<LmHeadPass::weighted_sums>(context, rows, {}, hidden, w);
  else
    launch<LmHeadPass::sums>(context, rows, {}, hidden, w);
}
void exponentials(Context& context, const HeadRows& rows, Tensor numbers, Tensor hidden, Tensor w) {
  launch<LmHeadPass::exponentials>(context, rows, numbers, hidden, w);
}
void gradient(Context& context, const HeadRows& rows, Tensor gradient, Tensor hidden, Tensor w) {
  launch<LmHeadPass::gradient>(context, rows, gradient, hidden, w);
}

constexpr LmHeadDirect direct{accepts, sums, exponentials, gradient};
[[maybe_unused]] const bool added = [] {
  lm_head_direct = &direct;
  return true;
}();

}  // namespace
}  // namespace hone
