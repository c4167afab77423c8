// attention_forward for bf16 heads of 64 and 128 on Hopper, by the rule of attention_cuda.cuh.
//
// A block of threads takes tiles (rows of one sequence, one head) from a list, the heaviest first. Its first warpgroup only copies: q once a
// tile, k and v in stages of 128 keys. The others compute, 64 rows each: while one is at its softmax another's products run, and a warpgroup's own
// next q . k is under way while it weighs the block before. A split's result is merged into a total in shared memory.
#include "kernels/attention_list.cuh"
#include "kernels/attention_sm90.cuh"

namespace hone {
namespace {

using namespace attention;
using namespace sm90;

template <int Dim_, int Consumers_, int Stages_, int Registers_, int ProducerRegisters_>
struct Plan {
  static constexpr int dim = Dim_, consumers = Consumers_, stages = Stages_, registers = Registers_, producer_registers = ProducerRegisters_;
  static constexpr int rows = 64 * consumers, threads = 128 * (consumers + 1), chunks = dim / 64, outputs = dim / 2;
  static constexpr int q_chunk = rows * 128, kv_chunk = block_keys * 128;  // bytes of 64 columns
  static constexpr int q_bytes = chunks * q_chunk, kv_bytes = chunks * kv_chunk;
};
using Plan64 = Plan<64, 2, 4, 240, 24>;
using Plan128 = Plan<128, 2, 2, 240, 24>;

template <class P>
struct Shared {
  alignas(1024) char q[P::q_bytes];
  alignas(1024) char k[P::stages][P::kv_bytes];
  alignas(1024) char v[P::stages][P::kv_bytes];
  float4 total[P::consumers][P::outputs / 4][128];  // each thread's own numbers
  Barrier q_full, q_empty, k_full[P::stages], k_empty[P::stages], v_full[P::stages], v_empty[P::stages];
  ListedTile tile;
};

struct Arguments {
  Call<__nv_bfloat16> call;
  TileList list;
  int heads_together, window;  // a window of all keys is a large number
};

// The blocks of keys that a tile's rows see.
struct Blocks {
  int first, end;
};
__device__ Blocks blocks_of(const ListedTile& tile, int rows, int window) {
  const int last_row = min(tile.row + rows, tile.length) - 1;
  return {first_seen(tile.row, window) / block_keys, last_row / block_keys + 1};
}

template <class P>
__device__ void copy_tiles(Shared<P>& shared, const CUtensorMap& q, const CUtensorMap& k, const CUtensorMap& v, const Arguments& a) {
  const int count = *a.list.count;
  sm90::RingPlace<P::stages> to;
  for (uint32_t parity = 0;; parity ^= 1) {
    const ListedTile tile = listed_tile(a.list, a.call, count, a.heads_together, P::rows, atomicAdd(a.list.taken, 1));
    shared.q_empty.wait(parity ^ 1);
    shared.tile = tile;
    if (tile.row < 0) return shared.q_full.arrive();
    shared.q_full.arrive_expecting(P::q_bytes);
    for (int chunk = 0; chunk < P::chunks; ++chunk)
      load_box(shared.q + chunk * P::q_chunk, q, shared.q_full, chunk * 64, tile.head, tile.begin + tile.row);
    const Blocks blocks = blocks_of(tile, P::rows, a.window);
    const int head = tile.head / a.call.group;
#pragma unroll 1
    for (int block = blocks.first; block < blocks.end; ++block, to.next()) {
      const int token = tile.begin + block * block_keys;
      shared.k_empty[to.stage].wait(to.parity ^ 1);
      shared.k_full[to.stage].arrive_expecting(P::kv_bytes);
      for (int chunk = 0; chunk < P::chunks; ++chunk)
        load_box(shared.k[to.stage] + chunk * P::kv_chunk, k, shared.k_full[to.stage], chunk * 64, head, token);
      shared.v_empty[to.stage].wait(to.parity ^ 1);
      shared.v_full[to.stage].arrive_expecting(P::kv_bytes);
      for (int chunk = 0; chunk < P::chunks; ++chunk)
        load_box(shared.v[to.stage] + chunk * P::kv_chunk, v, shared.v_full[to.stage], chunk * 64, head, token);
    }
  }
}

// s = q . k of one block, queued.
template <class P>
__device__ void queue_scores(float (&s)[64], uint64_t q, uint64_t k) {
  pin(s);
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < P::dim / 16; ++step)
    product(s, further(q, step / 4 * P::q_chunk + step % 4 * 32), further(k, step / 4 * P::kv_chunk + step % 4 * 32), step > 0);
  wgmma_commit();
}

// o += p . v of one block, queued; from zero where a split starts.
template <class P>
__device__ void queue_values(float (&o)[P::outputs], uint32_t (&p)[32], uint64_t v, bool add) {
  pin(o);
  pin(p);
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < 8; ++step) product(o, p + 4 * step, further(v, step * 2048), step > 0 || add);
  wgmma_commit();
}

// Two rows' running maximum and sum, in the lanes of a quad alike.
struct Rows {
  float m[2] = {-INFINITY, -INFINITY}, l[2] = {0, 0};
};

// -inf where two rows (row, and 8 further) do not see a key of the block; `key` is the lane's first. The causal edge and the window's are apart.
__device__ void mask_later(float (&s)[64], int row, int key) {
#pragma unroll
  for (int i = 0; i < 64; ++i)
    if (i / 4 * 8 + i % 2 > row + i / 2 % 2 * 8 - key) s[i] = -INFINITY;
}
__device__ void mask_earlier(float (&s)[64], int row, int key, int window) {
#pragma unroll
  for (int i = 0; i < 64; ++i)
    if (i / 4 * 8 + i % 2 < first_seen(row + i / 2 % 2 * 8, window) - key) s[i] = -INFINITY;
}

// Scores become weights; rows and alpha are updated for the block.
__device__ void weigh(float (&s)[64], Rows& rows, float (&alpha)[2], float c) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float m = rows.m[r];
#pragma unroll
    for (int j = 0; j < 16; ++j) m = fmaxf(m, fmaxf(s[4 * j + 2 * r], s[4 * j + 2 * r + 1]));
    m = quad_max(m);
    const float base = base_of(m), shift = shift_of(base, c);
    alpha[r] = rescaling(rows.m[r], base, c);
    rows.m[r] = m;
    float sum = 0;
#pragma unroll
    for (int j = 0; j < 16; ++j)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& x = s[4 * j + 2 * r + e];
        x = weight(x, c, shift);
        sum += x;
      }
    rows.l[r] = fmaf(rows.l[r], alpha[r], quad_sum(sum));
  }
}

__device__ void pack(uint32_t (&p)[32], const float (&s)[64]) {
#pragma unroll
  for (int i = 0; i < 32; ++i) p[i] = pack_bf16(s[2 * i], s[2 * i + 1]);
}

// The splits merged so far: maxima and sums here, outputs in shared memory, one column of it a thread's.
template <int N>
struct Total {
  Rows rows;
  bool any = false;
  float4 (*outputs)[128];

  // rows and o become those of all splits so far.
  __device__ void merge(const Rows& split, float (&o)[N], float c) {
    if (!any) {
      rows = split;
      return;
    }
    MergeFactors factors[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      factors[r] = merge_factors(rows.m[r], split.m[r], c);
      rows.l[r] = merged(rows.l[r], split.l[r], factors[r]);
      rows.m[r] = factors[r].m;
    }
#pragma unroll
    for (int i = 0; i < N / 4; ++i) {
      const float4 t = outputs[i][threadIdx.x % 128];
      o[4 * i] = merged(t.x, o[4 * i], factors[0]);
      o[4 * i + 1] = merged(t.y, o[4 * i + 1], factors[0]);
      o[4 * i + 2] = merged(t.z, o[4 * i + 2], factors[1]);
      o[4 * i + 3] = merged(t.w, o[4 * i + 3], factors[1]);
    }
  }
  __device__ void keep(const float (&o)[N]) {
#pragma unroll
    for (int i = 0; i < N / 4; ++i) outputs[i][threadIdx.x % 128] = make_float4(o[4 * i], o[4 * i + 1], o[4 * i + 2], o[4 * i + 3]);
    any = true;
  }
};

// Values past the sequence's end count as zero, whatever lies there. Each warpgroup clears for itself.
template <class P>
__device__ void clear_values(char* v, int keys, int consumer) {
  for (int chunk = 0; chunk < P::chunks; ++chunk)
    for (int i = keys * 8 + static_cast<int>(threadIdx.x % 128); i < block_keys * 8; i += 128)
      reinterpret_cast<float4*>(v + chunk * P::kv_chunk)[i] = make_float4(0, 0, 0, 0);
  fence_async_proxy();
  named_sync(8 + consumer, 128);
}

// One lane's share of its two rows: a quad trades numbers until each lane has 16 bytes of a row.
template <class P>
__device__ void store(const Arguments& a, const ListedTile& tile, int row, const float (&o)[P::outputs], const Rows& rows) {
  const int lane = static_cast<int>(threadIdx.x % 4);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float inverse = reciprocal(rows.l[r]);
    const bool inside = row + 8 * r < tile.length;
    const int64_t token = tile.begin + row + 8 * r;
    __nv_bfloat16* to = a.call.out + token * a.call.out_stride + int64_t{tile.head} * P::dim;
#pragma unroll
    for (int j = 0; j < P::dim / 8; j += 4) {
      uint32_t x[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) x[i] = pack_bf16(o[4 * (j + i) + 2 * r] * inverse, o[4 * (j + i) + 2 * r + 1] * inverse);
#pragma unroll
      for (int step = 1; step < 4; step *= 2)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (!(i & step)) {
            const bool high = lane & step;
            const uint32_t got = __shfl_xor_sync(0xffffffffu, high ? x[i] : x[i | step], step);
            (high ? x[i] : x[i | step]) = got;
          }
      if (inside) *reinterpret_cast<uint4*>(to + (j + lane) * 8) = make_uint4(x[0], x[1], x[2], x[3]);
    }
    if (inside && lane == 0 && a.call.lse) a.call.lse[token * a.call.lse_stride + tile.head] = log_sum(rows.m[r], rows.l[r], a.call.scale);
  }
}

template <class P>
__device__ void attend_tiles(Shared<P>& shared, const Arguments& a, int consumer) {
  const int thread = static_cast<int>(threadIdx.x % 128), lane = thread % 32;
  const int row_in_tile = consumer * 64 + thread / 32 * 16 + lane / 4, column = lane % 4 * 2;
  const auto release = [&](Barrier& barrier) {
    if (lane == 0) barrier.arrive();
  };
  // Warpgroups queue their products in turn.
  const auto take_turn = [&] { named_sync(1 + consumer, 256); };
  const auto pass_turn = [&] { named_arrive(1 + (consumer + 1) % P::consumers, 256); };
  if (consumer == P::consumers - 1) named_arrive(1, 256);

  const uint64_t q = describe(shared.q + consumer * 64 * 128);
  sm90::RingPlace<P::stages> keys, values;
  for (uint32_t parity = 0;; parity ^= 1) {
    shared.q_full.wait(parity);
    const ListedTile tile = shared.tile;
    if (tile.row < 0) return;
    const Blocks blocks = blocks_of(tile, P::rows, a.window);
    const int row = tile.row + row_in_tile, warpgroup_row = tile.row + consumer * 64;
    const auto mask_block = [&](float(&s)[64], int block) {
      const int key = block * block_keys;
      if (key + block_keys - 1 > warpgroup_row) mask_later(s, row, key + column);
      if (key < warpgroup_row + 64 - a.window) mask_earlier(s, row, key + column, a.window);
    };
    float s[64], o[P::outputs], alpha[2];
    uint32_t p[32];
    Rows rows;
    Total<P::outputs> total{.rows = {}, .outputs = shared.total[consumer]};
    bool first_of_split = true;

    shared.k_full[keys.stage].wait(keys.parity);
    take_turn();
    queue_scores<P>(s, q, describe(shared.k[keys.stage]));
    pass_turn();
    wgmma_wait<0>();
    pin(s);
    release(shared.k_empty[keys.stage]);
    keys.next();
    mask_block(s, blocks.first);
    weigh(s, rows, alpha, a.call.c);
    pack(p, s);
    if (blocks.first + 1 < blocks.end) shared.k_full[keys.stage].wait(keys.parity);

#pragma unroll 1
    for (int block = blocks.first + 1; block < blocks.end; ++block) {
      take_turn();
      queue_scores<P>(s, q, describe(shared.k[keys.stage]));
      shared.v_full[values.stage].wait(values.parity);
      queue_values<P>(o, p, describe(shared.v[values.stage], P::kv_chunk), !first_of_split);
      pass_turn();
      wgmma_wait<1>();
      pin(s);
      release(shared.k_empty[keys.stage]);
      keys.next();
      first_of_split = block % split_blocks == 0;
      const Rows split = rows;
      if (first_of_split) rows = {};
      mask_block(s, block);
      weigh(s, rows, alpha, a.call.c);
      // Here also because the assembler would take the next wait ahead of the weights, were there no branch between them.
      if (block + 1 < blocks.end) shared.k_full[keys.stage].wait(keys.parity);
      wgmma_wait<0>();
      pin(o);
      pin(p);
      release(shared.v_empty[values.stage]);
      values.next();
      if (first_of_split) {
        total.merge(split, o, a.call.c);
        total.keep(o);
      } else {
#pragma unroll
        for (int i = 0; i < P::outputs; ++i) o[i] *= alpha[i / 2 % 2];
      }
      pack(p, s);
    }
    release(shared.q_empty);

    shared.v_full[values.stage].wait(values.parity);
    if (blocks.end * block_keys > tile.length) clear_values<P>(shared.v[values.stage], tile.length % block_keys, consumer);
    queue_values<P>(o, p, describe(shared.v[values.stage], P::kv_chunk), !first_of_split);
    wgmma_wait<0>();
    pin(o);
    release(shared.v_empty[values.stage]);
    values.next();
    total.merge(rows, o, a.call.c);
    store<P>(a, tile, row, o, total.rows);
  }
}

template <class P>
__global__ void __launch_bounds__(P::threads, 1) attention_sm90_kernel(const __grid_constant__ CUtensorMap q, const __grid_constant__ CUtensorMap k,
                                                                       const __grid_constant__ CUtensorMap v, const Arguments a) {
  extern __shared__ char memory[];
  auto& shared = *reinterpret_cast<Shared<P>*>((reinterpret_cast<uintptr_t>(memory) + 1023) & ~uintptr_t{1023});
  if (threadIdx.x == 0) {
    prefetch_map(q), prefetch_map(k), prefetch_map(v);
    shared.q_full.init(1), shared.q_empty.init(4 * P::consumers);
    for (int i = 0; i < P::stages; ++i) {
      shared.k_full[i].init(1), shared.k_empty[i].init(4 * P::consumers);
      shared.v_full[i].init(1), shared.v_empty[i].init(4 * P::consumers);
    }
    publish_barriers();
  }
  __syncthreads();
  if (threadIdx.x < 128) {
    fewer_registers<P::producer_registers>();
    if (threadIdx.x == 0) copy_tiles<P>(shared, q, k, v, a);
  } else {
    more_registers<P::registers>();
    attend_tiles<P>(shared, a, static_cast<int>(threadIdx.x) / 128 - 1);
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

// Boxes of `rows` tokens of one head, 64 columns.
CUtensorMap map_of(const Tensor& x, int rows) {
  CUtensorMap map;
  const cuuint64_t sizes[3] = {static_cast<cuuint64_t>(x.dim(2)), static_cast<cuuint64_t>(x.dim(1)), static_cast<cuuint64_t>(x.dim(0))};
  const cuuint64_t strides[2] = {static_cast<cuuint64_t>(x.dim(2)) * 2, static_cast<cuuint64_t>(x.row_stride) * 2};
  const cuuint32_t box[3] = {64, 1, static_cast<cuuint32_t>(rows)}, steps[3] = {1, 1, 1};
  const CUresult code = map_encoder()(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, x.data, sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                      CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  HONE_CHECK(code == CUDA_SUCCESS, "cuda: no tensor map of [", x.dim(0), ", ", x.dim(1), ", ", x.dim(2), "] with rows ", x.row_stride,
             " apart: code ", static_cast<int>(code));
  return map;
}

constexpr int64_t cached_bytes = int64_t{16} << 20;  // of keys and values that are worked on at a time

template <class P>
void launch(Context& context, const Call<__nv_bfloat16>& call, const Tensor& q, const Tensor& k, const Tensor& v) {
  const ScratchScope scope(context);
  const int kv_heads = static_cast<int>(std::clamp<int64_t>(cached_bytes / (int64_t{call.tokens} * P::dim * 4), 1, call.kv_heads));
  const Arguments arguments{.call = call,
                            .list = make_list(context, call, P::rows),
                            .heads_together = kv_heads * call.group,
                            .window = call.window > 0 ? call.window : 1 << 30};
  constexpr size_t bytes = sizeof(Shared<P>) + 1024;
  allow_shared_memory(attention_sm90_kernel<P>, bytes);
  const int64_t most_tiles = (int64_t{call.tokens} / P::rows + call.sequences) * call.kv_heads * call.group;
  const int blocks = static_cast<int>(std::min<int64_t>(num_multiprocessors(), most_tiles));
  attention_sm90_kernel<P>
      <<<blocks, P::threads, bytes, cuda_stream(context)>>>(map_of(q, P::rows), map_of(k, block_keys), map_of(v, block_keys), arguments);
}

// Copies take whole 16 bytes.
bool copyable(const Tensor& x) {
  return x.dtype == DType::bf16 && (x.dim(2) == 64 || x.dim(2) == 128) && x.row_stride % 8 == 0 && reinterpret_cast<uintptr_t>(x.data) % 16 == 0;
}

bool supports(const Tensor& out, const Tensor&, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor&, const AttentionShape&) {
  return out.rank == 3 && q.rank == 3 && k.rank == 3 && v.rank == 3 && copyable(out) && copyable(q) && copyable(k) && copyable(v);
}

void run(Context& context, Tensor out, Tensor lse, Tensor q, Tensor k, Tensor v, Tensor offsets, AttentionShape shape) {
  const auto call = call_of<__nv_bfloat16>(attention_forward, out, lse, q, k, v, offsets, shape);
  if (call.tokens == 0) return;
  (call.dim == 64 ? launch<Plan64> : launch<Plan128>)(context, call, q, k, v);
  check_launch(attention_forward);
}

[[maybe_unused]] const bool added = attention_forward.add({"sm90", DeviceKind::cuda, run, 20, supports});

}  // namespace
}  // namespace hone
