#pragma once
// What the CPU bodies of attention share: where a sequence's keys and values lie, packed or paged, and the checks of
// the ops' arguments.
#include <algorithm>

#include "kernels/attention/attention.h"

namespace hone {

// Keys and values of one kv head of one sequence, by position.
struct KeyRows {
  const float *k = nullptr, *v = nullptr;
  int64_t k_stride = 0, v_stride = 0;
  const int32_t* blocks = nullptr;  // of the cache; nullptr: row j is position j
  int64_t block_size = 1;
  int64_t row(int64_t position) const {
    return blocks ? blocks[position / block_size] * block_size + position % block_size : position;
  }
  const float* k_row(int64_t position) const { return k + row(position) * k_stride; }
  const float* v_row(int64_t position) const { return v + row(position) * v_stride; }
};

// The keys of every sequence of a call. In a paged call the tokens are each sequence's last; in a packed one they are
// all of it.
struct KeySource {
  Tensor k, v, offsets;
  Tensor block_table, lengths;  // of a paged call
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
  // Of token t of the call within its sequence.
  int64_t position(int64_t sequence, int64_t t) const {
    const int32_t* at = offsets.ptr<int32_t>();
    return block_table ? lengths.ptr<int32_t>()[sequence] - at[sequence + 1] + t : t - at[sequence];
  }
};

// The first key that a query sees.
inline int64_t first_key(int64_t position, int64_t window) {
  return window > 0 ? std::max<int64_t>(0, position - window + 1) : 0;
}

// Check what a call was given, block tables included, and say where its keys are.
KeySource packed_keys(const OpBase& op, const Tensor& out, const Tensor& lse, const Tensor& q, const Tensor& k,
                      const Tensor& v, const Tensor& offsets);
KeySource paged_keys(const OpBase& op, const Tensor& out, const Tensor& q, const PagedKv& cache, const Tensor& offsets);
// A cache in fp8 as f32, in scratch memory of the caller's scope: the blocks that the call's sequences have, checked;
// any other cache as it is.
PagedKv in_f32(Context& context, const OpBase& op, const PagedKv& cache, int64_t sequences);
void check_gradients(const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& dout, const Tensor& q,
                     const Tensor& k);

}  // namespace hone
