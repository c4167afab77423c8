// attention_backward for f32, and with a soft-cap of the scores for bf16, too: dk and dv (of_keys = true), then dq
// (of_keys = false). Formulas: backward.cuh. One kernel tiles the query rows and loops over keys (dq), the other tiles
// the keys and loops over the query rows of all heads of the group. No two thread blocks write the same element.
//
// Use       f32 tensors, or bf16 tensors with a soft-cap, on any GPU.
// Tile      8 rows of the own side by 128 rows of the other side. Grid: tiles x KV heads.
// Roles     128 threads. p and ds: one row of the other side per thread. Sums: one or two columns per thread.
// Pipeline  none.
// Smem      static 24 KB: own rows 2 * 8 KB, p and ds 2 * 4 KB.
// Numerics  all dot products and sums are f32 fmaf chains, ascending by column and by row of the other side.
// PDL       none.
// Limits    head dimension up to 256.
#include "kernels/adds_once.h"
#include "kernels/attention/backward/backward.cuh"

namespace hone::attention {
namespace {

constexpr int threads = 128, rows = 8;

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

template <class T>
__device__ float dot(const float* x, const T* y, int dim) {
  float sum = 0;
  for (int d = 0; d < dim; ++d) sum = fmaf(x[d], float(y[d]), sum);
  return sum;
}

template <class T, bool of_keys>
__global__ __launch_bounds__(threads) void plain_kernel(const __grid_constant__ BackwardCall<T> call) {
  constexpr int most_columns = 2;  // columns per thread, for up to 256
  __shared__ float own_first[rows][256], own_second[rows][256], p[rows][threads], ds[rows][threads];
  const AttentionCall<T>& forward = call.forward;
  const int group = forward.group, dim = forward.dim, kv_head = static_cast<int>(blockIdx.y),
            thread = static_cast<int>(threadIdx.x);
  const Tile tile =
      tile_at(forward.offsets, forward.sequences, of_keys ? 1 : group, rows, static_cast<int>(blockIdx.x));
  const Sequence sequence = sequence_of(forward, tile.sequence);
  const int own_begin = tile.first_row, own_end = min(own_begin + rows, sequence.tokens * (of_keys ? 1 : group));
  if (own_begin >= own_end) return;
  const Side<T> queries = query_side(call, sequence.begin, kv_head), keys = key_side(call, sequence.begin, kv_head);
  const Side<T>&own = of_keys ? keys : queries, &other = of_keys ? queries : keys;
  const Range range =
      of_keys ? rows_seeing(forward, sequence.tokens, own_begin, own_end) : keys_seen(forward, own_begin, own_end);
  // Prologue: the own rows go to shared memory.
  for (int i = thread; i < (own_end - own_begin) * dim; i += threads) {
    own_first[i / dim][i % dim] = float(own.first_row(own_begin + i / dim, dim)[i % dim]);
    own_second[i / dim][i % dim] = float(own.second_row(own_begin + i / dim, dim)[i % dim]);
  }
  float first_sum[rows][most_columns] = {}, second_sum[rows][most_columns] = {};
  for (int begin = range.begin; begin < range.end; begin += threads) {
    __syncthreads();  // own rows are loaded; all threads have read p and ds of the tile before
    const int at = begin + thread, end = min(threads, range.end - begin);
    // p and ds of one row of the other side.
    for (int r = 0; r < rows; ++r) {
      const int row = own_begin + r, key = of_keys ? row : at, query = of_keys ? at : row, position = query / group;
      p[r][thread] = ds[r][thread] = 0;
      if (row >= own_end || at >= range.end || key > position || key < first_seen(position, forward.window)) continue;
      const int64_t token = sequence.begin + position, head = kv_head * group + query % group;
      float s = dot(own_first[r], other.first_row(at, dim), dim), slope = 1;
      const float mixed = dot(own_second[r], other.second_row(at, dim), dim);
      if (forward.cap_in > 0) {
        const float t = tanhf(s * forward.cap_in);
        s = forward.cap_out * t;
        slope = 1 - t * t;
      }
      p[r][thread] = weight(s, forward.c, -log2e * call.lse[token * call.lse_stride + head]);
      ds[r][thread] = p[r][thread] * (mixed - call.delta[token * forward.kv_heads * group + head]) * slope;
    }
    __syncthreads();  // p and ds of 128 rows are complete
    // Add them to this thread's columns.
    for (int j = 0; j < end; ++j)
#pragma unroll
      for (int i = 0; i < most_columns; ++i) {
        const int column = thread + i * threads;
        if (column >= dim) continue;
        const float first = float(other.first_row(begin + j, dim)[column]),
                    second = float(other.second_row(begin + j, dim)[column]);
#pragma unroll
        for (int r = 0; r < rows; ++r) {
          first_sum[r][i] = fmaf(ds[r][j], first, first_sum[r][i]);
          if (of_keys) second_sum[r][i] = fmaf(p[r][j], second, second_sum[r][i]);
        }
      }
  }
#pragma unroll
  // Epilogue: write the gradients.
  for (int r = 0; r < rows; ++r) {
    const int row = own_begin + r;
    if (row >= own_end) continue;
    const int64_t token = sequence.begin + row / own.divisor;
    const int head = own.head + row % own.divisor;
#pragma unroll
    for (int i = 0; i < most_columns; ++i) {
      const int column = head * dim + thread + i * threads;
      if (thread + i * threads >= dim) continue;
      (of_keys ? call.dk + token * call.dk_stride : call.dq + token * call.dq_stride)[column] =
          T(first_sum[r][i] * forward.scale);
      if (of_keys) call.dv[token * call.dv_stride + column] = T(second_sum[r][i]);
    }
  }
}

template <bool of_keys, class T>
void launch(Context& context, const BackwardCall<T>& call) {
  const AttentionCall<T>& forward = call.forward;
  const dim3 grid(
      static_cast<unsigned>(tile_bound(forward.tokens, forward.sequences, of_keys ? 1 : forward.group, rows)),
      static_cast<unsigned>(forward.kv_heads));
  plain_kernel<T, of_keys><<<grid, threads, 0, cuda_stream(context)>>>(call);
}

void backward(Context& context, const AttentionBackward& args) {
  const ScratchScope scope(context);
  with_storage(attention_backward, args.q.dtype, [&](auto type) {
    const auto call = backward_call_of<decltype(type)>(context, args);
    if (call.forward.tokens == 0) return;
    launch_delta<1>(context, call);
    launch_sink_gradients(context, call, args);
    launch<true>(context, call);
    launch<false>(context, call);
    check_launch(attention_backward);
  });
}

// The gradient of the sinks gets one addition in every CUDA body (sink_kernel).
[[maybe_unused]] const bool added =
    attention_backward.add({"plain", DeviceKind::cuda, backward, 0,
                            [](const AttentionBackward& args) {
                              const bool capped = args.q.dtype == DType::bf16 && args.shape.softcap > 0;
                              return (args.q.dtype == DType::f32 || capped) && args.q.dim(2) <= 256;
                            }}) &&
    declare_adds_once(attention_backward, DeviceKind::cuda);

}  // namespace
}  // namespace hone::attention
