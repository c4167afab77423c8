#pragma once
// Common parts of the portable backward bodies of attention, and the kernel that computes delta = dout . out.
//
// With p_ij = exp(scale * q_i . k_j - lse_i) and delta_i = dout_i . out_i:
//   dv_j = sum over i of p_ij dout_i,  ds_ij = p_ij (dout_i . v_j - delta_i),  dq_i = scale * sum over j of ds_ij k_j,
//   dk_j = scale * sum over i of ds_ij q_i.
// One kernel tiles the query rows and loops over keys (dq). Another tiles the keys and loops over query rows of all
// heads of the group (dk, dv). Every sum has one order, and no two thread blocks write the same element.
//
// Use       first launch of plain.cu and mma.cu.
// Tile      one (token, head) pair per 8 lanes, 32 pairs per block of 256 threads.
// Roles     all threads alike.
// Pipeline  none.
// Smem      none.
// Numerics  a lane sums vectors of N elements, 8 N apart, in ascending order (f32 fmaf); then a butterfly over 8 lanes.
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

// One operand side: the query rows (q, dout) or the keys (k, v) of a sequence and KV head.
template <class T>
struct Side {
  const T *first, *second;
  int64_t first_stride, second_stride;
  int begin, divisor, head;  // row i: token begin + i / divisor, head (head + i % divisor)

  __device__ const T* first_row(int i, int dim) const {
    return first + int64_t{begin + i / divisor} * first_stride + (head + i % divisor) * dim;
  }
  __device__ const T* second_row(int i, int dim) const {
    return second + int64_t{begin + i / divisor} * second_stride + (head + i % divisor) * dim;
  }
};
template <class T>
__device__ Side<T> query_side(const BackwardCall<T>& call, int begin, int kv_head) {
  return {call.forward.q, call.dout,          call.forward.q_stride,       call.dout_stride,
          begin,          call.forward.group, kv_head * call.forward.group};
}
template <class T>
__device__ Side<T> key_side(const BackwardCall<T>& call, int begin, int kv_head) {
  return {call.forward.k, call.forward.v, call.forward.k_stride, call.forward.v_stride, begin, 1, kv_head};
}

// rows_seeing(): the query rows that see keys [begin, end). keys_seen(): the keys that query rows [begin, end) see.
struct Range {
  int begin, end;
};
template <class T>
__device__ Range rows_seeing(const AttentionCall<T>& call, int tokens, int begin, int end) {
  return {begin * call.group, (call.window > 0 ? min(tokens, end - 1 + call.window) : tokens) * call.group};
}
template <class T>
__device__ Range keys_seen(const AttentionCall<T>& call, int begin, int end) {
  return {first_seen(begin / call.group, call.window), (end - 1) / call.group + 1};
}

}  // namespace hone::attention
