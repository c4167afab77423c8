#pragma once
// The GEMMs of a decoder layer with the small ops before and after them, for passes that keep nothing for a backward
// pass. T tokens, D width, F MLP width, H heads, Hk KV heads, head dim d.
//
// Each op equals a sequence of other ops, bit for bit: the result of each step (norm, GEMM, activation, rotation) is
// rounded to its storage.
#include "kernels/rope/qkv.h"

namespace hone {

// The norm of rmsnorm_forward. Without a weight x is taken as it is.
struct RmsNormWeights {
  Tensor weight;  // [K] or empty; prefetched as gemm_forward's w
  float eps = 0;
  static constexpr auto access = op_access(prefetched(&RmsNormWeights::weight));
};

// A matrix [N, K] and its bias [N] or empty, as gemm_forward takes them.
struct GemmWeights {
  Tensor w, bias;
  static constexpr auto access = op_access(prefetched(&GemmWeights::w), read(&GemmWeights::bias));
};

// y = glu_forward(gemm_forward(rmsnorm_forward(x)), Activation::silu)
struct GateUpSwiglu {
  Tensor y;  // [T, F], written
  Tensor x;  // [T, D]
  RmsNormWeights norm;
  GemmWeights gate_up;  // w [2F, D]: gate rows, then up rows
  static constexpr auto access =
      op_access(written(&GateUpSwiglu::y), read(&GateUpSwiglu::x), parts(&GateUpSwiglu::norm, &GateUpSwiglu::gate_up));
};
inline constinit Op<GateUpSwiglu> gate_up_swiglu{"gate_up_swiglu"};

// The projection to q, k and v: q and the rows of the KV cache are written.
struct QkvProjection {
  Tensor q;  // [T, H, d], written
  RmsNormWeights norm;
  GemmWeights qkv;        // w [(H + 2 Hk) * d, D]: rows of q, k, v
  Tensor positions;       // [T] i32
  Tensor cos_sin;         // as in qkv_forward
  Tensor q_norm, k_norm;  // [d], or both empty
  QkvShape shape;
  KvWriteTarget cache;  // not empty
  static constexpr auto access = op_access(
      written(&QkvProjection::q), parts(&QkvProjection::cache, &QkvProjection::norm, &QkvProjection::qkv),
      read(&QkvProjection::positions, &QkvProjection::cos_sin, &QkvProjection::q_norm, &QkvProjection::k_norm));
};
// qkv_forward(gemm_forward(rmsnorm_forward(x)))
struct QkvRopeCache {
  Tensor x;  // [T, D]
  QkvProjection to;
  static constexpr auto access = op_access(parts(&QkvRopeCache::to), read(&QkvRopeCache::x));
};
inline constinit Op<QkvRopeCache> qkv_rope_cache{"qkv_rope_cache"};

// y = gemm_forward(x, w, bias, residual) and normed = rmsnorm_forward(y).
struct GemmRmsnorm {
  Tensor y;       // [T, N], written
  Tensor normed;  // [T, N], written; shares no memory with the others
  Tensor x;       // [T, K]
  GemmWeights product;
  Tensor residual{};  // [T, N] or empty; may be y itself
  RmsNormWeights norm;
  static constexpr auto access =
      op_access(written(&GemmRmsnorm::y, &GemmRmsnorm::normed), read(&GemmRmsnorm::x, &GemmRmsnorm::residual),
                parts(&GemmRmsnorm::product, &GemmRmsnorm::norm));
};
inline constinit Op<GemmRmsnorm> gemm_rmsnorm{"gemm_rmsnorm"};

// The matrix of gate_up_swiglu and the one that follows it, w [D, F].
struct GatedMlpWeights {
  RmsNormWeights norm;
  GemmWeights gate_up, down;
  static constexpr auto access =
      op_access(parts(&GatedMlpWeights::norm, &GatedMlpWeights::gate_up, &GatedMlpWeights::down));
};

// From the attention of one layer to the attention of the next:
//   x = gemm_forward(mixed, output) + x
//   x = gemm_forward(gate_up_swiglu(x, mlp), mlp.down) + x
//   qkv_rope_cache(x, next), unless next.q is empty
struct DecoderLayerTail {
  Tensor x;      // [T, D], updated in place
  Tensor mixed;  // [T, H * d]: the output of attention
  GemmWeights output;
  GatedMlpWeights mlp;
  QkvProjection next;
  static constexpr auto access =
      op_access(updated(&DecoderLayerTail::x), read(&DecoderLayerTail::mixed),
                parts(&DecoderLayerTail::output, &DecoderLayerTail::mlp, &DecoderLayerTail::next));
};
inline constinit Op<DecoderLayerTail> decoder_layer_tail{"decoder_layer_tail"};

// Up to this number of rows the op that reads a norm's result does the norm (gate_up_swiglu, qkv_rope_cache); for more
// rows the op that writes its input does (gemm_rmsnorm). This is the faster choice.
inline constexpr int64_t max_rows_norm_in_gemm = 8;

}  // namespace hone
