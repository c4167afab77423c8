// attention_forward and attention_paged for f32, and with a soft-cap of the scores for bf16, too.
//
// Use       f32 tensors, or bf16 tensors with a soft-cap, on any GPU.
// Tile      16 rows (numbering of call.cuh) by key blocks of 128. Grid: row tiles x KV heads, long tiles first.
// Roles     128 threads. Scores: one key per thread. Softmax: 4 warps, 4 rows each. p . v: one column per thread.
// Pipeline  none.
// Smem      static: q 16 * D * 4, p 8 KB, row statistics 320 bytes: 12, 16 or 24 KB for D = 64, 128, 256.
// Numerics  numerics.cuh with f32 operands. s and o are fmaf chains in ascending order of columns and of keys. The
//           soft-cap is applied to s. bf16 operands are converted; p stays f32.
// PDL       none.
// Limits    head dimension up to 256.
#include "kernels/attention/call.cuh"

namespace hone::attention {
namespace {

constexpr int threads = block_keys, rows = 16;

// Sum of one row's weights. Lane i adds elements i, i + 32, i + 64, i + 96 in this order; then the lanes are added.
__device__ float row_sum(const float* p, int lane) {
  float sum = p[lane];
#pragma unroll
  for (int i = 32; i < block_keys; i += 32) sum += p[lane + i];
  return warp_sum(sum);
}
__device__ float row_max(const float* s, int lane) {
  float most = s[lane];
#pragma unroll
  for (int i = 32; i < block_keys; i += 32) most = fmaxf(most, s[lane + i]);
  return warp_max(most);
}

template <class T, int D>  // D: dim rounded up
__global__ __launch_bounds__(threads) void plain_kernel(const __grid_constant__ AttentionCall<T> call) {
  constexpr int sums =
      rows * D / threads;  // sums per thread; sum i: row (thread + i * threads) / D, column (thread + i * threads) % D
  __shared__ __align__(16) float q[rows][D], p[rows][block_keys];
  __shared__ float m[rows], l[rows], alpha[rows], total_m[rows], total_l[rows];
  const Tile tile =
      tile_at(call.offsets, call.sequences, call.group, rows, static_cast<int>(gridDim.x - 1 - blockIdx.x));
  const Sequence sequence = sequence_of(call, tile.sequence);
  const int tile_end = min(tile.first_row + rows, sequence.tokens * call.group);
  if (tile.first_row >= tile_end) return;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32,
            kv_head = static_cast<int>(blockIdx.y);
  const auto position = [&](int row) { return sequence.position + row / call.group; };
  const auto head = [&](int row) { return kv_head * call.group + row % call.group; };
  const auto token = [&](int row) { return int64_t{sequence.begin} + row / call.group; };

  // Load q. Rows past the tile and columns past the head are zero.
  for (int i = thread; i < rows * D; i += threads) {
    const int row = tile.first_row + i / D, d = i % D;
    const bool inside = row < tile_end && d < call.dim;
    q[i / D][d] = inside ? float(call.q[token(row) * call.q_stride + head(row) * call.dim + d]) : 0.0f;
  }
  if (thread < rows) {
    m[thread] = -INFINITY;
    l[thread] = 0;
  }
  float o[sums], total[sums];
#pragma unroll
  for (int i = 0; i < sums; ++i) o[i] = total[i] = 0;
  bool merges = false;
  // Merges the split into the total. All threads take part: the barriers separate reads of m from writes.
  const auto close_split = [&] {
    if (!merges) return;
#pragma unroll
    for (int i = 0; i < sums; ++i) {
      const int row = (thread + i * threads) / D;
      o[i] = merged(total[i], o[i], merge_factors(total_m[row], m[row], call.c));
    }
    __syncthreads();  // all threads have read m and total_m
    if (thread < rows) {
      const MergeFactors factors = merge_factors(total_m[thread], m[thread], call.c);
      m[thread] = factors.m;
      l[thread] = merged(total_l[thread], l[thread], factors);
    }
    __syncthreads();  // m and l of the merged total are complete
  };

  const int block_begin = first_seen(position(tile.first_row), call.window) / block_keys,
            block_end = position(tile_end - 1) / block_keys + 1;
  // Main loop over key blocks.
  for (int block = block_begin; block < block_end; ++block) {
    __syncthreads();  // all threads have read p and alpha of the block before
    if (block % split_blocks == 0 && block > block_begin) {
      close_split();
      merges = true;
#pragma unroll
      for (int i = 0; i < sums; ++i) {
        total[i] = o[i];
        o[i] = 0;
      }
      if (thread < rows) {
        total_m[thread] = m[thread];
        total_l[thread] = l[thread];
        m[thread] = -INFINITY;
        l[thread] = 0;
      }
      __syncthreads();  // the totals are saved, m and l are reset
    }
    // Scores of one key against the 16 rows.
    const int key = block * block_keys + thread;
    float s[rows] = {};
    if (key < sequence.length) {
      const T* const k = call.k + slot_of(call, sequence, tile.sequence, key) * call.k_stride + kv_head * call.dim;
      for (int d = 0; d < call.dim; d += 4) {
        float part[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) part[i] = d + i < call.dim ? float(k[d + i]) : 0.0f;
#pragma unroll
        for (int r = 0; r < rows; ++r) {
          const float4 query = *reinterpret_cast<const float4*>(&q[r][d]);
          s[r] = fmaf(query.w, part[3], fmaf(query.z, part[2], fmaf(query.y, part[1], fmaf(query.x, part[0], s[r]))));
        }
      }
    }
    if (call.cap_in > 0)
#pragma unroll
      for (int r = 0; r < rows; ++r) s[r] = call.cap_out * tanhf(s[r] * call.cap_in);
#pragma unroll
    for (int r = 0; r < rows; ++r) {
      const int row = min(tile.first_row + r, tile_end - 1), last = position(row);
      p[r][thread] = key <= last && key >= first_seen(last, call.window) ? s[r] : -INFINITY;
    }
    __syncthreads();  // p holds the masked scores of all keys
    // Softmax of one row per warp.
    for (int r = warp; r < rows; r += threads / 32) {
      const float before = m[r], now = fmaxf(before, row_max(p[r], lane)), base = base_of(now),
                  shift = shift_of(base, call.c);
      for (int i = lane; i < block_keys; i += 32) p[r][i] = weight(p[r][i], call.c, shift);
      __syncwarp();
      const float factor = rescaling(before, base, call.c), sum = row_sum(p[r], lane);
      if (lane == 0) {
        m[r] = now;
        l[r] = fmaf(l[r], factor, sum);
        alpha[r] = factor;
      }
      __syncwarp();
    }
    __syncthreads();  // weights, alpha, m and l are complete
#pragma unroll
    for (int i = 0; i < sums; ++i) o[i] *= alpha[(thread + i * threads) / D];
    const int end = min(block_keys, sequence.length - block * block_keys);
    for (int j = 0; j < end; ++j) {
      const T* const v =
          call.v + slot_of(call, sequence, tile.sequence, block * block_keys + j) * call.v_stride + kv_head * call.dim;
      float value[2];
#pragma unroll
      for (int i = 0; i < 2; ++i)
        value[i] = (thread + i * threads) % D < call.dim ? float(v[(thread + i * threads) % D]) : 0.0f;
#pragma unroll
      for (int i = 0; i < sums; ++i)
        o[i] = fmaf(p[(thread + i * threads) / D][j], value[D > threads ? i % 2 : 0], o[i]);
    }
  }
  __syncthreads();  // all threads have read alpha of the last block
  close_split();
#pragma unroll
  // Epilogue: out and lse.
  for (int i = 0; i < sums; ++i) {
    const int r = (thread + i * threads) / D, row = tile.first_row + r, d = (thread + i * threads) % D;
    if (row < tile_end && d < call.dim)
      call.out[token(row) * call.out_stride + head(row) * call.dim + d] =
          T(o[i] * end_of_row(call, head(row), m[r], l[r]).inverse);
  }
  const int row = tile.first_row + thread;
  if (call.lse && thread < rows && row < tile_end)
    call.lse[token(row) * call.lse_stride + head(row)] = end_of_row(call, head(row), m[thread], l[thread]).lse;
}

template <class T>
void launch(Context& context, const OpBase& op, const AttentionCall<T>& call) {
  if (call.tokens == 0) return;
  const dim3 grid(static_cast<unsigned>(tile_bound(call.tokens, call.sequences, call.group, rows)),
                  static_cast<unsigned>(call.kv_heads));
  const auto run = [&](auto width) { plain_kernel<T, width()><<<grid, threads, 0, cuda_stream(context)>>>(call); };
  if (call.dim <= 64)
    run(std::integral_constant<int, 64>{});
  else if (call.dim <= 128)
    run(std::integral_constant<int, 128>{});
  else
    run(std::integral_constant<int, 256>{});
  check_launch(op);
}

void forward(Context& context, const AttentionForward& args) {
  with_storage(attention_forward, args.q.dtype, [&](auto type) {
    launch(context, attention_forward, call_of<decltype(type)>(attention_forward, args));
  });
}
void paged(Context& context, const AttentionPaged& args) {
  with_storage(attention_paged, args.q.dtype, [&](auto type) {
    launch(context, attention_paged, paged_call_of<decltype(type)>(attention_paged, args));
  });
}

bool takes(const Tensor& q, const Tensor& k, const AttentionShape& shape) {
  const bool number = q.dtype == DType::f32 || (q.dtype == DType::bf16 && shape.softcap > 0);
  return number && k.dtype == q.dtype && q.dim(2) <= 256;
}

[[maybe_unused]] const bool added =
    attention_forward.add({"plain", DeviceKind::cuda, forward, 0,
                           [](const AttentionForward& args) { return takes(args.q, args.k, args.shape); }}) &&
    attention_paged.add({"plain", DeviceKind::cuda, paged, 0,
                         [](const AttentionPaged& args) { return takes(args.q, args.cache.k, args.shape); }});

}  // namespace
}  // namespace hone::attention
