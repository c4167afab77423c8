#pragma once
// The arguments of an attention call for CUDA kernels, packed or paged. Checks use shapes only: nothing is read from
// the device.
//
// The queries of one KV head are numbered as rows. Row r of a sequence is token r / group with query head r % group of
// the group. The rows of a KV head share the keys that they read.
#include <optional>

#include "kernels/attention/attention.h"
#include "kernels/attention/numerics.cuh"
#include "kernels/check_shape.h"

namespace hone::attention {

template <class T>
struct AttentionCall {
  T* out;
  float* lse;  // or nullptr
  const T *q, *k, *v;
  const int32_t *offsets, *table, *lengths;  // table and lengths: nullptr in a packed call
  int64_t out_stride, lse_stride, q_stride, k_stride, v_stride, table_stride;
  int tokens, sequences, kv_heads, group, dim, window, block_size, block_shift;  // block_shift: log2(block_size), or -1
  float scale, c;
  float cap_in, cap_out;  // soft-cap: q . k becomes cap_out * tanh(q . k * cap_in); cap_in = 0: none
  const void* sinks;      // [heads] f32 or bf16; or nullptr
  bool sinks_bf16;
};

template <class T>
__device__ inline float sink_of(const AttentionCall<T>& call, int head) {
  return call.sinks_bf16 ? to_f32(static_cast<const __nv_bfloat16*>(call.sinks)[head])
                         : static_cast<const float*>(call.sinks)[head];
}

// The end of a row of `head`, from the m and l of all its keys (numerics.cuh). All kernels call it, so that the sinks
// have the same bits in all.
template <class T>
__device__ inline RowEnd end_of_row(const AttentionCall<T>& call, int head, float m, float l) {
  return call.sinks ? end_with_sink(m, l, sink_of(call, head), call.scale) : end_of_keys(m, l, call.scale);
}

// A sequence's tokens of the call are [begin, begin + tokens); the first is at `position`. The sequence has `length`
// keys.
struct Sequence {
  int begin, tokens, position, length;
};
template <class T>
__device__ Sequence sequence_of(const AttentionCall<T>& call, int s) {
  const int begin = call.offsets[s], tokens = call.offsets[s + 1] - begin,
            length = call.lengths ? call.lengths[s] : tokens;
  return {begin, tokens, length - tokens, length};
}

// The row of k and v that holds key j of sequence s.
template <class T>
__device__ int64_t slot_of(const AttentionCall<T>& call, const Sequence& sequence, int s, int j) {
  if (!call.table) return sequence.begin + j;
  const int block = call.block_shift >= 0 ? j >> call.block_shift : j / call.block_size;
  return int64_t{call.table[s * call.table_stride + block]} * call.block_size + (j - block * call.block_size);
}

// All rows of a call are cut into tiles of `rows`, each within one sequence. The tiles of sequence s start at index
// offsets[s] * group / rows + s, which leaves each sequence at least as many as it needs. A tile may have no rows.
struct Tile {
  int sequence, first_row;
};
inline int tile_bound(int tokens, int sequences, int group, int rows) {
  return static_cast<int>(int64_t{tokens} * group / rows) + sequences;
}
// Finds tile i. Called by full warps: each step of the search tries 32 sequences.
__device__ inline Tile tile_at(const int32_t* offsets, int sequences, int group, int rows, int i) {
  const auto start = [&](int s) { return static_cast<int>(int64_t{offsets[s]} * group / rows) + s; };
  const int lane = static_cast<int>(threadIdx.x % 32);
  int low = 0, count = sequences;  // the tile's sequence is in [low, low + count)
  while (count > 1) {
    const int step = (count + 31) / 32;
    const bool reached = lane * step < count && start(low + lane * step) <= i;
    const int last = __popc(__ballot_sync(0xffffffffu, reached)) - 1;
    low += last * step;
    count = min(step, count - last * step);
  }
  return {low, (i - start(low)) * rows};
}

inline int window_of(const AttentionShape& shape) {
  return static_cast<int>(std::min<int64_t>(std::max<int64_t>(shape.window, 0), int64_t{1} << 30));
}

// keys: dtype of k and v if it differs from that of q. The k and v pointers are then not set to usable values.
template <class T>
AttentionCall<T> call_of(const OpBase& op, const AttentionForward& args, std::optional<DType> keys = {}) {
  const int64_t tokens = args.q.dim(0), heads = args.q.dim(1), dim = args.q.dim(2), kv_heads = args.k.dim(1);
  HONE_CHECK(args.q.rank == 3 && args.k.rank == 3 && kv_heads > 0 && heads % kv_heads == 0 && dim > 0, op.name(),
             ": q has ", heads, " heads of dimension ", dim, " and k has ", kv_heads,
             " KV heads; the heads must be a multiple of the KV heads");
  HONE_CHECK(args.shape.scale > 0, op.name(), ": scale is ", args.shape.scale, "; it must be positive");
  check_shape(op, "q", args.q, {tokens, heads, dim}, args.q.dtype);
  check_shape(op, "out", args.out, {tokens, heads, dim}, args.q.dtype);
  check_shape(op, "k", args.k, {args.k.dim(0), kv_heads, dim}, keys.value_or(args.q.dtype));
  check_shape(op, "v", args.v, {args.k.dim(0), kv_heads, dim}, keys.value_or(args.q.dtype));
  check_optional(op, "lse", args.lse, {tokens, heads});
  check_optional(op, "sinks", args.sinks, {heads}, args.sinks.dtype == DType::f32 ? DType::f32 : args.q.dtype);
  check_shape(op, "offsets", args.offsets, {args.offsets.dim(0)}, DType::i32);
  HONE_CHECK(args.offsets.dim(0) > 0 && tokens * heads < int64_t{1} << 30 && args.k.dim(0) < int64_t{1} << 31,
             op.name(), ": ", tokens, " tokens of ", heads, " heads, ", args.k.dim(0), " keys and ",
             args.offsets.dim(0),
             " offsets; the maximum is 2^30 - 1 query heads and 2^31 - 1 keys, with at least one offset");
  AttentionCall<T> call{};
  call.out = numbers<T>(args.out);
  call.lse = args.lse ? numbers<float>(args.lse) : nullptr;
  call.q = numbers<const T>(args.q);
  call.k = numbers<const T>(args.k);
  call.v = numbers<const T>(args.v);
  call.offsets = numbers<const int32_t>(args.offsets);
  call.out_stride = args.out.row_stride;
  call.lse_stride = args.lse.row_stride;
  call.q_stride = args.q.row_stride;
  call.k_stride = args.k.row_stride;
  call.v_stride = args.v.row_stride;
  call.tokens = static_cast<int>(tokens);
  call.sequences = static_cast<int>(args.offsets.dim(0)) - 1;
  call.kv_heads = static_cast<int>(kv_heads);
  call.group = static_cast<int>(heads / kv_heads);
  call.dim = static_cast<int>(dim);
  call.window = window_of(args.shape);
  call.scale = args.shape.scale;
  call.c = exponent_scale(args.shape.scale);
  if (args.shape.softcap > 0) {
    call.cap_in = args.shape.scale / args.shape.softcap;
    call.cap_out = args.shape.softcap / args.shape.scale;
  }
  call.sinks = args.sinks ? args.sinks.data : nullptr;
  call.sinks_bf16 = args.sinks.dtype == DType::bf16;
  return call;
}

template <class T>
AttentionCall<T> paged_call_of(const OpBase& op, const AttentionPaged& args, std::optional<DType> keys = {}) {
  const PagedKv& cache = args.cache;
  AttentionForward packed{};
  packed.out = args.out;
  packed.q = args.q;
  packed.k = cache.k;
  packed.v = cache.v;
  packed.offsets = args.offsets;
  packed.shape = args.shape;
  packed.sinks = args.sinks;
  AttentionCall<T> call = call_of<T>(op, packed, keys);
  check_shape(op, "block_table", cache.block_table, {call.sequences, cache.block_table.dim(1)}, DType::i32);
  check_shape(op, "lengths", cache.lengths, {call.sequences}, DType::i32);
  HONE_CHECK(cache.block_size > 0 && cache.block_size * cache.block_table.dim(1) < int64_t{1} << 30, op.name(), ": ",
             cache.block_table.dim(1), " blocks per sequence of ", cache.block_size,
             " slots; a sequence must have fewer than 2^30 slots");
  call.table = numbers<const int32_t>(cache.block_table);
  call.lengths = numbers<const int32_t>(cache.lengths);
  call.table_stride = cache.block_table.row_stride;
  call.block_size = static_cast<int>(cache.block_size);
  call.block_shift = -1;
  for (int shift = 0; shift < 30; ++shift)
    if (call.block_size == 1 << shift) call.block_shift = shift;
  return call;
}

// Upper bound of the tokens that one sequence has in this call.
template <class T>
int most_tokens(const AttentionCall<T>& call, const AttentionShape& shape) {
  return shape.max_length > 0 ? static_cast<int>(std::min<int64_t>(shape.max_length, call.tokens)) : call.tokens;
}

}  // namespace hone::attention
