// CPU specification of qkv_forward and qkv_backward.
#include "kernels/rope/qkv.h"

#include <algorithm>
#include <cmath>

#include "core/base/parallel_for.h"
#include "kernels/quant/quant_format.h"
#include "kernels/rope/qkv_args.h"

namespace hone {
namespace {

constexpr int64_t tokens_per_piece = 16;

// Rotates pairs by +angle, or by -angle (the transpose, for backward).
void rotate(float* x, const float* cos_sin, const QkvShape& shape, float sign) {
  const int64_t half = shape.rotary_dim / 2, step = shape.interleaved ? 2 : 1, partner = shape.interleaved ? 1 : half;
  for (int64_t i = 0; i < half; ++i) {
    float *first = x + i * step, *second = first + partner;
    const float a = *first, b = *second, c = cos_sin[i], s = sign * cos_sin[i + half];
    *first = a * c - b * s;
    *second = b * c + a * s;
  }
}

// Writes a token's heads to the cache, encoded as e4m3 if it has scales.
void store(const Tensor& to, const Tensor& scale, int64_t slot, const float* from, int64_t heads, int64_t dim) {
  if (!scale) {
    std::copy_n(from, heads * dim, to.row<float>(slot));
    return;
  }
  for (int64_t h = 0; h < heads; ++h)
    scale.row<float>(slot)[h] = encode_row<Fp8Numbers>(to.row<uint8_t>(slot) + h * dim, from + h * dim, dim);
}

void forward(Context&, const QkvForward& args) {
  const int64_t tokens = args.qkv.dim(0), heads = args.shape.num_heads, kv_heads = args.shape.num_kv_heads,
                dim = args.shape.head_dim;
  const bool rotates = args.shape.rotary_dim > 0;
  check_qkv_forward(args, DType::f32);
  parallel_for(tokens, tokens_per_piece, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t h = 0; h < heads + kv_heads; ++h) {
        const bool is_query = h < heads;
        const float* in = args.qkv.row<float>(t) + h * dim;
        float* out = is_query ? args.q.row<float>(t) + h * dim : args.k.row<float>(t) + (h - heads) * dim;
        std::copy_n(in, dim, out);
        if (args.q_norm) {
          const float* weight = (is_query ? args.q_norm : args.k_norm).ptr<float>();
          double squares = 0;
          for (int64_t i = 0; i < dim; ++i) squares += double{in[i]} * in[i];
          const float scale =
              static_cast<float>(1 / std::sqrt(squares / static_cast<double>(dim) + double{args.shape.norm_eps}));
          for (int64_t i = 0; i < dim; ++i) out[i] = in[i] * scale * (weight[i] + args.shape.norm_offset);
          if (args.rstd) args.rstd.row<float>(t)[h] = scale;
        }
        if (rotates) rotate(out, args.cos_sin.row<float>(args.positions.ptr<int32_t>()[t]), args.shape, 1.0f);
      }
      if (args.cache.k) {
        const int64_t slot = args.cache.slots.ptr<int32_t>()[t];
        store(args.cache.k, args.cache.k_scale, slot, args.k.row<float>(t), kv_heads, dim);
        store(args.cache.v, args.cache.v_scale, slot, args.qkv.row<float>(t) + (heads + kv_heads) * dim, kv_heads, dim);
      }
    }
  });
}

// Backward of one head's norm, in place. On entry grad is the gradient of the normed head; on return it is the gradient
// of the head before the norm.
void norm_gradient(float* grad, const float* x, const float* weight, float offset, double scale, int64_t dim) {
  double dot = 0;
  for (int64_t i = 0; i < dim; ++i) dot += double{grad[i]} * (weight[i] + offset) * x[i];
  const double pull = dot * scale * scale / static_cast<double>(dim);
  for (int64_t i = 0; i < dim; ++i)
    grad[i] = static_cast<float>(scale * (double{grad[i]} * (weight[i] + offset) - pull * x[i]));
}

void backward(Context& context, const QkvBackward& args) {
  const int64_t tokens = args.qkv.dim(0), heads = args.shape.num_heads, kv_heads = args.shape.num_kv_heads,
                dim = args.shape.head_dim;
  const bool rotates = args.shape.rotary_dim > 0;
  check_qkv_backward(args, DType::f32);
  const int64_t pieces = (tokens + tokens_per_piece - 1) / tokens_per_piece;
  const bool weights = args.q_norm && args.dq_norm && (args.dk_norm || kv_heads == 0);
  const ScratchScope scope(context);
  // Weight gradients of the norms per range of tokens; added in ascending order below.
  const Tensor partial = weights ? context.scratch().take(DType::f32, {pieces, 2 * dim}) : Tensor();
  if (weights) context.zero(partial);
  parallel_for(tokens, tokens_per_piece, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t)
      for (int64_t h = 0; h < heads + kv_heads; ++h) {
        const bool is_query = h < heads;
        const float* x = args.qkv.row<float>(t) + h * dim;
        float* out = args.dqkv.row<float>(t) + h * dim;
        std::copy_n(is_query ? args.dq.row<float>(t) + h * dim : args.dk.row<float>(t) + (h - heads) * dim, dim, out);
        if (rotates) rotate(out, args.cos_sin.row<float>(args.positions.ptr<int32_t>()[t]), args.shape, -1.0f);
        if (!args.q_norm) continue;
        const float scale = args.rstd.row<float>(t)[h];
        if (weights) {
          float* sum = partial.row<float>(begin / tokens_per_piece) + (is_query ? 0 : dim);
          for (int64_t i = 0; i < dim; ++i) sum[i] += out[i] * x[i] * scale;
        }
        norm_gradient(out, x, (is_query ? args.q_norm : args.k_norm).ptr<float>(), args.shape.norm_offset, scale, dim);
      }
  });
  if (!weights) return;
  for (int64_t p = 0; p < pieces; ++p)
    for (int64_t i = 0; i < dim; ++i) {
      args.dq_norm.ptr<float>()[i] += partial.row<float>(p)[i];
      if (kv_heads > 0) args.dk_norm.ptr<float>()[i] += partial.row<float>(p)[dim + i];
    }
}

[[maybe_unused]] const bool added = qkv_forward.add({"specification", DeviceKind::cpu, forward}) &&
                                    qkv_backward.add({"specification", DeviceKind::cpu, backward});

}  // namespace
}  // namespace hone
