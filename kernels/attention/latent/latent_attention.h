#pragma once
// Attention of multi-head latent attention (MLA, DeepSeek-V2) in its absorbed form. All heads share one row per token,
// the latent row: `rank` latent numbers, then the rotated numbers of the key that carry positions. The whole row is the
// key; its first `rank` columns are the value. Queries are mapped to the latent space before the op, outputs back after
// it (kernels/attention/latent/head_gemm.h). T tokens, H heads, W columns of a row, R = rank, S sequences.
//
// Training, scoring, prefill and decoding use this one form. It is row-invariant like kernels/attention/attention.h: a
// query's output does not depend on the other queries of the call, nor on packed or paged rows.
#include "kernels/attention/attention.h"

namespace hone {

struct LatentAttentionForward {
  Tensor out;            // [T, H, R], written
  Tensor lse{};          // [T, H] f32, written: log-sum-exp of the scores; or empty
  Tensor q;              // [T, H, W]
  Tensor rows;           // [T, W]; rows may have gaps
  Tensor offsets;        // [S + 1] i32: sequence s is tokens offsets[s] to offsets[s + 1]; sequences may be empty
  AttentionShape shape;  // without a soft-cap
  static constexpr auto access =
      op_access(written(&LatentAttentionForward::out, &LatentAttentionForward::lse),
                read(&LatentAttentionForward::q, &LatentAttentionForward::rows, &LatentAttentionForward::offsets));
};
inline constinit Op<LatentAttentionForward> latent_attention_forward{"latent_attention_forward"};

struct LatentAttentionBackward {
  Tensor dq;        // [T, H, W], written
  Tensor drows;     // [T, W], written
  Tensor dout;      // [T, H, R]
  Tensor out, lse;  // of latent_attention_forward
  Tensor q, rows, offsets;
  AttentionShape shape;
  static constexpr auto access =
      op_access(written(&LatentAttentionBackward::dq, &LatentAttentionBackward::drows),
                read(&LatentAttentionBackward::dout, &LatentAttentionBackward::out, &LatentAttentionBackward::lse,
                     &LatentAttentionBackward::q, &LatentAttentionBackward::rows, &LatentAttentionBackward::offsets));
};
inline constinit Op<LatentAttentionBackward> latent_attention_backward{"latent_attention_backward"};

// One layer's latent rows in a paged cache, by slot as in PagedKv.
struct LatentCache {
  Tensor rows;         // [num_slots, W]
  Tensor block_table;  // [S, max_blocks] i32
  Tensor lengths;      // [S] i32: rows in the cache, the call's own tokens included
  int64_t block_size = 0;
  static constexpr auto access = op_access(read(&LatentCache::rows, &LatentCache::block_table, &LatentCache::lengths));
};

// The tokens of the call are the last offsets[s + 1] - offsets[s] of each sequence's lengths[s].
struct LatentAttentionPaged {
  Tensor out;  // [T, H, R], written
  Tensor q;    // [T, H, W]
  LatentCache cache;
  Tensor offsets;  // [S + 1] i32
  AttentionShape shape;
  static constexpr auto access = op_access(written(&LatentAttentionPaged::out), parts(&LatentAttentionPaged::cache),
                                           read(&LatentAttentionPaged::q, &LatentAttentionPaged::offsets));
};
inline constinit Op<LatentAttentionPaged> latent_attention_paged{"latent_attention_paged"};

// Throw Error if shapes or dtypes do not fit: for all bodies. Nothing is read from the device.
void check_latent_attention(const LatentAttentionForward& args, DType dtype);
void check_latent_attention(const LatentAttentionBackward& args, DType dtype);
void check_latent_attention(const LatentAttentionPaged& args, DType dtype);

}  // namespace hone
