#pragma once
// The ops of kernels/decoder_layer/decoder_layer.h, one after another.
#include "kernels/decoder_layer/decoder_layer.h"

namespace hone {

void project_gated_steps(Context& context, Tensor y, Tensor x, RmsNormWeights norm, Tensor w, Tensor bias);
void project_heads_steps(Context& context, Tensor x, QkvProjection heads);
void gemm_norm_steps(Context& context, Tensor y, Tensor normed, Tensor x, Tensor w, Tensor bias, Tensor residual,
                     RmsNormWeights norm);
void project_between_steps(Context& context, Tensor x, Tensor mixed, GemmWeights output, GatedMlpWeights mlp,
                           QkvProjection next);
// x normed, in scratch, or x itself.
Tensor normed(Context& context, Tensor x, const RmsNormWeights& norm);

size_t project_gated_scratch(const Tensor& y, const Tensor& x, const RmsNormWeights& norm, const Tensor& w,
                             const Tensor& bias);
size_t project_heads_scratch(const Tensor& x, const QkvProjection& heads);
size_t project_between_scratch(const Tensor& x, const Tensor& mixed, const GemmWeights& output,
                               const GatedMlpWeights& mlp, const QkvProjection& next);

}  // namespace hone
