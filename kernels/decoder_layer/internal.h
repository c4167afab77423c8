#pragma once
// The ops of kernels/decoder_layer/decoder_layer.h as sequences of other ops, on any device.
#include "kernels/decoder_layer/decoder_layer.h"

namespace hone {

struct GemmForward;  // kernels/gemm/gemm.h

void gate_up_swiglu_steps(Context& context, const GateUpSwiglu& args);
void qkv_rope_cache_steps(Context& context, const QkvRopeCache& args);
// The second step of qkv_rope_cache, from the product qkv [T, (H + 2 Hk) * d].
void qkv_rope_cache_from(Context& context, const QkvProjection& to, Tensor qkv);
void gemm_rmsnorm_steps(Context& context, const GemmRmsnorm& args);
void decoder_layer_tail_steps(Context& context, const DecoderLayerTail& args);
// Throws Error unless the projection has a cache to write to, which these ops require.
void check_kv_write(const OpBase& op, const QkvProjection& to);
// The norm of x, in scratch memory of the caller's scope; without a weight x itself.
Tensor normed(Context& context, Tensor x, const RmsNormWeights& norm);
// The product of gemm_rmsnorm.
GemmForward gemm_of(const GemmRmsnorm& args);

// Bytes of scratch memory of the steps.
size_t gate_up_swiglu_scratch(const GateUpSwiglu& args);
size_t qkv_rope_cache_scratch(const QkvRopeCache& args);
size_t decoder_layer_tail_scratch(const DecoderLayerTail& args);

}  // namespace hone
