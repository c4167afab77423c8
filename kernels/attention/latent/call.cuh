#pragma once
// The arguments of a call of latent attention for CUDA kernels, and the kernel that computes delta = dout . out. The
// one row per token is the K of an AttentionCall with one KV head: row r of a sequence's queries is token r / H with
// head r % H (kernels/attention/call.cuh).
//
// Use       the delta kernel: first launch of both backward bodies.
// Tile      one (token, head) pair per warp, 8 per block of 256 threads.
// Roles     all warps alike.
// Pipeline  none.
// Smem      none.
// Numerics  a lane adds columns lane, lane + 32, ... in ascending order (f32 fmaf); then a butterfly over the lanes.
// PDL       none.
// Limits    none.
#include "kernels/attention/call.cuh"
#include "kernels/attention/latent/latent_attention.h"

namespace hone::attention {

// of.k: the latent rows; of.v is not used. of.dim: W. of.group: H.
template <class T>
struct LatentCall {
  AttentionCall<T> of;
  int rank;
};

template <class T>
LatentCall<T> latent_call_of(const Tensor& out, const Tensor& lse, const Tensor& q, const Tensor& rows,
                             const Tensor& offsets, const AttentionShape& shape) {
  HONE_CHECK(q.dim(0) * q.dim(1) < int64_t{1} << 30 && rows.dim(0) < int64_t{1} << 31, "latent attention: ", q.dim(0),
             " tokens of ", q.dim(1), " heads and ", rows.dim(0),
             " rows; the maximum is 2^30 - 1 query heads and 2^31 - 1 rows");
  LatentCall<T> call{};
  call.rank = static_cast<int>(out.dim(2));
  AttentionCall<T>& of = call.of;
  of.out = numbers<T>(out);
  of.lse = lse ? numbers<float>(lse) : nullptr;
  of.q = numbers<const T>(q);
  of.k = numbers<const T>(rows);
  of.offsets = numbers<const int32_t>(offsets);
  of.out_stride = out.row_stride;
  of.lse_stride = lse.row_stride;
  of.q_stride = q.row_stride;
  of.k_stride = rows.row_stride;
  of.tokens = static_cast<int>(q.dim(0));
  of.sequences = static_cast<int>(offsets.dim(0)) - 1;
  of.kv_heads = 1;
  of.group = static_cast<int>(q.dim(1));
  of.dim = static_cast<int>(q.dim(2));
  of.window = window_of(shape);
  of.scale = shape.scale;
  of.c = exponent_scale(shape.scale);
  return call;
}

template <class T>
LatentCall<T> latent_call_of(const LatentAttentionForward& args) {
  check_latent_attention(args, args.q.dtype);
  return latent_call_of<T>(args.out, args.lse, args.q, args.rows, args.offsets, args.shape);
}

template <class T>
LatentCall<T> latent_call_of(const LatentAttentionPaged& args) {
  check_latent_attention(args, args.q.dtype);
  const LatentCache& cache = args.cache;
  LatentCall<T> call = latent_call_of<T>(args.out, Tensor(), args.q, cache.rows, args.offsets, args.shape);
  AttentionCall<T>& of = call.of;
  of.table = numbers<const int32_t>(cache.block_table);
  of.lengths = numbers<const int32_t>(cache.lengths);
  of.table_stride = cache.block_table.row_stride;
  of.block_size = static_cast<int>(cache.block_size);
  of.block_shift = -1;
  for (int shift = 0; shift < 30; ++shift)
    if (of.block_size == 1 << shift) of.block_shift = shift;
  return call;
}

template <class T>
struct LatentBackwardCall {
  LatentCall<T> forward;
  T *dq, *drows;
  const T* dout;
  const float* lse;
  float* delta;  // [T, H], scratch: dout . out
  int64_t dq_stride, drows_stride, dout_stride, lse_stride;
};

template <class T>
LatentBackwardCall<T> latent_backward_call_of(Context& context, const LatentAttentionBackward& args) {
  check_latent_attention(args, args.q.dtype);
  LatentBackwardCall<T> call{};
  call.forward = latent_call_of<T>(args.out, Tensor(), args.q, args.rows, args.offsets, args.shape);
  call.dq = numbers<T>(args.dq);
  call.drows = numbers<T>(args.drows);
  call.dout = numbers<const T>(args.dout);
  call.lse = numbers<const float>(args.lse);
  call.delta = numbers<float>(context.scratch().take(DType::f32, {args.q.dim(0), args.q.dim(1)}));
  call.dq_stride = args.dq.row_stride;
  call.drows_stride = args.drows.row_stride;
  call.dout_stride = args.dout.row_stride;
  call.lse_stride = args.lse.row_stride;
  return call;
}

// One warp computes delta of one query and head: a lane adds its columns in ascending order, then the lanes.
template <class T>
__global__ void latent_delta_kernel(const __grid_constant__ LatentBackwardCall<T> call) {
  const AttentionCall<T>& of = call.forward.of;
  const int64_t i = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) / 32;
  if (i >= int64_t{of.tokens} * of.group) return;
  const int64_t token = i / of.group, column = i % of.group * call.forward.rank;
  const T *const out = of.out + token * of.out_stride + column, *const dout =
                                                                    call.dout + token * call.dout_stride + column;
  float sum = 0;
  for (int d = static_cast<int>(threadIdx.x % 32); d < call.forward.rank; d += 32)
    sum = fmaf(to_f32(out[d]), to_f32(dout[d]), sum);
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) call.delta[i] = sum;
}

template <class T>
void launch_latent_delta(Context& context, const LatentBackwardCall<T>& call) {
  constexpr int threads = 256;
  const int64_t lanes = int64_t{call.forward.of.tokens} * call.forward.of.group * 32;
  latent_delta_kernel<T>
      <<<static_cast<unsigned>((lanes + threads - 1) / threads), threads, 0, cuda_stream(context)>>>(call);
}

}  // namespace hone::attention
