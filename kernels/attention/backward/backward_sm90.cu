// attention_backward for bf16 on Hopper: the op, and the kernels before and after the main one (gemms_sm90.cuh).
// `prepare` computes delta and the tile list. `finish` turns the f32 sums into dq, and into dk and dv if the heads of a
// group were split.
//
// Use       bf16, head dimension 64 or 128, compute capability 9.0.
// Tile      prepare: one token per warp; block 0 builds the list. finish: 128 rows of one head per block; grid: heads
//           (plus 2 KV heads if split) x tiles.
// Roles     256 threads, all alike in both kernels; in finish a warpgroup owns parts of 64 x 64 elements.
// Pipeline  none in both.
// Smem      prepare: dynamic, 4 bytes per tile of the longest sequence (at most 32 KB). finish: none.
// Numerics  delta: f32 fmaf over 8 columns per lane, then a butterfly. finish: split sums in ascending order, scaled
//           and rounded to bf16 once. The order of the list within a rank is open; no result depends on it.
// PDL       prepare: plain launch, triggers dependents at the start. finish: waits per block: the blocks of dq spin on
//           the turn counters of their queries; those of dk and dv, and the last row of the grid, call griddep_wait().
// Limits    sm_90a; rows 16-byte aligned; fewer than 65,536 tiles, at most 8,192 tiles per sequence.
#include "kernels/attention/attention.h"
#include "kernels/attention/backward/backward.cuh"
#include "kernels/attention/backward/gemms_sm90.cuh"
#include "kernels/check_shape.h"
#include "kernels/cuda/pdl.cuh"
#include "kernels/cuda/sanitizer.h"
#include "kernels/cuda/tensor_map.cuh"

namespace hone {
namespace {

using namespace attention_gradients;

constexpr int prepare_threads = 256, finish_threads = 256;
constexpr float log2_e = 1.44269504f;

struct Preparation {
  Tile* tiles;
  int num_tiles, num_sequences, max_rank;
  float *lse_rows, *delta_rows;  // layout of Call::lse and Call::delta
  int64_t padded;
  const Value *dout, *out;
  const float* lse;
  int64_t dout_stride, out_stride, lse_stride, tokens;
  int heads;
  const int32_t* offsets;
  int* counters;  // the kernel zeroes them
  int64_t num_counters;
};

// lse and delta rows: sequences start at multiples of 128, far enough apart for any lengths.
__device__ int padded_row(int offset, int sequence) { return (offset / tile_rows + sequence) * tile_rows; }

// Lists the tiles by descending rank. One thread block. The order within a rank is open; no result depends on it.
__device__ void list_tiles(const Preparation& p) {
  extern __shared__ int places[];  // [max_rank]: number of tiles of rank i + 1, then the list index of the next one
  const auto each_tile = [&](auto body) {
    for (int s = threadIdx.x / 32; s < p.num_sequences; s += prepare_threads / 32) {
      const int begin = p.offsets[s], length = p.offsets[s + 1] - begin,
                tiles = min((length + tile_rows - 1) / tile_rows, p.max_rank);
      for (int rank = threadIdx.x % 32 + 1; rank <= tiles; rank += 32)
        body(Tile{begin, length, rank, padded_row(begin, s)});
    }
  };
  // Count the tiles of each rank.
  for (int i = threadIdx.x; i < p.max_rank; i += prepare_threads) places[i] = 0;
  __syncthreads();  // counters are zero
  each_tile([&](const Tile& tile) { atomicAdd(&places[tile.rank - 1], 1); });
  __syncthreads();  // counts are complete
  // Warp 0 turns counts into start positions, highest rank first.
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
  __syncthreads();  // positions and total are complete
  each_tile([&](const Tile& tile) { p.tiles[atomicAdd(&places[tile.rank - 1], 1)] = tile; });
  for (int i = total + threadIdx.x; i < p.num_tiles; i += prepare_threads) p.tiles[i] = Tile{};
}

// Block 0 lists the tiles. In the other blocks a warp computes delta = dout . out of one token for every head.
template <int dim>
__global__ void __launch_bounds__(prepare_threads) prepare(const __grid_constant__ Preparation p) {
  griddep_launch_dependents();
  if (blockIdx.x == 0) return list_tiles(p);
  for (int64_t i = int64_t{blockIdx.x - 1} * prepare_threads + threadIdx.x; i < p.num_counters;
       i += int64_t{gridDim.x - 1} * prepare_threads)
    p.counters[i] = 0;
  const int64_t token = int64_t{blockIdx.x - 1} * (prepare_threads / 32) + threadIdx.x / 32;
  if (token >= p.tokens) return;
  // The token's sequence.
  int s = 0;
  for (int end = p.num_sequences; s + 1 < end;) {  // find the last sequence that begins at or before the token
    const int middle = (s + end) / 2;
    (p.offsets[middle] <= token ? s : end) = middle;
  }
  const int begin = p.offsets[s], length = p.offsets[s + 1] - begin,
            row = padded_row(begin, s) + static_cast<int>(token) - begin;
  // delta and lse of all heads.
  constexpr int lanes = dim / 8;  // lanes per head
  const int lane = threadIdx.x % 32;
  for (int first = 0; first < p.heads; first += 32 / lanes) {
    const int head = first + lane / lanes, column = head * dim + lane % lanes * 8;
    float sum = 0;
    if (head < p.heads) {
      float a[8], b[8];
      load_vec(a, p.dout + token * p.dout_stride + column);
      load_vec(b, p.out + token * p.out_stride + column);
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
  // The last token of a sequence fills its padded rows: weights become 0.
  if (token != begin + length - 1) return;
  const int rest = (tile_rows - length % tile_rows) % tile_rows;
  for (int i = lane; i < p.heads * rest; i += 32) {
    p.lse_rows[i / rest * p.padded + row + 1 + i % rest] = INFINITY;
    p.delta_rows[i / rest * p.padded + row + 1 + i % rest] = 0;
  }
}

// Adds `count` partial sums that lie `apart`, in ascending order, and stores the 128 rows of a tile. The sums are parts
// of 64 x 64 elements in the accumulator layout of a warpgroup (hopper.cuh).
template <int dim>
__device__ void finish_tile(Value* to, int64_t stride, int rows, const float4* from, int count, int64_t apart,
                            float scale) {
#pragma unroll
  for (int part = threadIdx.x / 128; part < tile_rows * dim / 4096; part += finish_threads / 128) {
    const int row = part / (dim / 64) * 64, column = part % (dim / 64) * 64;
    float sums[32] = {};
    for (int i = 0; i < count; ++i)
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        const float4 x = __ldcg(from + i * apart + part * 1024 + j * 128 + threadIdx.x % 128);
        sums[4 * j] += x.x;
        sums[4 * j + 1] += x.y;
        sums[4 * j + 2] += x.z;
        sums[4 * j + 3] += x.w;
      }
    store_part(to + row * stride + column, stride, rows - row, sums, scale);
  }
}

// A block finishes one tile of a head of dq or, if heads were split, of dk or dv; the first tiles first. It may start
// while the main kernel runs. A block of dq waits until all key tiles have been added to its queries; blocks of dk and
// dv wait for the main kernel to end.
template <int dim>
__global__ void __launch_bounds__(finish_threads) finish(const __grid_constant__ GradientCall call) {
  constexpr int queries = Memory<dim>::queries;
  const bool last = blockIdx.y + 1 == gridDim.y;
  const Tile tile = call.tiles[gridDim.y - 1 - blockIdx.y];
  // The last blocks wait for the main kernel, so that this kernel never ends before it.
  if (last || blockIdx.x >= static_cast<unsigned>(call.group * call.kv_heads)) griddep_wait();
  if (tile.length == 0) return;
  const int first = (tile.rank - 1) * tile_rows, rows = tile.length - first, heads = call.group * call.kv_heads,
            head = static_cast<int>(blockIdx.x);
  const int64_t token = tile.begin + first, padded_token = tile.row + first;
  if (head < heads) {
    if (threadIdx.x < tile_rows / queries && first + static_cast<int>(threadIdx.x) * queries < tile.length) {
      const int query = first + static_cast<int>(threadIdx.x) * queries;
      await_turn(call.turns + (head * call.padded + tile.row + query) / queries,
                 query / tile_rows - first_tile(query, call.window) + 1);
    }
    __syncthreads();  // the waiting threads have seen the last turn of their queries
    const float* sums = call.dq_sums + (head * call.padded + padded_token) * dim;
    return finish_tile<dim>(call.dq + token * call.dq_stride + head * dim, call.dq_stride, rows,
                            reinterpret_cast<const float4*>(sums), 1, 0, call.scale);
  }
  const int value = (head - heads) / call.kv_heads, kv_head = (head - heads) % call.kv_heads;
  const int64_t stride = value ? call.dv_stride : call.dk_stride;
  finish_tile<dim>((value ? call.dv : call.dk) + token * stride + kv_head * dim, stride, rows,
                   call.key_parts(0, value, kv_head, padded_token / tile_rows, dim), call.splits,
                   call.key_parts(1, 0, 0, 0, dim) - call.key_parts(0, 0, 0, 0, dim), value ? 1.0f : call.scale);
}

void run_checks(const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& dout, const Tensor& out,
                const Tensor& lse, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& offsets) {
  const int64_t tokens = q.dim(0), heads = q.dim(1), kv_heads = k.dim(1), dim = q.dim(2);
  HONE_CHECK(kv_heads > 0 && heads % kv_heads == 0, "attention_backward: q has ", heads, " heads and k has ", kv_heads,
             " KV heads; the heads must be a multiple of the KV heads");
  HONE_CHECK(offsets.rank == 1 && offsets.dtype == DType::i32 && offsets.dim(0) >= 1,
             "attention_backward: offsets has ", offsets.size(), " elements; it must be i32 [sequences + 1]");
  using Named = std::initializer_list<std::pair<const char*, const Tensor*>>;  // CUDA 12.4 cannot deduce it in the loop
  for (const auto& [name, x] : Named{{"dq", &dq}, {"dout", &dout}, {"out", &out}})
    check_shape(attention_backward, name, *x, {tokens, heads, dim}, DType::bf16);
  for (const auto& [name, x] : Named{{"dk", &dk}, {"dv", &dv}, {"k", &k}, {"v", &v}})
    check_shape(attention_backward, name, *x, {tokens, kv_heads, dim}, DType::bf16);
  check_shape(attention_backward, "lse", lse, {tokens, heads}, DType::f32);
}

template <int dim>
void run_heads(Context& context, const AttentionBackward& args) {
  const int64_t tokens = args.q.dim(0), heads = args.q.dim(1), kv_heads = args.k.dim(1), group = heads / kv_heads,
                sequences = args.offsets.dim(0) - 1;
  const int splits = attention::head_splits(tokens, kv_heads, group, args.shape, tile_rows, num_sms());
  const int64_t num_tiles = tokens / tile_rows + sequences, padded = num_tiles * tile_rows;
  const int max_rank = static_cast<int>((std::min(args.shape.max_length, tokens) + tile_rows - 1) / tile_rows);
  HONE_CHECK(num_tiles < 65536 && max_rank <= 8192, "attention_backward: ", tokens, " tokens in ", sequences,
             " sequences need ", num_tiles, " tiles, ", max_rank, " for the longest; the maximum is 65535 and 8192");
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
                                .dout = numbers<Value>(args.dout),
                                .out = numbers<Value>(args.out),
                                .lse = numbers<float>(args.lse),
                                .dout_stride = args.dout.row_stride,
                                .out_stride = args.out.row_stride,
                                .lse_stride = args.lse.row_stride,
                                .tokens = tokens,
                                .heads = static_cast<int>(heads),
                                .offsets = numbers<int32_t>(args.offsets),
                                .counters = counters,
                                .num_counters = num_counters};
  const auto warps = prepare_threads / 32;
  prepare<dim>
      <<<static_cast<unsigned>((tokens + warps - 1) / warps + 1), prepare_threads, max_rank * sizeof(int), stream>>>(
          preparation);
  check_launch(attention_backward);

  const Tensor dq_sums = context.scratch().take(DType::f32, {heads, padded, dim});
  const GradientCall call{
      .tiles = tiles,
      .lse = preparation.lse_rows,
      .delta = preparation.delta_rows,
      .padded = padded,
      .dq = numbers<Value>(args.dq),
      .dk = numbers<Value>(args.dk),
      .dv = numbers<Value>(args.dv),
      .dq_stride = args.dq.row_stride,
      .dk_stride = args.dk.row_stride,
      .dv_stride = args.dv.row_stride,
      .num_tiles = static_cast<int>(num_tiles),
      .group = static_cast<int>(group),
      .kv_heads = static_cast<int>(kv_heads),
      .window = static_cast<int>(std::min<int64_t>(args.shape.window, tokens)),
      .splits = splits,
      .scale = args.shape.scale,
      .exponent_scale = args.shape.scale * log2_e,
      .dq_sums = numbers<float>(dq_sums),
      .turns = counters + 1,
      .next = counters,
      .key_sums = splits > 1 ? numbers<float>(context.scratch().take(DType::f32, {splits * 2, kv_heads, padded, dim}))
                             : nullptr};
  allow_shared_memory(gradients<dim>, sizeof(Memory<dim>));
  const int64_t blocks = std::min<int64_t>(num_sms(), num_tiles * kv_heads * splits);
  launch_pdl(stream, gradients<dim>, dim3(static_cast<unsigned>(blocks)), threads, sizeof(Memory<dim>), 1,
             map_of_heads(args.q, box_rows), map_of_heads(args.k, box_rows), map_of_heads(args.v, box_rows),
             map_of_heads(args.dout, box_rows), call);
  mark_initialized(context, dq_sums);
  const int64_t columns = heads + (splits > 1 ? 2 * kv_heads : 0);
  launch_pdl(stream, finish<dim>, dim3(static_cast<unsigned>(columns), static_cast<unsigned>(num_tiles)),
             finish_threads, 0, 1, call);
}

void run(Context& context, const AttentionBackward& args) {
  run_checks(args.dq, args.dk, args.dv, args.dout, args.out, args.lse, args.q, args.k, args.v, args.offsets);
  if (args.q.size() == 0) return;
  if (args.dsinks) {  // from a delta of its own: that of `prepare` has gaps between sequences
    const ScratchScope scope(context);
    const attention::BackwardCall<Value> call = attention::backward_call_of<Value>(context, args);
    attention::launch_delta<8>(context, call);
    attention::launch_sink_gradients(context, call, args);
  }
  (args.q.dim(2) == 64 ? run_heads<64> : run_heads<128>)(context, args);
}

bool supports(const AttentionBackward& args) {
  const auto fits = [](const Tensor& x) { return x.dtype == DType::bf16 && packs<Value>(x); };
  return args.shape.softcap == 0 && runs_hopper_bodies() && args.q.rank == 3 &&
         (args.q.dim(2) == 64 || args.q.dim(2) == 128) && fits(args.dq) && fits(args.dk) && fits(args.dv) &&
         fits(args.dout) && fits(args.out) && fits(args.q) && fits(args.k) && fits(args.v);
}

[[maybe_unused]] const bool added = attention_backward.add({"sm90", DeviceKind::cuda, run, 20, supports});

}  // namespace
}  // namespace hone
