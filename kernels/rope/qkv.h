#pragma once
// From the fused q, k, v projection to the inputs of attention, in one pass: per-head norm of q and k (for families
// that have it), rotary positions, and the write of k and v into the KV cache (if there is one). T tokens, H heads, Hk
// KV heads, head dim d. With Hk = 0 the projection has q alone (a layer that reads another layer's keys and values):
// k, its norm, its gradient and the cache are empty.
#include "kernels/op.h"

namespace hone {

struct QkvShape {
  int64_t num_heads = 0, num_kv_heads = 0, head_dim = 0;
  // Leading dims of a head that rotate, even; 0 = no rotary positions. Dim i is paired with i + rotary_dim / 2, or dim
  // 2i with 2i + 1 if `interleaved`.
  int64_t rotary_dim = 0;
  // Of the per-head norm; norm_offset is added to its weight (kernels/norm/rmsnorm.h). The fused ops of
  // kernels/decoder_layer take no offset.
  float norm_eps = 0, norm_offset = 0;
  bool interleaved = false;
};

// One layer of a paged KV cache. A slot is the place of one token: block * block_size + offset. All empty: nothing is
// written.
struct KvWriteTarget {
  Tensor k, v;                  // [num_slots, Hk, d], as q or u8 for e4m3; written at `slots`
  Tensor slots;                 // [T] i32
  Tensor k_scale{}, v_scale{};  // [num_slots, Hk] f32 with e4m3, written: each head is a row of quantize_rows
  static constexpr auto access = op_access(written_rows(&KvWriteTarget::slots, &KvWriteTarget::k, &KvWriteTarget::v,
                                                        &KvWriteTarget::k_scale, &KvWriteTarget::v_scale),
                                           read(&KvWriteTarget::slots));
};

// v is not copied: attention reads it from qkv.
struct QkvForward {
  Tensor q, k{};              // [T, H, d], [T, Hk, d], written: normed and rotated
  Tensor rstd{};              // [T, H + Hk] f32, written if there are norms; or empty
  Tensor qkv;                 // [T, (H + 2 Hk) * d]: q heads, k heads, v heads
  Tensor positions;           // [T] i32
  Tensor cos_sin;             // [positions, rotary_dim] f32: cosines, then sines, of each position (rope_table())
  Tensor q_norm{}, k_norm{};  // [d], or empty
  QkvShape shape;
  KvWriteTarget cache{};
  // rstd is left alone without norms.
  Tensor written_rstd() const { return q_norm ? rstd : Tensor(); }
  static constexpr auto access = op_access(
      written(&QkvForward::q, &QkvForward::k), written_range(&QkvForward::rstd, &QkvForward::written_rstd),
      parts(&QkvForward::cache),
      read(&QkvForward::qkv, &QkvForward::positions, &QkvForward::cos_sin, &QkvForward::q_norm, &QkvForward::k_norm));
};
inline constinit Op<QkvForward> qkv_forward{"qkv_forward"};

struct QkvBackward {
  Tensor dqkv;                  // [T, (H + 2 Hk) * d]; q and k columns are written, v's belong to attention_backward
  Tensor dq_norm{}, dk_norm{};  // [d] f32, added to; or empty
  Tensor dq, dk{};              // [T, H, d], [T, Hk, d]
  Tensor rstd{};                // of qkv_forward, if there are norms
  Tensor qkv, positions, cos_sin;
  Tensor q_norm{}, k_norm{};
  QkvShape shape;
  Tensor dqk() const { return dqkv.columns(0, (shape.num_heads + shape.num_kv_heads) * shape.head_dim); }
  static constexpr auto access = op_access(
      written_range(&QkvBackward::dqkv, &QkvBackward::dqk), added(&QkvBackward::dq_norm, &QkvBackward::dk_norm),
      read(&QkvBackward::dq, &QkvBackward::dk, &QkvBackward::rstd, &QkvBackward::qkv, &QkvBackward::positions,
           &QkvBackward::cos_sin, &QkvBackward::q_norm, &QkvBackward::k_norm));
};
inline constinit Op<QkvBackward> qkv_backward{"qkv_backward"};

}  // namespace hone
