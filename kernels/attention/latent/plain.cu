// Latent attention for f32, and for bf16 rows that are not 16-byte aligned: forward, paged and backward.
//
// Use       f32 tensors, or bf16 tensors that mma.cu does not take, on any GPU.
// Tile      forward and dq: 8 query rows (numbering of call.cuh) by 128 keys. drows: 8 keys by 128 query rows. Grid:
//           tiles of the own side.
// Roles     128 threads. Scores: one row of the other side per thread. Softmax: 4 warps, 2 rows each. Sums: columns
//           thread, thread + 128, ... of all own rows.
// Pipeline  none.
// Smem      dynamic: the own rows, 8 * W * 4 bytes, with dq also dout, 8 * R * 4. Static: p and ds, 4 or 8 KB.
// Numerics  online softmax over blocks of 128 keys aligned to position 0, in ascending order; every sum is an fmaf
//           chain in ascending order of columns, keys or query rows. drows adds p * dout, then ds * q, per query row.
// PDL       none.
// Limits    W up to 1152.
#include "kernels/attention/latent/call.cuh"
#include "kernels/cuda/launch_plan.h"

namespace hone::attention {
namespace {

constexpr int threads = 128, rows = 8, max_width = 1152;

// dot product of `dim` numbers of a shared and a global row.
template <class T>
__device__ float dot(const float* x, const T* y, int dim) {
  float sum = 0;
  for (int d = 0; d < dim; ++d) sum = fmaf(x[d], to_f32(y[d]), sum);
  return sum;
}

// Copies rows [first, end) of a matrix of heads to shared memory as f32; the rest is zero.
template <class T>
__device__ void load_own(float* to, const T* from, int64_t stride, int width, int group, int begin, int first,
                         int end) {
  for (int i = static_cast<int>(threadIdx.x); i < rows * width; i += threads) {
    const int row = first + i / width, d = i % width;
    to[i] = row < end ? to_f32(from[(int64_t{begin} + row / group) * stride + int64_t{row % group} * width + d]) : 0.0f;
  }
}

// Softmax of one row of 128 masked scores by a warp: scores become weights. Returns the factor of earlier sums.
__device__ float soften(float* p, float& m, float& l, float c, int lane) {
  float most = p[lane];
#pragma unroll
  for (int i = 32; i < block_keys; i += 32) most = fmaxf(most, p[lane + i]);
  const float before = m, now = fmaxf(before, warp_max(most)), base = base_of(now), shift = shift_of(base, c);
  float sum = 0;
#pragma unroll
  for (int i = 0; i < block_keys; i += 32) {
    p[lane + i] = weight(p[lane + i], c, shift);
    sum += p[lane + i];
  }
  sum = warp_sum(sum);
  const float factor = rescaling(before, base, c);
  __syncwarp();  // all lanes have read m and l
  if (lane == 0) {
    m = now;
    l = fmaf(l, factor, sum);
  }
  return factor;
}

template <class T, int C>  // C: columns per thread
__global__ void __launch_bounds__(threads) forward_kernel(const __grid_constant__ LatentCall<T> call) {
  extern __shared__ __align__(16) float own[];
  __shared__ float p[rows][block_keys], m[rows], l[rows], alpha[rows];
  const AttentionCall<T>& of = call.of;
  const Tile tile = tile_at(of.offsets, of.sequences, of.group, rows, static_cast<int>(gridDim.x - 1 - blockIdx.x));
  const Sequence sequence = sequence_of(of, tile.sequence);
  const int tile_end = min(tile.first_row + rows, sequence.tokens * of.group);
  if (tile.first_row >= tile_end) return;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
  const auto position = [&](int row) { return sequence.position + row / of.group; };
  load_own(own, of.q, of.q_stride, of.dim, of.group, sequence.begin, tile.first_row, tile_end);
  if (thread < rows) {
    m[thread] = -INFINITY;
    l[thread] = 0;
  }
  float o[rows][C] = {};
  // Main loop over key blocks.
  const int last_block = position(tile_end - 1) / block_keys;
  for (int block = first_seen(position(tile.first_row), of.window) / block_keys; block <= last_block; ++block) {
    __syncthreads();  // q is complete; all threads have read p and alpha of the block before
    const int key = block * block_keys + thread;
    const T* const at =
        key < sequence.length ? of.k + slot_of(of, sequence, tile.sequence, key) * of.k_stride : nullptr;
    for (int r = 0; r < rows; ++r) {
      const int last = position(min(tile.first_row + r, tile_end - 1));
      const bool seen = at && key <= last && key >= first_seen(last, of.window);
      p[r][thread] = seen ? dot(own + r * of.dim, at, of.dim) : -INFINITY;
    }
    __syncthreads();  // p holds the masked scores of all keys
    for (int r = warp; r < rows; r += threads / 32) {
      const float factor = soften(p[r], m[r], l[r], of.c, lane);
      if (lane == 0) alpha[r] = factor;
    }
    __syncthreads();  // weights and alpha are complete
    const int end = min(block_keys, sequence.length - block * block_keys);
#pragma unroll
    for (int r = 0; r < rows; ++r)
#pragma unroll
      for (int i = 0; i < C; ++i) o[r][i] *= alpha[r];
    for (int j = 0; j < end; ++j) {
      const T* const value = of.k + slot_of(of, sequence, tile.sequence, block * block_keys + j) * of.k_stride;
#pragma unroll
      for (int i = 0; i < C; ++i) {
        const int d = thread + i * threads;
        const float x = d < call.rank ? to_f32(value[d]) : 0.0f;
#pragma unroll
        for (int r = 0; r < rows; ++r) o[r][i] = fmaf(p[r][j], x, o[r][i]);
      }
    }
  }
  __syncthreads();  // l of the last block is complete
  // Epilogue: out and lse.
#pragma unroll
  for (int r = 0; r < rows; ++r) {
    const int row = tile.first_row + r;
    if (row >= tile_end) break;
    const int64_t token = int64_t{sequence.begin} + row / of.group;
    T* const out = of.out + token * of.out_stride + int64_t{row % of.group} * call.rank;
#pragma unroll
    for (int i = 0; i < C; ++i)
      if (thread + i * threads < call.rank) out[thread + i * threads] = from_f32<T>(o[r][i] * reciprocal(l[r]));
    if (of.lse && thread == 0) of.lse[token * of.lse_stride + row % of.group] = log_sum(m[r], l[r], of.scale);
  }
}

template <class T, int C>
__global__ void __launch_bounds__(threads) dq_kernel(const __grid_constant__ LatentBackwardCall<T> call) {
  extern __shared__ __align__(16) float own[];
  __shared__ float ds[rows][block_keys];
  const AttentionCall<T>& of = call.forward.of;
  const int rank = call.forward.rank;
  const Tile tile = tile_at(of.offsets, of.sequences, of.group, rows, static_cast<int>(blockIdx.x));
  const Sequence sequence = sequence_of(of, tile.sequence);
  const int tile_end = min(tile.first_row + rows, sequence.tokens * of.group);
  if (tile.first_row >= tile_end) return;
  float* const dout = own + rows * of.dim;
  const int thread = static_cast<int>(threadIdx.x);
  load_own(own, of.q, of.q_stride, of.dim, of.group, sequence.begin, tile.first_row, tile_end);
  load_own(dout, call.dout, call.dout_stride, rank, of.group, sequence.begin, tile.first_row, tile_end);
  float sum[rows][C] = {};
  const int last_block = (tile_end - 1) / of.group / block_keys;
  for (int block = first_seen(tile.first_row / of.group, of.window) / block_keys; block <= last_block; ++block) {
    __syncthreads();  // the own rows are complete; all threads have read ds of the block before
    const int key = block * block_keys + thread;
    const T* const at = of.k + (int64_t{sequence.begin} + min(key, sequence.length - 1)) * of.k_stride;
    for (int r = 0; r < rows; ++r) {
      const int row = tile.first_row + r, position = row / of.group;
      float grad = 0;
      if (row < tile_end && key <= position && key >= first_seen(position, of.window)) {
        const int64_t token = int64_t{sequence.begin} + position;
        const float s = dot(own + r * of.dim, at, of.dim), dp = dot(dout + r * rank, at, rank);
        const float p = exp_approx(fmaf(s, of.scale, -call.lse[token * call.lse_stride + row % of.group]));
        grad = p * (dp - call.delta[token * of.group + row % of.group]);
      }
      ds[r][thread] = grad;
    }
    __syncthreads();  // ds is complete
    const int end = min(block_keys, sequence.length - block * block_keys);
    for (int j = 0; j < end; ++j) {
      const T* const row_at = of.k + (int64_t{sequence.begin} + block * block_keys + j) * of.k_stride;
#pragma unroll
      for (int i = 0; i < C; ++i) {
        const int d = thread + i * threads;
        const float x = d < of.dim ? to_f32(row_at[d]) : 0.0f;
#pragma unroll
        for (int r = 0; r < rows; ++r) sum[r][i] = fmaf(ds[r][j], x, sum[r][i]);
      }
    }
  }
  // Epilogue.
#pragma unroll
  for (int r = 0; r < rows; ++r) {
    const int row = tile.first_row + r;
    if (row >= tile_end) break;
    T* const to =
        call.dq + (int64_t{sequence.begin} + row / of.group) * call.dq_stride + int64_t{row % of.group} * of.dim;
#pragma unroll
    for (int i = 0; i < C; ++i)
      if (thread + i * threads < of.dim) to[thread + i * threads] = from_f32<T>(sum[r][i] * of.scale);
  }
}

template <class T, int C>
__global__ void __launch_bounds__(threads) drows_kernel(const __grid_constant__ LatentBackwardCall<T> call) {
  extern __shared__ __align__(16) float own[];
  __shared__ float p[rows][threads], ds[rows][threads];
  const AttentionCall<T>& of = call.forward.of;
  const int rank = call.forward.rank;
  const Tile tile = tile_at(of.offsets, of.sequences, 1, rows, static_cast<int>(blockIdx.x));
  const Sequence sequence = sequence_of(of, tile.sequence);
  const int first_key = tile.first_row, tile_end = min(first_key + rows, sequence.tokens);
  if (first_key >= tile_end) return;
  const int thread = static_cast<int>(threadIdx.x);
  load_own(own, of.k, of.k_stride, of.dim, 1, sequence.begin, first_key, tile_end);
  float sum[rows][C] = {};
  const int end = (of.window > 0 ? min(sequence.tokens, tile_end - 1 + of.window) : sequence.tokens) * of.group;
  for (int first = first_key * of.group; first < end; first += threads) {
    __syncthreads();  // the own rows are complete; all threads have read p and ds of the rows before
    const int row = min(first + thread, end - 1), position = row / of.group, head = row % of.group;
    const int64_t token = int64_t{sequence.begin} + position;
    const T *const q = of.q + token * of.q_stride + int64_t{head} * of.dim, *const dout = call.dout +
                                                                                          token * call.dout_stride +
                                                                                          int64_t{head} * rank;
    for (int r = 0; r < rows; ++r) {
      const int key = first_key + r;
      float weight_of_key = 0, grad = 0;
      if (first + thread < end && key < tile_end && key <= position && key >= first_seen(position, of.window)) {
        const float s = dot(own + r * of.dim, q, of.dim), dp = dot(own + r * of.dim, dout, rank);
        weight_of_key = exp_approx(fmaf(s, of.scale, -call.lse[token * call.lse_stride + head]));
        grad = weight_of_key * (dp - call.delta[token * of.group + head]) * of.scale;
      }
      p[r][thread] = weight_of_key;
      ds[r][thread] = grad;
    }
    __syncthreads();  // p and ds are complete
    for (int j = 0; j < min(threads, end - first); ++j) {
      const int64_t of_token = int64_t{sequence.begin} + (first + j) / of.group, of_head = (first + j) % of.group;
#pragma unroll
      for (int i = 0; i < C; ++i) {
        const int d = thread + i * threads;
        const float x = d < of.dim ? to_f32(of.q[of_token * of.q_stride + of_head * of.dim + d]) : 0.0f,
                    y = d < rank ? to_f32(call.dout[of_token * call.dout_stride + of_head * rank + d]) : 0.0f;
#pragma unroll
        for (int r = 0; r < rows; ++r) sum[r][i] = fmaf(ds[r][j], x, fmaf(p[r][j], y, sum[r][i]));
      }
    }
  }
  // Epilogue.
#pragma unroll
  for (int r = 0; r < rows; ++r) {
    if (first_key + r >= tile_end) break;
    T* const to = call.drows + (int64_t{sequence.begin} + first_key + r) * call.drows_stride;
#pragma unroll
    for (int i = 0; i < C; ++i)
      if (thread + i * threads < of.dim) to[thread + i * threads] = from_f32<T>(sum[r][i]);
  }
}

// Calls body(columns per thread) for rows of this width.
template <class Body>
void with_columns(int width, Body body) {
  if (width <= threads) return body(std::integral_constant<int, 1>{});
  if (width <= 2 * threads) return body(std::integral_constant<int, 2>{});
  if (width <= 5 * threads) return body(std::integral_constant<int, 5>{});
  body(std::integral_constant<int, 9>{});
}

template <class T>
void launch_forward(Context& context, const OpBase& op, const LatentCall<T>& call) {
  if (call.of.tokens == 0) return;
  const auto grid = static_cast<unsigned>(tile_bound(call.of.tokens, call.of.sequences, call.of.group, rows));
  const size_t bytes = rows * sizeof(float) * static_cast<size_t>(call.of.dim);
  with_columns(call.of.dim, [&](auto columns) {
    forward_kernel<T, columns()><<<grid, threads, bytes, cuda_stream(context)>>>(call);
  });
  check_launch(op);
}

void forward(Context& context, const LatentAttentionForward& args) {
  with_storage(latent_attention_forward, args.q.dtype, [&](auto type) {
    launch_forward(context, latent_attention_forward, latent_call_of<decltype(type)>(args));
  });
}
void paged(Context& context, const LatentAttentionPaged& args) {
  with_storage(latent_attention_paged, args.q.dtype, [&](auto type) {
    launch_forward(context, latent_attention_paged, latent_call_of<decltype(type)>(args));
  });
}

void backward(Context& context, const LatentAttentionBackward& args) {
  const ScratchScope scope(context);
  with_storage(latent_attention_backward, args.q.dtype, [&](auto type) {
    using T = decltype(type);
    const LatentBackwardCall<T> call = latent_backward_call_of<T>(context, args);
    const AttentionCall<T>& of = call.forward.of;
    if (of.tokens == 0) return;
    launch_latent_delta(context, call);
    const size_t row_bytes = rows * sizeof(float) * static_cast<size_t>(of.dim),
                 query_bytes = row_bytes + rows * sizeof(float) * static_cast<size_t>(call.forward.rank);
    with_columns(of.dim, [&](auto columns) {
      allow_shared_memory(dq_kernel<T, columns()>, query_bytes);
      dq_kernel<T, columns()><<<static_cast<unsigned>(tile_bound(of.tokens, of.sequences, of.group, rows)), threads,
                                query_bytes, cuda_stream(context)>>>(call);
      drows_kernel<T, columns()><<<static_cast<unsigned>(tile_bound(of.tokens, of.sequences, 1, rows)), threads,
                                   row_bytes, cuda_stream(context)>>>(call);
    });
  });
  check_launch(latent_attention_backward);
}

bool takes(const Tensor& q) { return (q.dtype == DType::f32 || q.dtype == DType::bf16) && q.dim(2) <= max_width; }

[[maybe_unused]] const bool added =
    latent_attention_forward.add(
        {"plain", DeviceKind::cuda, forward, 0, [](const LatentAttentionForward& args) { return takes(args.q); }}) &&
    latent_attention_paged.add(
        {"plain", DeviceKind::cuda, paged, 0, [](const LatentAttentionPaged& args) { return takes(args.q); }}) &&
    latent_attention_backward.add(
        {"plain", DeviceKind::cuda, backward, 0, [](const LatentAttentionBackward& args) { return takes(args.q); }});

void plan_launches(const DeviceLimits&, LaunchPlans& out) {
  constexpr size_t most_bytes = size_t{rows} * sizeof(float) * 2 * max_width, static_bytes = 4096;
  out.add("dq_kernel f32", dq_kernel<float, 9>, threads, most_bytes, static_bytes);
  out.add("dq_kernel bf16", dq_kernel<__nv_bfloat16, 9>, threads, most_bytes, static_bytes);
}
[[maybe_unused]] const bool planned = launch_plans().add("latent_attention_backward.plain", plan_launches);

}  // namespace
}  // namespace hone::attention
