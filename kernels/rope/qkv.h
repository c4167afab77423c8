#pragma once
// From the fused projection to what attention reads: per-head norm of q and k (where the family has it), rotary
// position, and the write of k and v into the KV cache (where there is one), in one pass.
#include "kernels/op.h"

namespace hone {

struct QkvShape {
  int64_t num_heads = 0, num_kv_heads = 0, head_dim = 0;
  int64_t rotary_dim = 0;  // leading dims of a head that rotate, even; 0 = no rotary positions. Half-split pairing: dim
                           // i with i + rotary_dim/2
  float norm_eps = 0;      // of the per-head norm
};

// One layer's slice of a paged cache: a slot is a token's place, block * block_size + offset. Empty = nothing is
// written.
struct KvWriteTarget {
  Tensor k, v;   // [num_slots, num_kv_heads, head_dim]; as q, or u8 for e4m3
  Tensor slots;  // [T] i32
  Tensor k_scale{},
      v_scale{};  // [num_slots, num_kv_heads] f32 with e4m3: each token's head is written as a row of quantize_rows
};

// qkv [T, (H + 2 Hk) * d]: q heads, k heads, v heads as the projection wrote them. q [T, H, d], k [T, Hk, d] are
// written (rotated, normed); v is not copied: attention reads it from qkv. cos_sin [positions, rotary_dim] f32:
// cosines, then sines, of each position (rope_table()). positions [T] i32. q_norm, k_norm [d] or both empty; with
// them rstd [T, H + Hk] f32 is written unless empty.
inline constinit Op<void(Tensor q, Tensor k, Tensor rstd, Tensor qkv, Tensor positions, Tensor cos_sin, Tensor q_norm,
                         Tensor k_norm, QkvShape shape, KvWriteTarget cache)>
    qkv_forward{"qkv_forward"};
// dqkv's q and k columns are written from dq [T, H, d] and dk [T, Hk, d]; its v columns belong to attention's backward.
// dq_norm, dk_norm are added to, or empty.
inline constinit Op<void(Tensor dqkv, Tensor dq_norm, Tensor dk_norm, Tensor dq, Tensor dk, Tensor rstd, Tensor qkv,
                         Tensor positions, Tensor cos_sin, Tensor q_norm, Tensor k_norm, QkvShape shape)>
    qkv_backward{"qkv_backward"};

}  // namespace hone
