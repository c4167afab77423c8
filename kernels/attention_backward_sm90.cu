// attention_backward for bf16 heads of 64 and 128 on Hopper: delta and the list of tiles first, then the walks (attention_backward_walk_sm90.cuh),
// then dq from its sums.
#include "kernels/attention.h"
#include "kernels/attention_backward_walk_sm90.cuh"
#include "kernels/check_shape.h"

namespace hone {
namespace {

using namespace attention_gradients;

constexpr int prepare_threads = 256, finish_threads = 256;
constexpr float log2_e = 1.44269504f;

struct Preparation {
  Tile* tiles;
  int num_tiles, num_sequences, max_rank;
  float *lse_rows, *delta_rows;  // as in Call
  int64_t padded;
  const Value *dout, *out;
  const float* lse;
  int64_t dout_stride, out_stride, lse_stride, tokens;
  int heads;
  const int32_t* offsets;
  int* counters;  // set to zero
  int64_t num_counters;
};

// Sequences in lse and delta start at multiples of 128, far enough apart whatever the lengths.
__device__ int padded_row(int offset, int sequence) { return (offset / tile_rows + sequence) * tile_rows; }

// Tiles by descending rank. One block; within a rank the order is open, nothing depends on it.
__device__ void list_tiles(const Preparation& p) {
  extern __shared__ int places[];  // [max_rank]: tiles of rank i + 1, then where the next one goes
  const auto each_tile = [&](auto body) {
    for (int s = threadIdx.x / 32; s < p.num_sequences; s += prepare_threads / 32) {
      const int begin = p.offsets[s], length = p.offsets[s + 1] - begin, tiles = min((length + tile_rows - 1) / tile_rows, p.max_rank);
      for (int rank = threadIdx.x % 32 + 1; rank <= tiles; rank += 32) body(Tile{begin, length, rank, padded_row(begin, s)});
    }
  };
  for (int i = threadIdx.x; i < p.max_rank; i += prepare_threads) places[i] = 0;
  __syncthreads();
  each_tile([&](const Tile& tile) { atomicAdd(&places[tile.rank - 1], 1); });
  __syncthreads();
  __shared__ int total;
  if (threadIdx.x < 32) {
    int before = 0;
    for (int top = p.max_rank - 1; top >= 0; top -= 32) {
      const int i = top - static_cast<int>(threadIdx.x), count = i >= 0 ? places[i] : 0;
      int sum = count;
      for (int step = 1; step < 32; step *= 2) {
        const int below = __shfl_up_sync(0xffffffffu, sum, step);
        if (static_cast<int>(threadIdx.x) >= step) sum += below;
      }
      if (i >= 0) places[i] = before + sum - count;
      before += __shfl_sync(0xffffffffu, sum, 31);
    }
    total = before;
  }
  __syncthreads();
  each_tile([&](const Tile& tile) { p.tiles[atomicAdd(&places[tile.rank - 1], 1)] = tile; });
  for (int i = total + threadIdx.x; i < p.num_tiles; i += prepare_threads) p.tiles[i] = Tile{};
}

// The first block lists tiles; of the others a warp has one token: delta = dout . out of every head.
template <int dim>
__global__ void __launch_bounds__(prepare_threads) prepare(const __grid_constant__ Preparation p) {
  if (blockIdx.x == 0) return list_tiles(p);
  for (int64_t i = int64_t{blockIdx.x - 1} * prepare_threads + threadIdx.x; i < p.num_counters; i += int64_t{gridDim.x - 1} * prepare_threads)
    p.counters[i] = 0;
  const int64_t token = int64_t{blockIdx.x - 1} * (prepare_threads / 32) + threadIdx.x / 32;
  if (token >= p.tokens) return;
  int s = 0;
  for (int end = p.num_sequences; s + 1 < end;) {  // the last sequence that begins at or before the token
    const int middle = (s + end) / 2;
    (p.offsets[middle] <= token ? s : end) = middle;
  }
  const int begin = p.offsets[s], length = p.offsets[s + 1] - begin, row = padded_row(begin, s) + static_cast<int>(token) - begin;
  constexpr int lanes = dim / 8;  // of a head
  const int lane = threadIdx.x % 32;
  for (int first = 0; first < p.heads; first += 32 / lanes) {
    const int head = first + lane / lanes, column = head * dim + lane % lanes * 8;
    float sum = 0;
    if (head < p.heads) {
      float a[8], b[8];
      load_pack(a, p.dout + token * p.dout_stride + column);
      load_pack(b, p.out + token * p.out_stride + column);
#pragma unroll
      for (int i = 0; i < 8; ++i) sum = fmaf(a[i], b[i], sum);
    }
#pragma unroll
    for (int step = 1; step < lanes; step *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (head < p.heads && lane % lanes == 0) {
      p.lse_rows[head * p.padded + row] = p.lse[token * p.lse_stride + head] * log2_e;
      p.delta_rows[head * p.padded + row] = sum;
    }
  }
  if (token != begin + length - 1) return;
  const int rest = (tile_rows - length % tile_rows) % tile_rows;
  for (int i = lane; i < p.heads * rest; i += 32) {
    p.lse_rows[i / rest * p.padded + row + 1 + i % rest] = INFINITY;
    p.delta_rows[i / rest * p.padded + row + 1 + i % rest] = 0;
  }
}

// dq from its sums: a block has a tile of queries of one head.
template <int dim>
__global__ void __launch_bounds__(finish_threads) finish_queries(const __grid_constant__ Call call) {
  constexpr int queries = Memory<dim>::queries, parts = tile_rows * dim / 4096;  // of 64 x 64 numbers
  const Tile tile = call.tiles[blockIdx.y];
  if (tile.length == 0) return;
  const int head = static_cast<int>(blockIdx.x), query = (tile.rank - 1) * tile_rows, thread = threadIdx.x % 128, lane = thread % 4;
  const float4* from = reinterpret_cast<const float4*>(call.dq_sums) + (head * call.padded + tile.row + query) * (dim / 4) + thread;
#pragma unroll
  for (int part = threadIdx.x / 128; part < parts; part += 2) {
    const int row = query + (dim == 64 ? part * 64 : part / 2 * queries) + thread / 32 * 16 + thread % 32 / 4;
    const int column = head * dim + (dim == 64 ? 0 : part % 2 * 64);
    float4 x[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) x[j] = from[part * 1024 + j * 128];
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int j = 0; j < 8; j += 4) {
        // The four lanes of a row trade numbers until each has 16 bytes of it.
        uint32_t y[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float4 z = x[j + i];
          y[i] = r ? pack_bf16(z.z * call.scale, z.w * call.scale) : pack_bf16(z.x * call.scale, z.y * call.scale);
        }
#pragma unroll
        for (int bit = 1; bit < 4; bit *= 2)
#pragma unroll
          for (int i = 0; i < 4; ++i)
            if (!(i & bit)) {
              const bool high = lane & bit;
              const uint32_t got = __shfl_xor_sync(0xffffffffu, high ? y[i] : y[i | bit], bit);
              (high ? y[i] : y[i | bit]) = got;
            }
        if (row + 8 * r < tile.length)
          *reinterpret_cast<uint4*>(call.dq + int64_t{tile.begin + row + 8 * r} * call.dq_stride + column + (j + lane) * 8) =
              make_uint4(y[0], y[1], y[2], y[3]);
      }
  }
}

// The driver's function, without a link to the driver.
auto map_encoder() {
  using Encode = decltype(&cuTensorMapEncodeTiled);
  static const Encode encode = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
    HONE_CUDA_CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found));
    HONE_CHECK(found == cudaDriverEntryPointSuccess, "cuda: the driver has no cuTensorMapEncodeTiled");
    return reinterpret_cast<Encode>(function);
  }();
  return encode;
}

// Boxes of 64 tokens of one head, 64 columns.
CUtensorMap map_of(const Tensor& x) {
  const cuuint64_t dims[] = {static_cast<cuuint64_t>(x.dim(2)), static_cast<cuuint64_t>(x.dim(1)), static_cast<cuuint64_t>(x.dim(0))};
  const cuuint64_t strides[] = {dims[0] * sizeof(Value), static_cast<cuuint64_t>(x.row_stride) * sizeof(Value)};
  const cuuint32_t box[] = {64, 1, box_rows}, steps[] = {1, 1, 1};
  CUtensorMap map;
  const CUresult code = map_encoder()(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, x.data, dims, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                      CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  HONE_CHECK(code == CUDA_SUCCESS, "op attention_backward: no tensor map for rows of ", x.row_size(), ", ", x.row_stride, " apart (", int{code}, ")");
  return map;
}

void run_checks(const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& dout, const Tensor& out, const Tensor& lse, const Tensor& q,
                const Tensor& k, const Tensor& v, const Tensor& offsets) {
  const int64_t tokens = q.dim(0), heads = q.dim(1), kv_heads = k.dim(1), dim = q.dim(2);
  HONE_CHECK(kv_heads > 0 && heads % kv_heads == 0, "op attention_backward: ", heads, " heads over ", kv_heads, " kv heads");
  HONE_CHECK(offsets.rank == 1 && offsets.dtype == DType::i32 && offsets.dim(0) >= 1, "op attention_backward: offsets has ", offsets.size(),
             " numbers");
  for (const auto& [name, x] : {std::pair{"dq", &dq}, {"dout", &dout}, {"out", &out}})
    check_shape(attention_backward, name, *x, {tokens, heads, dim}, DType::bf16);
  for (const auto& [name, x] : {std::pair{"dk", &dk}, {"dv", &dv}, {"k", &k}, {"v", &v}})
    check_shape(attention_backward, name, *x, {tokens, kv_heads, dim}, DType::bf16);
  check_shape(attention_backward, "lse", lse, {tokens, heads}, DType::f32);
}

template <int dim>
void run_heads(Context& context, Tensor dq, Tensor dk, Tensor dv, Tensor dout, Tensor out, Tensor lse, Tensor q, Tensor k, Tensor v, Tensor offsets,
               AttentionShape shape) {
  const int64_t tokens = q.dim(0), heads = q.dim(1), sequences = offsets.dim(0) - 1;
  const int64_t num_tiles = tokens / tile_rows + sequences, padded = num_tiles * tile_rows;
  const int max_rank = static_cast<int>((std::min(shape.max_length, tokens) + tile_rows - 1) / tile_rows);
  HONE_CHECK(num_tiles < 65536 && max_rank <= 8192, "op attention_backward: ", tokens, " tokens of ", sequences, " sequences");
  const cudaStream_t stream = cuda_stream(context);
  const ScratchScope scope(context);
  Tile* tiles = numbers<Tile>(context.scratch().take(DType::i32, {num_tiles, 4}));
  const Tensor rows = context.scratch().take(DType::f32, {2, heads, padded});
  const int64_t num_counters = heads * padded / Memory<dim>::queries + 1;
  int* counters = numbers<int>(context.scratch().take(DType::i32, {num_counters}));

  const Preparation preparation{.tiles = tiles,
                                .num_tiles = static_cast<int>(num_tiles),
                                .num_sequences = static_cast<int>(sequences),
                                .max_rank = max_rank,
                                .lse_rows = numbers<float>(rows),
                                .delta_rows = numbers<float>(rows) + heads * padded,
                                .padded = padded,
                                .dout = numbers<Value>(dout),
                                .out = numbers<Value>(out),
                                .lse = numbers<float>(lse),
                                .dout_stride = dout.row_stride,
                                .out_stride = out.row_stride,
                                .lse_stride = lse.row_stride,
                                .tokens = tokens,
                                .heads = static_cast<int>(heads),
                                .offsets = numbers<int32_t>(offsets),
                                .counters = counters,
                                .num_counters = num_counters};
  const auto warps = prepare_threads / 32;
  prepare<dim><<<static_cast<unsigned>((tokens + warps - 1) / warps + 1), prepare_threads, max_rank * sizeof(int), stream>>>(preparation);
  check_launch(attention_backward);

  const Call call{.tiles = tiles,
                  .lse = preparation.lse_rows,
                  .delta = preparation.delta_rows,
                  .padded = padded,
                  .dq = numbers<Value>(dq),
                  .dk = numbers<Value>(dk),
                  .dv = numbers<Value>(dv),
                  .dq_stride = dq.row_stride,
                  .dk_stride = dk.row_stride,
                  .dv_stride = dv.row_stride,
                  .group = static_cast<int>(heads / k.dim(1)),
                  .kv_heads = static_cast<int>(k.dim(1)),
                  .window = static_cast<int>(std::min<int64_t>(shape.window, tokens)),
                  .scale = shape.scale,
                  .exponent_scale = shape.scale * log2_e,
                  .dq_sums = numbers<float>(context.scratch().take(DType::f32, {heads, padded, dim})),
                  .turns = counters + 1,
                  .next = counters};
  allow_shared_memory(gradients<dim>, sizeof(Memory<dim>));
  gradients<dim><<<static_cast<unsigned>(num_tiles * call.kv_heads), threads, sizeof(Memory<dim>), stream>>>(map_of(q), map_of(k), map_of(v),
                                                                                                             map_of(dout), call);
  check_launch(attention_backward);
  finish_queries<dim><<<dim3(static_cast<unsigned>(heads), static_cast<unsigned>(num_tiles)), finish_threads, 0, stream>>>(call);
  check_launch(attention_backward);
}

void run(Context& context, Tensor dq, Tensor dk, Tensor dv, Tensor dout, Tensor out, Tensor lse, Tensor q, Tensor k, Tensor v, Tensor offsets,
         AttentionShape shape) {
  run_checks(dq, dk, dv, dout, out, lse, q, k, v, offsets);
  if (q.size() == 0) return;
  (q.dim(2) == 64 ? run_heads<64> : run_heads<128>)(context, dq, dk, dv, dout, out, lse, q, k, v, offsets, shape);
}

bool on_hopper() {
  static const bool hopper = [] {
    int device = 0, major = 0;
    HONE_CUDA_CHECK(cudaGetDevice(&device));
    HONE_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
    return major == 9;
  }();
  return hopper;
}

bool supports(const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& dout, const Tensor& out, const Tensor&, const Tensor& q,
              const Tensor& k, const Tensor& v, const Tensor&, const AttentionShape&) {
  const auto fits = [](const Tensor& x) { return x.dtype == DType::bf16 && packs<Value>(x); };
  return on_hopper() && q.rank == 3 && (q.dim(2) == 64 || q.dim(2) == 128) && fits(dq) && fits(dk) && fits(dv) && fits(dout) && fits(out) &&
         fits(q) && fits(k) && fits(v);
}

[[maybe_unused]] const bool added = attention_backward.add({"sm90", DeviceKind::cuda, run, 20, supports});

}  // namespace
}  // namespace hone
