#pragma once
// Shared by the CPU bodies of attention: the place of a sequence's keys and values, packed or paged, and the checks of
// the arguments.
#include <algorithm>
#include <limits>

#include "kernels/attention/attention.h"

namespace hone {

// Keys and values of one KV head of one sequence, by position.
struct KeyRows {
  const float *k = nullptr, *v = nullptr;
  int64_t k_stride = 0, v_stride = 0;
  const int32_t* blocks = nullptr;  // KV blocks of the sequence; nullptr: row j is position j
  int64_t block_size = 1;
  int64_t row(int64_t position) const {
    return blocks ? blocks[position / block_size] * block_size + position % block_size : position;
  }
  const float* k_row(int64_t position) const { return k + row(position) * k_stride; }
  const float* v_row(int64_t position) const { return v + row(position) * v_stride; }
};

// The keys of all sequences of a call. The tokens of a paged call are the last of each sequence; the tokens of a packed
// call are all of it.
struct KeySource {
  Tensor k, v, offsets;
  Tensor block_table, lengths;  // empty in a packed call
  int64_t block_size = 0, num_kv_heads = 0, max_length = 0;

  KeyRows rows(int64_t sequence, int64_t kv_head) const {
    const int64_t first = block_table ? 0 : offsets.ptr<int32_t>()[sequence], column = kv_head * k.dim(2);
    return {k.row<float>(first) + column,
            v.row<float>(first) + column,
            k.row_stride,
            v.row_stride,
            block_table ? block_table.row<int32_t>(sequence) : nullptr,
            block_size};
  }
  // The position of token t of the call in its sequence.
  int64_t position(int64_t sequence, int64_t t) const {
    const int32_t* at = offsets.ptr<int32_t>();
    return block_table ? lengths.ptr<int32_t>()[sequence] - at[sequence + 1] + t : t - at[sequence];
  }
};

// The first key that a query sees.
inline int64_t first_key(int64_t position, int64_t window) {
  return window > 0 ? std::max<int64_t>(0, position - window + 1) : 0;
}

// Check the arguments of a call, values of block tables included, and return its keys.
KeySource packed_keys(const OpBase& op, const Tensor& out, const Tensor& lse, const Tensor& q, const Tensor& k,
                      const Tensor& v, const Tensor& offsets);
KeySource paged_keys(const OpBase& op, const Tensor& out, const Tensor& q, const PagedKv& cache, const Tensor& offsets);
// Converts an fp8 cache to f32, in scratch memory of the caller's scope: only the blocks of the call's sequences, after
// a check of the block table. Another cache is returned as it is.
PagedKv in_f32(Context& context, const OpBase& op, const PagedKv& cache, int64_t sequences);
void check_gradients(const AttentionBackward& args);
// What a paged call has in common with a packed one: all but keys, values and lse.
AttentionForward queries_of(const AttentionPaged& args);
// Throws Error unless the sinks are empty or one per head.
void check_sinks(const AttentionForward& args);
// The sink of a head; -infinity if there is none.
inline float sink_of(const Tensor& sinks, int64_t head) {
  return sinks ? sinks.ptr<float>()[head] : -std::numeric_limits<float>::infinity();
}
// Adds the gradient of the sinks: -exp(sink - lse) * (dout . out), summed over the tokens in ascending order, in f64.
// delta [T, H] f32 holds dout . out.
void add_sink_gradients(const AttentionBackward& args, const Tensor& delta);

}  // namespace hone
