#pragma once
// Causal attention over sequences packed end to end, without a [T, T] matrix. Grouped-query attention: head h reads KV
// head h / (H / Hk). T tokens, H heads, Hk KV heads, head dim d, S sequences.
//
// Row-invariant: keys are taken in tiles of one fixed size aligned to position 0 of the sequence, and partial results
// are rescaled in ascending order. With a sliding window, tiles outside of it are skipped and tiles at its edge are
// masked. A query's output does not depend on the other queries of the call, nor on packed or paged keys.
//
// Attention sinks (gpt-oss): a head may have a logit that joins the softmax as one more key without a value, whatever
// the window. It only enlarges the denominator: the log-sum-exp then includes it.
#include "kernels/op.h"

namespace hone {

struct AttentionShape {
  float scale = 0;         // factor on q . k, usually 1 / sqrt(head_dim)
  int64_t window = 0;      // a query sees itself and window - 1 keys before it; 0 = all
  int64_t max_length = 0;  // at least the largest number of tokens of a sequence in the call
  // If above 0, scores become softcap * tanh(scores / softcap) before the mask (Gemma 2). The specification and the
  // plain CUDA bodies support it, without an fp8 cache.
  float softcap = 0;
};

struct AttentionForward {
  Tensor out;      // [T, H, d], written
  Tensor lse{};    // [T, H] f32, written: log-sum-exp of the scores (the scaled q . k); or empty
  Tensor q, k, v;  // [T, H, d], [T, Hk, d], [T, Hk, d]; rows may have gaps
  Tensor offsets;  // [S + 1] i32: sequence s is tokens offsets[s] to offsets[s + 1]; sequences may be empty
  AttentionShape shape;
  Tensor sinks{};  // [H] f32 or as q: logit of the head's attention sink; or empty
  static constexpr auto access = op_access(written(&AttentionForward::out, &AttentionForward::lse),
                                           read(&AttentionForward::q, &AttentionForward::k, &AttentionForward::v,
                                                &AttentionForward::offsets, &AttentionForward::sinks));
};
inline constinit Op<AttentionForward> attention_forward{"attention_forward"};

struct AttentionBackward {
  Tensor dq, dk, dv;  // as q, k, v, written; dv may be a column view
  Tensor dout;        // [T, H, d]
  Tensor out, lse;    // of attention_forward
  Tensor q, k, v, offsets;
  AttentionShape shape;
  Tensor sinks{};   // of attention_forward
  Tensor dsinks{};  // [H] f32, added; or empty. Each element gets one addition (kernels/adds_once.h)
  static constexpr auto access = op_access(
      written(&AttentionBackward::dq, &AttentionBackward::dk, &AttentionBackward::dv),
      added_once(&AttentionBackward::dsinks),
      read(&AttentionBackward::dout, &AttentionBackward::out, &AttentionBackward::lse, &AttentionBackward::q,
           &AttentionBackward::k, &AttentionBackward::v, &AttentionBackward::offsets, &AttentionBackward::sinks));
};
inline constinit Op<AttentionBackward> attention_backward{"attention_backward"};

// One layer's keys and values in a paged cache. Token p of sequence s lies in slot
// block_table[s, p / block_size] * block_size + p % block_size.
struct PagedKv {
  Tensor k, v;         // [num_slots, Hk, d]; u8 holds e4m3 and needs the scales below
  Tensor block_table;  // [S, max_blocks] i32
  Tensor lengths;      // [S] i32: keys in the cache, the call's own tokens included
  int64_t block_size = 0;
  // True if everything but this pass's own K and V was written before the pass: before the last copy to the device, or
  // before recording started. Kernels may then prefetch it before griddep_wait().
  bool prefetchable = false;
  Tensor k_scale{}, v_scale{};  // [num_slots, Hk] f32 with e4m3: a number is scale * value; else empty
  static constexpr auto access = op_access(
      read(&PagedKv::k, &PagedKv::v, &PagedKv::block_table, &PagedKv::lengths, &PagedKv::k_scale, &PagedKv::v_scale));
};

// The tokens of the call are the last offsets[s + 1] - offsets[s] of each sequence's lengths[s].
struct AttentionPaged {
  Tensor out;  // [T, H, d], written
  Tensor q;    // [T, H, d]
  PagedKv cache;
  Tensor offsets;  // [S + 1] i32
  AttentionShape shape;
  Tensor sinks{};  // [H] f32 or as q: logit of the head's attention sink; or empty
  static constexpr auto access = op_access(written(&AttentionPaged::out), parts(&AttentionPaged::cache),
                                           read(&AttentionPaged::q, &AttentionPaged::offsets, &AttentionPaged::sinks));
};
inline constinit Op<AttentionPaged> attention_paged{"attention_paged"};

}  // namespace hone
