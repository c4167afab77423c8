#pragma once
// Common parts of the backward bodies of attention, and the kernel that computes delta = dout . out.
//
// With p_ij = exp(scale * q_i . k_j - lse_i) and delta_i = dout_i . out_i:
//   dv_j = sum over i of p_ij dout_i,  ds_ij = p_ij (dout_i . v_j - delta_i),  dq_i = scale * sum over j of ds_ij k_j,
//   dk_j = scale * sum over i of ds_ij q_i.  dsink = -sum over i of exp(sink - lse_i) delta_i.
// Every sum has one order.
//
// Use       delta_kernel: first launch of plain.cu and mma.cu. sink_kernel: calls with dsinks.
// Tile      delta_kernel: one (token, head) pair per 8 lanes, 32 pairs per block of 256 threads. sink_kernel: one head
//           per block.
// Roles     all threads alike.
// Pipeline  none.
// Smem      sink_kernel: static, 64 bytes.
// Numerics  delta: a lane sums vectors of N elements, 8 N apart, in ascending order (f32 fmaf); then a butterfly over 8
//           lanes. dsink: a thread sums tokens 512 apart in ascending order (f32); then warps, then the block; one
//           addition to the gradient.
// PDL       none.
// Limits    N divides the head dimension; rows aligned to N * sizeof(T) bytes.
#include "kernels/attention/call.cuh"

namespace hone::attention {

template <class T>
struct BackwardCall {
  AttentionCall<T> forward;
  T *dq, *dk, *dv;
  const T* dout;
  const float* lse;
  float* delta;  // [T, H], scratch
  int64_t dq_stride, dk_stride, dv_stride, dout_stride, lse_stride;
};

template <class T>
BackwardCall<T> backward_call_of(Context& context, const AttentionBackward& args) {
  const OpBase& op = attention_backward;
  BackwardCall<T> call{};
  AttentionForward forward{};
  forward.out = args.out;
  forward.q = args.q;
  forward.k = args.k;
  forward.v = args.v;
  forward.offsets = args.offsets;
  forward.shape = args.shape;
  forward.sinks = args.sinks;
  call.forward = call_of<T>(op, forward);
  check_shape(op, "lse", args.lse, {args.q.dim(0), args.q.dim(1)});
  check_shape(op, "dq", args.dq, {args.q.dim(0), args.q.dim(1), args.q.dim(2)}, args.q.dtype);
  check_shape(op, "dout", args.dout, {args.q.dim(0), args.q.dim(1), args.q.dim(2)}, args.q.dtype);
  check_shape(op, "dk", args.dk, {args.k.dim(0), args.k.dim(1), args.k.dim(2)}, args.q.dtype);
  check_shape(op, "dv", args.dv, {args.k.dim(0), args.k.dim(1), args.k.dim(2)}, args.q.dtype);
  HONE_CHECK(args.k.dim(0) == args.q.dim(0), op.name(), ": q has ", args.q.dim(0), " rows, k has ", args.k.dim(0),
             "; they must be equal");
  call.dq = numbers<T>(args.dq);
  call.dk = numbers<T>(args.dk);
  call.dv = numbers<T>(args.dv);
  call.dout = numbers<const T>(args.dout);
  call.lse = numbers<const float>(args.lse);
  call.delta = numbers<float>(context.scratch().take(DType::f32, {args.q.dim(0), args.q.dim(1)}));
  call.dq_stride = args.dq.row_stride;
  call.dk_stride = args.dk.row_stride;
  call.dv_stride = args.dv.row_stride;
  call.dout_stride = args.dout.row_stride;
  call.lse_stride = args.lse.row_stride;
  check_optional(op, "dsinks", args.dsinks, {args.q.dim(1)});
  HONE_CHECK(!args.dsinks || args.sinks, op.name(), ": dsinks without sinks");
  return call;
}

// Eight lanes compute one (token, head) pair.
template <class T, int N>
__global__ void delta_kernel(const __grid_constant__ BackwardCall<T> call) {
  const int heads = call.forward.kv_heads * call.forward.group, dim = call.forward.dim;
  const int i = static_cast<int>((blockIdx.x * blockDim.x + threadIdx.x) / 8), lane = static_cast<int>(threadIdx.x % 8);
  if (i >= call.forward.tokens * heads) return;  // eight lanes exit together; the shuffle masks name only eight lanes
  const int token = i / heads, head = i % heads;
  const T *out = call.forward.out + token * call.forward.out_stride + head * dim,
          *dout = call.dout + token * call.dout_stride + head * dim;
  float sum = 0;
  for (int d = lane * N; d < dim; d += 8 * N) {
    float x[N], y[N];
    load_vec(x, out + d);
    load_vec(y, dout + d);
#pragma unroll
    for (int j = 0; j < N; ++j) sum = fmaf(x[j], y[j], sum);
  }
#pragma unroll
  for (int lanes = 4; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(0xffu << (threadIdx.x % 32 / 8 * 8), sum, lanes);
  if (lane == 0) call.delta[i] = sum;
}

template <int N, class T>
void launch_delta(Context& context, const BackwardCall<T>& call) {
  constexpr int threads = 256;
  const int64_t lanes = int64_t{call.forward.tokens} * call.forward.kv_heads * call.forward.group * 8;
  delta_kernel<T, N>
      <<<static_cast<unsigned>((lanes + threads - 1) / threads), threads, 0, cuda_stream(context)>>>(call);
}

inline constexpr int sink_threads = 512;

template <class T>
__global__ void __launch_bounds__(sink_threads)
    sink_kernel(const __grid_constant__ BackwardCall<T> call, float* dsinks) {
  __shared__ float sums[sink_threads / 32];
  const int head = static_cast<int>(blockIdx.x), heads = static_cast<int>(gridDim.x),
            thread = static_cast<int>(threadIdx.x);
  const float sink = sink_of(call.forward, head);
  float sum = 0;
  for (int64_t t = thread; t < call.forward.tokens; t += sink_threads)
    sum = fmaf(expf(sink - call.lse[t * call.lse_stride + head]), call.delta[t * heads + head], sum);
  sum = warp_sum(sum);
  if (thread % 32 == 0) sums[thread / 32] = sum;
  __syncthreads();  // the sums of all warps are written
  if (thread >= 32) return;
  sum = warp_sum(thread < sink_threads / 32 ? sums[thread] : 0.0f);
  if (thread == 0) dsinks[head] -= sum;
}

// Adds the gradient of the sinks, from delta. Nothing without dsinks.
template <class T>
void launch_sink_gradients(Context& context, const BackwardCall<T>& call, const AttentionBackward& args) {
  if (!args.dsinks) return;
  const auto heads = static_cast<unsigned>(args.q.dim(1));
  sink_kernel<T><<<heads, sink_threads, 0, cuda_stream(context)>>>(call, numbers<float>(args.dsinks));
}

// The number of work items that share the query heads of a KV head, for tiles of `tile_keys` keys and `slots` items
// that run at once: the fewest for which the longest one does not determine the run time.
inline int head_splits(int64_t tokens, int64_t kv_heads, int64_t group, const AttentionShape& shape, int tile_keys,
                       int slots) {
  const int64_t length = shape.window > 0 ? std::min(shape.window + tile_keys, shape.max_length) : shape.max_length;
  const int64_t longest = length / tile_keys + 1;                                           // steps of one head
  const int64_t steps = tokens / tile_keys * (longest + 1) / 2 * kv_heads * group / slots;  // per slot
  int splits = 1;
  while (splits < group && (group + splits - 1) / splits * longest * 10 > steps * 11) ++splits;
  return splits;
}

}  // namespace hone::attention
