#pragma once
// Causal attention over sequences packed end to end, grouped-query (head h reads kv head h / (H / Hk)), without a [T,
// T] matrix. Row-invariant: keys are taken in blocks of one fixed size aligned to the sequence's position 0 (sliding
// windows included: a block outside the window is skipped whole, inside it masked), partial results are rescaled in
// ascending order, so a query's output does not depend on which other queries are in the call, nor on whether keys come
// packed or from a paged cache.
#include "kernels/op.h"

namespace hone {

struct AttentionShape {
  float scale = 0;         // of q . k, usually 1 / sqrt(head_dim)
  int64_t window = 0;      // a query sees itself and window - 1 keys before it; 0 = all
  int64_t max_length = 0;  // longest sequence of the call; in a paged call, at least the most tokens that one has in it
};

// out [T, H, d] and lse [T, H] f32 (log-sum-exp of the scaled scores; or empty) are written. q [T, H, d]; k, v [T, Hk,
// d], rows may lie apart. offsets [S+1] i32: sequence s is tokens offsets[s] .. offsets[s+1]; may be empty sequences.
inline constinit Op<void(Tensor out, Tensor lse, Tensor q, Tensor k, Tensor v, Tensor offsets, AttentionShape shape)>
    attention_forward{"attention_forward"};
// dq, dk, dv are written (dv may be a column view). out, lse from forward.
inline constinit Op<void(Tensor dq, Tensor dk, Tensor dv, Tensor dout, Tensor out, Tensor lse, Tensor q, Tensor k,
                         Tensor v, Tensor offsets, AttentionShape shape)>
    attention_backward{"attention_backward"};

// One layer's keys and values in a paged cache: k, v [num_slots, Hk, d]; block_table [S, max_layers] i32; token p of
// sequence s lies in slot block_table[s, p / block_size] * block_size + p % block_size. lengths [S] i32: keys in the
// cache, the call's own tokens included. In fp8 k and v are u8 that hold e4m3, with a scale for each token and head
// beside: a number is scale * value.
struct PagedKv {
  Tensor k, v, block_table, lengths;
  int64_t block_size = 0;
  // On a GPU: what lies before each sequence's own tokens of the call, the table, the lengths and the offsets are of
  // before the pass (before the last copy to the device, or recording's start), so that they may be read ahead of the
  // ops that were queued before this one.
  bool prefetchable = false;
  Tensor k_scale{}, v_scale{};  // [num_slots, Hk] f32, or empty
};
// The call's tokens are the last offsets[s+1] - offsets[s] of each sequence's lengths[s]; out as above.
inline constinit Op<void(Tensor out, Tensor q, PagedKv cache, Tensor offsets, AttentionShape shape)> attention_paged{
    "attention_paged"};

}  // namespace hone
