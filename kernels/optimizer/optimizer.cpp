// CPU specification of the optimizer updates and of the gradient norm.
#include "kernels/optimizer/optimizer.h"

#include <cmath>

#include "core/base/parallel_for.h"
#include "kernels/check_shape.h"
#include "kernels/optimizer/optimizer_range.h"
#include "kernels/optimizer/stochastic_rounding.h"

namespace hone {
namespace {

constexpr int64_t per_piece = int64_t{1} << 14;

void add_squares(Context&, Tensor sum, Tensor x) {
  check_shape(sum_squares, "sum", sum, {1}, DType::f64);
  check_shape(sum_squares, "x", x, {x.dim(0)});
  const float* in = x.ptr<float>();
  *sum.ptr<double>() += ordered_sum(x.dim(0), per_piece, [&](int64_t begin, int64_t end) {
    double squares = 0;
    for (int64_t i = begin; i < end; ++i) squares += double{in[i]} * in[i];
    return squares;
  });
}

void clip_of(Context&, Tensor clip, Tensor norm, Tensor sum, float max_norm) {
  check_shape(clip_factor, "clip", clip, {1});
  check_shape(clip_factor, "norm", norm, {1});
  check_shape(clip_factor, "sum", sum, {1}, DType::f64);
  const double root = std::sqrt(*sum.ptr<double>());
  const double factor = max_norm > 0 ? double{max_norm} / (root + 1e-6) : 1;
  *norm.ptr<float>() = static_cast<float>(root);
  *clip.ptr<float>() = static_cast<float>(factor > 1 ? 1 : factor);  // NaN stays NaN
}

float& master(const ParamRange& range, int64_t i) { return range.value.ptr<float>()[i]; }
float clipped(const ParamRange& range, int64_t i) { return range.grad.ptr<float>()[i] * *range.clip.ptr<float>(); }
// Completes the update of element i: writes the bf16 copy.
void publish(const ParamRange& range, int64_t i) {
  if (range.rounded) range.rounded.ptr<bf16>()[i] = to_bf16(master(range, i));
}

float read(const Tensor& moment, int64_t i) {
  return moment.dtype == DType::bf16 ? to_float(moment.ptr<bf16>()[i]) : moment.ptr<float>()[i];
}
void write(const Tensor& moment, int64_t i, float x, uint32_t noise) {
  if (moment.dtype == DType::bf16)
    moment.ptr<bf16>()[i] = to_bf16(stochastic_bf16(x, noise));
  else
    moment.ptr<float>()[i] = x;
}

void adamw(Context&, ParamRange range, Tensor m, Tensor v, AdamwStep step) {
  check_range(adamw_update, range);
  check_moments(range, m, v);
  const float keep = static_cast<float>(1 - double{step.learning_rate} * step.weight_decay);
  const float rest1 = static_cast<float>(1 - double{step.beta1}), rest2 = static_cast<float>(1 - double{step.beta2});
  const float rate = static_cast<float>(double{step.learning_rate} / step.correction1),
              root = static_cast<float>(std::sqrt(double{step.correction2}));
  parallel_for(range.value.dim(0), per_piece, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float g = clipped(range, i), old1 = read(m, i), old2 = read(v, i);
      const float first = old1 + rest1 * (g - old1), second = old2 * step.beta2 + rest2 * g * g;
      float& x = master(range, i);
      x = x * (decays(range, i) ? keep : 1) - rate * first / (std::sqrt(second) / root + step.eps);
      publish(range, i);
      const uint32_t noise =
          m.dtype == DType::bf16 ? philox(step.seed, step.stream, static_cast<uint64_t>(i / 4)).word[i % 4] : 0;
      write(m, i, first, noise);
      write(v, i, second, noise >> 16);
    }
  });
}

void sgd(Context&, ParamRange range, Tensor buffer, SgdStep step) {
  check_range(sgd_update, range);
  if (step.momentum != 0) check_shape(sgd_update, "buffer", buffer, {range.value.dim(0)});
  float* velocity = step.momentum != 0 ? buffer.ptr<float>() : nullptr;
  parallel_for(range.value.dim(0), per_piece, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      float& x = master(range, i);
      float g = clipped(range, i) + (decays(range, i) ? step.weight_decay : 0) * x;
      if (step.momentum != 0) {
        velocity[i] = step.first ? g : step.momentum * velocity[i] + (1 - step.dampening) * g;
        g = step.nesterov ? g + step.momentum * velocity[i] : velocity[i];
      }
      x -= step.learning_rate * g;
      publish(range, i);
    }
  });
}

void rmsprop(Context&, ParamRange range, Tensor square, RmspropStep step) {
  check_range(rmsprop_update, range);
  check_shape(rmsprop_update, "square", square, {range.value.dim(0)});
  float* mean = square.ptr<float>();
  parallel_for(range.value.dim(0), per_piece, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      float& x = master(range, i);
      const float g = clipped(range, i) + (decays(range, i) ? step.weight_decay : 0) * x;
      mean[i] = step.alpha * mean[i] + (1 - step.alpha) * g * g;
      x -= step.learning_rate * (g / (std::sqrt(mean[i]) + step.eps));
      publish(range, i);
    }
  });
}

[[maybe_unused]] const bool added = sum_squares.add({"specification", DeviceKind::cpu, add_squares}) &&
                                    clip_factor.add({"specification", DeviceKind::cpu, clip_of}) &&
                                    adamw_update.add({"specification", DeviceKind::cpu, adamw}) &&
                                    sgd_update.add({"specification", DeviceKind::cpu, sgd}) &&
                                    rmsprop_update.add({"specification", DeviceKind::cpu, rmsprop});

}  // namespace
}  // namespace hone
