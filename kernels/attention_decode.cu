// Attention of few queries for bf16: a block of threads takes the rows of one sequence and kv head (16 at a time) over one split of keys, so that
// the splits of a long sequence are read at once. Its warps score different keys; after that each has its own columns of v and of the output, and
// walks the keys in order. Both read through rings of their own in shared memory.
#include "kernels/attention_mma.cuh"

namespace hone::attention {
namespace {

constexpr int warps = 8, threads = 32 * warps, stage_keys = 16;

template <int D>
struct Plan {
  static constexpr int units = D / 8, columns = D / warps;                                      // of the head; of it, of one warp
  static constexpr int k_stages = D == 64 ? 4 : 2, v_stages = D == 64 ? 16 : D == 128 ? 8 : 4;  // of stage_keys keys
  static constexpr int ctas = D <= 128 ? 2 : 1;                                                 // on a multiprocessor
  static constexpr size_t q_bytes = size_t{2} * 16 * D;
  static constexpr size_t k_ring = size_t{2} * k_stages * stage_keys * D, v_ring = size_t{2} * v_stages * stage_keys * columns;  // of one warp
  static constexpr size_t p_bytes = size_t{2} * 16 * block_keys;  // of one block of keys; lies where the rings of k were
  static constexpr size_t bytes = q_bytes + warps * (k_ring + v_ring);
  static_assert(k_ring >= p_bytes);
};

// Rows of v in a warp's ring hold `columns` numbers: 1, 2 or 4 units of 16 bytes, placed so that eight rows of a unit meet no bank twice.
template <int columns>
__device__ uint32_t value_at(uint32_t ring, int row, int unit) {
  constexpr int units = columns / 8;
  const int place = units == 1 ? row : units == 2 ? row * 2 + (unit ^ (row >> 2 & 1)) : row * 4 + (unit ^ (row >> 1 & 3));
  return ring + static_cast<uint32_t>(place) * 16;
}

struct Partials {
  float *o, *m, *l;  // [S, Hk, rows, splits, d], [S, Hk, rows, splits]; o is nullptr: there is one split, and the output is written
  int rows, splits;
};

template <int D>
__global__ __launch_bounds__(threads, Plan<D>::ctas) void decode_kernel(const __grid_constant__ Call<Bf16> call, const Partials partials) {
  using P = Plan<D>;
  constexpr int units = P::units, columns = P::columns;
  extern __shared__ __align__(128) unsigned char shared[];
  __shared__ int slots[split_keys];
  __shared__ float part_most[2 * split_blocks][16], block_alpha[split_blocks][16], block_sum[split_blocks][16];
  __shared__ float part_sum[split_blocks][2][32];

  const int s = static_cast<int>(blockIdx.x) / call.kv_heads, kv_head = static_cast<int>(blockIdx.x) % call.kv_heads;
  const int split = static_cast<int>(blockIdx.y), first_row = static_cast<int>(blockIdx.z) * 16;
  const Sequence sequence = sequence_of(call, s);
  const int num_rows = sequence.tokens * call.group;
  if (first_row >= num_rows || !decodes(sequence.tokens, call.group)) return;
  const int row_end = min(first_row + 16, num_rows);
  const auto position = [&](int row) { return sequence.position + row / call.group; };
  // Keys that any of the rows sees, of this split.
  const int high = min(position(row_end - 1), split * split_keys + split_keys - 1);
  const int low = max(first_seen(position(first_row), call.window), split * split_keys);
  if (low > high) return;
  const int block_begin = low / block_keys, block_end = high / block_keys + 1, num_blocks = block_end - block_begin;
  const int key_begin = block_begin * block_keys, num_keys = num_blocks * block_keys;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;

  const uint32_t q_tile = shared_address(shared), k_rings = q_tile + P::q_bytes, p_tiles = k_rings;
  const uint32_t v_ring = k_rings + static_cast<uint32_t>(warps * P::k_ring + warp * P::v_ring);
  const uint32_t k_ring = k_rings + static_cast<uint32_t>(warp * P::k_ring);

  for (int i = thread; i < num_keys; i += threads) {
    const int key = key_begin + i;
    slots[i] = key >= low && key <= high ? static_cast<int>(slot_of(call, sequence, s, key)) : -1;
  }
  for (int i = thread; i < 16 * units; i += threads) {
    const int row = i / units, unit = i % units, at = first_row + row;
    const bool real = at < row_end && unit * 8 < call.dim;
    const Bf16* source = call.q;
    if (real) source += (sequence.begin + at / call.group) * call.q_stride + (kv_head * call.group + at % call.group) * call.dim + unit * 8;
    copy_async(unit_at<units>(q_tile, row, unit), source, real);
  }
  close_copies();
  wait_copies<0>();
  __syncthreads();

  // A warp scores one block of keys, or half of one where there are few.
  const bool halves = num_blocks <= warps / 2;
  const int block = halves ? warp / 2 : warp, half = halves ? warp % 2 : 0;
  const int part_begin = block * block_keys + half * (block_keys / 2), part_stages = block >= num_blocks ? 0 : (halves ? 4 : 8);  // of the split
  const auto load_keys = [&](int stage) {
    if (stage < part_stages) {
#pragma unroll
      for (int i = lane; i < stage_keys * units; i += 32) {
        const int row = i / units, unit = i % units;
        const int slot = slots[part_begin + stage * stage_keys + row];
        const bool real = slot >= 0 && unit * 8 < call.dim;
        copy_async(unit_at<units>(k_ring, stage % P::k_stages * stage_keys + row, unit),
                   real ? call.k + int64_t{slot} * call.k_stride + kv_head * call.dim + unit * 8 : call.k, real);
      }
    }
    close_copies();
  };
  const int v_stages = num_keys / stage_keys;
  const auto load_values = [&](int stage) {
    if (stage < v_stages) {
#pragma unroll
      for (int i = lane; i < stage_keys * (columns / 8); i += 32) {
        const int row = i / (columns / 8), unit = i % (columns / 8), column = warp * columns + unit * 8;
        const int slot = slots[stage * stage_keys + row];
        const bool real = slot >= 0 && column < call.dim;
        copy_async(value_at<columns>(v_ring, stage % P::v_stages * stage_keys + row, unit),
                   real ? call.v + int64_t{slot} * call.v_stride + kv_head * call.dim + column : call.v, real);
      }
    }
    close_copies();
  };
#pragma unroll
  for (int i = 0; i < P::k_stages; ++i) load_keys(i);
#pragma unroll
  for (int i = 0; i < P::v_stages; ++i) load_values(i);

  float score[16][4];  // of the part's keys
#pragma unroll
  for (int n = 0; n < 16; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) score[n][i] = 0;
#pragma unroll
  for (int n = 0; n < 8; ++n)
    if (n < part_stages) {
      if (n < P::k_stages)
        wait_copies<P::k_stages + P::v_stages - 1>();
      else
        wait_copies<P::k_stages - 1>();
      __syncwarp();
#pragma unroll
      for (int d = 0; d < D / 16; ++d) {
        uint32_t a[4], b[4];
        load_matrices(a, left_at<units>(q_tile, 0, 2 * d, lane));
        load_matrices(b, right_at<units>(k_ring, n % P::k_stages * stage_keys, 2 * d, lane));
        multiply_add(score[2 * n], a, b[0], b[1]);
        multiply_add(score[2 * n + 1], a, b[2], b[3]);
      }
      __syncwarp();
      load_keys(n + P::k_stages);
    }

  int first[2], last[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = first_row + lane / 4 + 8 * r;
    last[r] = row < row_end ? position(row) : -1;
    first[r] = row < row_end ? first_seen(last[r], call.window) : 0;
    float most = -INFINITY;
#pragma unroll
    for (int n = 0; n < 16; ++n)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int j = key_begin + part_begin + 8 * n + 2 * (lane % 4) + i;
        float& x = score[n][2 * r + i];
        if (j < first[r] || j > last[r] || n >= 2 * part_stages) x = -INFINITY;
        most = fmaxf(most, x);
      }
    most = quad_max(most);
    if (part_stages > 0 && lane % 4 == 0) {
      part_most[2 * block + half][lane / 4 + 8 * r] = most;
      if (!halves) part_most[2 * block + 1][lane / 4 + 8 * r] = -INFINITY;
    }
  }
  __syncthreads();  // the rings of k are free

  float sum[2] = {0, 0};
  if (part_stages > 0) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = lane / 4 + 8 * r;
      float m = -INFINITY, before = m;
      for (int b = 0; b <= block; ++b) before = m, m = fmaxf(m, fmaxf(part_most[2 * b][row], part_most[2 * b + 1][row]));
      const float base = base_of(m), shift = shift_of(base, call.c);
      if (half == 0 && lane % 4 == 0) block_alpha[block][row] = rescaling(before, base, call.c);
#pragma unroll
      for (int n = 0; n < 16; ++n)
        if (n < 2 * part_stages)
#pragma unroll
          for (int i = 2 * r; i < 2 * r + 2; ++i) score[n][i] = weight(score[n][i], call.c, shift);
    }
    const uint32_t p_tile = p_tiles + static_cast<uint32_t>(block * P::p_bytes);
#pragma unroll
    for (int n = 0; n < 16; ++n)
      if (n < 2 * part_stages)
#pragma unroll
        for (int r = 0; r < 2; ++r)
          asm volatile("st.shared.u32 [%0], %1;" ::"r"(unit_at<block_keys / 8>(p_tile, lane / 4 + 8 * r, half * 8 + n) + 4 * (lane % 4)),
                       "r"(pack_bf16(score[n][2 * r], score[n][2 * r + 1]))
                       : "memory");
    if (half == 0) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
#pragma unroll
        for (int n = 0; n < 16; ++n)
          if (n < 2 * part_stages) sum[r] += score[n][2 * r], sum[r] += score[n][2 * r + 1];
        if (halves) part_sum[block][r][lane] = sum[r];
      }
    }
  }
  __syncthreads();
  if (part_stages > 0 && (half == 1 || !halves)) {  // the second half's columns join the chain of the first's
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (halves) {
        sum[r] = part_sum[block][r][lane];
#pragma unroll
        for (int n = 0; n < 8; ++n) sum[r] += score[n][2 * r], sum[r] += score[n][2 * r + 1];
      }
      const float whole = quad_sum(sum[r]);
      if (lane % 4 == 0) block_sum[block][lane / 4 + 8 * r] = whole;
    }
  }

  float o[columns / 8][4];
#pragma unroll
  for (int d = 0; d < columns / 8; ++d)
#pragma unroll
    for (int i = 0; i < 4; ++i) o[d][i] = 0;
  wait_copies<0>();
  __syncwarp();
  const auto mix = [&](int stage, int ring_stage) {
    uint32_t a[4];
    load_matrices(a, left_at<block_keys / 8>(p_tiles + static_cast<uint32_t>(stage / 8 * P::p_bytes), 0, stage % 8 * 2, lane));
    const int row = ring_stage * stage_keys + lane % 16;
    if constexpr (columns == 8) {
      uint32_t b[2];
      load_two_matrices_transposed(b, value_at<columns>(v_ring, row, 0));
      multiply_add(o[0], a, b[0], b[1]);
    } else {
#pragma unroll
      for (int d = 0; d < columns / 16; ++d) {
        uint32_t b[4];
        load_matrices_transposed(b, value_at<columns>(v_ring, row, 2 * d + lane / 16));
        multiply_add(o[2 * d], a, b[0], b[1]);
        multiply_add(o[2 * d + 1], a, b[2], b[3]);
      }
    }
  };
  for (int begin = 0; begin < v_stages; begin += P::v_stages) {
#pragma unroll
    for (int i = 0; i < P::v_stages; ++i) {
      const int stage = begin + i;
      if (stage >= v_stages) break;
      if (begin > 0) wait_copies<P::v_stages - 1>();
      __syncwarp();
      if (stage % 8 == 0) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const float alpha = block_alpha[stage / 8][lane / 4 + 8 * r];
#pragma unroll
          for (int d = 0; d < columns / 8; ++d) o[d][2 * r] *= alpha, o[d][2 * r + 1] *= alpha;
        }
      }
      mix(stage, i);
      __syncwarp();
      load_values(stage + P::v_stages);
    }
  }
  wait_copies<0>();
  __syncthreads();

#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = first_row + lane / 4 + 8 * r;
    if (row >= row_end) continue;
    float m = -INFINITY, l = 0;
    for (int b = 0; b < num_blocks; ++b) {
      m = fmaxf(m, fmaxf(part_most[2 * b][lane / 4 + 8 * r], part_most[2 * b + 1][lane / 4 + 8 * r]));
      l = fmaf(l, block_alpha[b][lane / 4 + 8 * r], block_sum[b][lane / 4 + 8 * r]);
    }
    const int64_t token = sequence.begin + row / call.group;
    const int head = kv_head * call.group + row % call.group;
    const int64_t place = (int64_t{blockIdx.x} * partials.rows + row) * partials.splits + split;
    const float inverse = reciprocal(l);
#pragma unroll
    for (int d = 0; d < columns / 8; ++d) {
      const int column = warp * columns + 8 * d + 2 * (lane % 4);
      if (column >= call.dim) continue;
      if (partials.o)
        *reinterpret_cast<float2*>(partials.o + place * call.dim + column) = {o[d][2 * r], o[d][2 * r + 1]};
      else
        *reinterpret_cast<uint32_t*>(call.out + token * call.out_stride + head * call.dim + column) =
            pack_bf16(o[d][2 * r] * inverse, o[d][2 * r + 1] * inverse);
    }
    if (partials.o && warp == 0 && lane % 4 == 0) partials.m[place] = m, partials.l[place] = l;
  }
}

// The splits of each row, in ascending order.
__global__ void merge_kernel(const __grid_constant__ Call<Bf16> call, const Partials partials) {
  const int s = static_cast<int>(blockIdx.x) / call.kv_heads, kv_head = static_cast<int>(blockIdx.x) % call.kv_heads;
  const int row = static_cast<int>(blockIdx.y), column = 2 * static_cast<int>(threadIdx.x);
  const Sequence sequence = sequence_of(call, s);
  if (row >= sequence.tokens * call.group || !decodes(sequence.tokens, call.group) || column >= call.dim) return;
  const int position = sequence.position + row / call.group;
  const int begin = first_seen(position, call.window) / split_keys, end = position / split_keys + 1;
  const int64_t place = (int64_t{blockIdx.x} * partials.rows + row) * partials.splits;
  const auto o_of = [&](int split) { return *reinterpret_cast<const float2*>(partials.o + (place + split) * call.dim + column); };
  float m = partials.m[place + begin], l = partials.l[place + begin];
  float2 o = o_of(begin);
  for (int split = begin + 1; split < end; ++split) {
    const MergeFactors factors = merge_factors(m, partials.m[place + split], call.c);
    const float2 part = o_of(split);
    m = factors.m, l = merged(l, partials.l[place + split], factors);
    o = {merged(o.x, part.x, factors), merged(o.y, part.y, factors)};
  }
  const float inverse = reciprocal(l);
  *reinterpret_cast<uint32_t*>(call.out + (sequence.begin + row / call.group) * call.out_stride +
                               (kv_head * call.group + row % call.group) * call.dim + column) = pack_bf16(o.x * inverse, o.y * inverse);
}

void paged(Context& context, Tensor out, Tensor q, PagedKv cache, Tensor offsets, AttentionShape shape) {
  const Call<Bf16> call = paged_call_of<Bf16>(attention_paged, out, q, cache, offsets, shape);
  HONE_CHECK(reads_in_units(q) && reads_in_units(cache.k) && reads_in_units(cache.v) && reads_in_units(out),
             "attention_paged: rows of q, k, v and out are not multiples of 16 bytes apart");
  if (call.tokens == 0) return;
  const int tokens = most_tokens(call, shape);
  launch_decode(context, call, tokens, static_cast<int>(cache.block_table.dim(1)) * call.block_size);
  if (!decodes(tokens, call.group)) launch_tiles(context, call);
  check_launch(attention_paged);
}

[[maybe_unused]] const bool added =
    attention_paged.add({"mma", DeviceKind::cuda, paged, 10,
                         [](const Tensor&, const Tensor& q, const PagedKv&, const Tensor&, const AttentionShape&) { return has_units(q); }});

}  // namespace

void launch_decode(Context& context, const Call<Bf16>& call, int most_tokens, int most_keys) {
  const int rows = std::min(decoded_rows(call.group), most_tokens * call.group), splits = std::max((most_keys + split_keys - 1) / split_keys, 1);
  const int64_t pairs = int64_t{call.sequences} * call.kv_heads;
  const ScratchScope scope(context);
  Partials partials{nullptr, nullptr, nullptr, rows, splits};
  if (splits > 1) {
    partials.o = numbers<float>(context.scratch().take(DType::f32, {pairs * rows * splits, call.dim}));
    partials.m = numbers<float>(context.scratch().take(DType::f32, {pairs * rows * splits}));
    partials.l = numbers<float>(context.scratch().take(DType::f32, {pairs * rows * splits}));
  }
  with_width(call.dim, [&](auto width) {
    constexpr size_t bytes = Plan<width()>::bytes;
    allow_shared_memory(decode_kernel<width()>, bytes);
    const dim3 grid(static_cast<unsigned>(pairs), static_cast<unsigned>(splits), static_cast<unsigned>((rows + 15) / 16));
    decode_kernel<width()><<<grid, threads, bytes, cuda_stream(context)>>>(call, partials);
  });
  if (splits > 1) {
    const dim3 grid(static_cast<unsigned>(pairs), static_cast<unsigned>(rows));
    merge_kernel<<<grid, static_cast<unsigned>((call.dim / 2 + 31) / 32 * 32), 0, cuda_stream(context)>>>(call, partials);
  }
}

}  // namespace hone::attention
