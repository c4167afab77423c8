// Logit processors on a GPU: biases, penalties and suppressed stop tokens, and their counts.
//
// Use       apply_logit_processors, restore_logits, count_sampled_tokens.
// Tile      one row (sequence) per thread block; a row has E adjustments.
// Roles     128 threads, all alike; a thread takes every 128th adjustment.
// Pipeline  none.
// Smem      count_kernel: static, 4 bytes.
// Numerics  single rounded operations in the specification's order (no fused multiply-add), so the bits are equal.
// PDL       none.
// Limits    token ids outside the vocabulary are skipped.
#include "kernels/check_shape.h"
#include "kernels/cuda/cuda.cuh"
#include "kernels/sampling/logit_processors.h"

namespace hone {
namespace {

constexpr int threads = 128;

struct AdjustmentRows {
  LogitAdjustment* edits;
  RowPenalties* rows;
  int E;
  __device__ LogitAdjustment* of_block() const { return edits + int64_t{blockIdx.x} * E; }
};

__global__ void __launch_bounds__(threads) apply_kernel(float* logits, int64_t stride, int V, AdjustmentRows rows) {
  LogitAdjustment* const edits = rows.of_block();
  const RowPenalties how = rows.rows[blockIdx.x];
  for (int e = static_cast<int>(threadIdx.x); e < rows.E; e += threads) {
    const LogitAdjustment edit = edits[e];
    if (edit.id < 0 || edit.id >= V) continue;
    float& logit = logits[blockIdx.x * stride + edit.id];
    edits[e].was = logit;
    const float bias = edit.stops != 0 && how.stops_after > 0 ? -INFINITY : edit.bias;
    if (bias == 0 && edit.times < 0) continue;
    const float z = __fadd_rn(logit, bias);
    const float penalized = z > 0 ? __fdiv_rn(z, how.repetition_penalty) : __fmul_rn(z, how.repetition_penalty);
    const double minus =
        edit.times > 0 ? __dadd_rn(__dmul_rn(how.frequency_penalty, edit.times), how.presence_penalty) : 0;
    logit = edit.times < 0 ? z : __fsub_rn(penalized, __double2float_rn(minus));
  }
}

__global__ void __launch_bounds__(threads) restore_kernel(float* logits, int64_t stride, int V, AdjustmentRows rows) {
  const LogitAdjustment* const edits = rows.of_block();
  for (int e = static_cast<int>(threadIdx.x); e < rows.E; e += threads)
    if (edits[e].id >= 0 && edits[e].id < V) logits[blockIdx.x * stride + edits[e].id] = edits[e].was;
}

__global__ void __launch_bounds__(threads) count_kernel(AdjustmentRows rows, const int32_t* ids) {
  __shared__ int end;  // index of the first unused adjustment
  LogitAdjustment* const edits = rows.of_block();
  RowPenalties& how = rows.rows[blockIdx.x];
  if (threadIdx.x == 0) {
    end = rows.E;
    how.stops_after = max(how.stops_after - 1, 0);
  }
  __syncthreads();  // `end` is set
  const int id = ids[blockIdx.x];
  if (how.counts == 0 || id < 0) return;
  bool found = false;
  for (int e = static_cast<int>(threadIdx.x); e < rows.E; e += threads) {
    if (edits[e].id < 0) {
      atomicMin(&end, e);
      break;
    }
    if (edits[e].id != id) continue;
    edits[e].times = max(edits[e].times, 0) + 1;
    found = true;
  }
  if (__syncthreads_or(found) || threadIdx.x > 0 || end == rows.E) return;
  edits[end].id = id;
  edits[end].times = 1;
}

AdjustmentRows rows_of(const OpBase& op, const LogitAdjustments& edits, int64_t S) {
  const int64_t E = check_edits(op, edits, S);
  return {static_cast<LogitAdjustment*>(edits.edits.data), static_cast<RowPenalties*>(edits.rows.data),
          static_cast<int>(E)};
}

using Kernel = void (*)(float*, int64_t, int, AdjustmentRows);
void run_each(Context& context, const OpBase& op, Kernel kernel, const Tensor& logits, const LogitAdjustments& edits) {
  const int64_t S = logits.dim(0), V = logits.dim(1);
  check_shape(op, "logits", logits, {S, V});
  const AdjustmentRows rows = rows_of(op, edits, S);
  if (S == 0 || rows.E == 0) return;
  kernel<<<static_cast<unsigned>(S), threads, 0, cuda_stream(context)>>>(numbers<float>(logits), logits.row_stride,
                                                                         static_cast<int>(V), rows);
  check_launch(op);
}

void apply(Context& context, Tensor logits, LogitAdjustments edits) {
  run_each(context, apply_logit_processors, apply_kernel, logits, edits);
}
void restore(Context& context, Tensor logits, LogitAdjustments edits) {
  run_each(context, restore_logits, restore_kernel, logits, edits);
}

void count(Context& context, LogitAdjustments edits, Tensor ids) {
  const int64_t S = ids.dim(0);
  check_shape(count_sampled_tokens, "ids", ids, {S}, DType::i32);
  const AdjustmentRows rows = rows_of(count_sampled_tokens, edits, S);
  if (S == 0) return;
  count_kernel<<<static_cast<unsigned>(S), threads, 0, cuda_stream(context)>>>(rows, numbers<const int32_t>(ids));
  check_launch(count_sampled_tokens);
}

[[maybe_unused]] const bool added[] = {apply_logit_processors.add({"block_a_row", DeviceKind::cuda, apply}),
                                       restore_logits.add({"block_a_row", DeviceKind::cuda, restore}),
                                       count_sampled_tokens.add({"block_a_row", DeviceKind::cuda, count})};

}  // namespace
}  // namespace hone
