#include "kernels/optimizer.h"

#include <cmath>

#include "core/parallel_for.h"
#include "kernels/check_shape.h"

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

void adamw(Context&, Tensor value, Tensor m, Tensor v, Tensor grad, Tensor clip, AdamwStep step) {
  const int64_t count = value.dim(0);
  check_shape(adamw_update, "value", value, {count});
  check_shape(adamw_update, "m", m, {count});
  check_shape(adamw_update, "v", v, {count});
  check_shape(adamw_update, "grad", grad, {count});
  check_shape(adamw_update, "clip", clip, {1});
  float *x = value.ptr<float>(), *first = m.ptr<float>(), *second = v.ptr<float>();
  const float *gradient = grad.ptr<float>(), factor = *clip.ptr<float>();
  const float keep = static_cast<float>(1 - double{step.learning_rate} * step.weight_decay);
  const float rest1 = static_cast<float>(1 - double{step.beta1}), rest2 = static_cast<float>(1 - double{step.beta2});
  const float rate = static_cast<float>(double{step.learning_rate} / step.correction1),
              root = static_cast<float>(std::sqrt(double{step.correction2}));
  for (int64_t i = 0; i < count; ++i) {
    const float g = gradient[i] * factor;
    first[i] = first[i] + rest1 * (g - first[i]);
    second[i] = second[i] * step.beta2 + rest2 * g * g;
    x[i] = x[i] * keep - rate * first[i] / (std::sqrt(second[i]) / root + step.eps);
  }
}

void sgd(Context&, Tensor value, Tensor buffer, Tensor grad, Tensor clip, SgdStep step) {
  const int64_t count = value.dim(0);
  check_shape(sgd_update, "value", value, {count});
  check_shape(sgd_update, "grad", grad, {count});
  check_shape(sgd_update, "clip", clip, {1});
  if (step.momentum != 0) check_shape(sgd_update, "buffer", buffer, {count});
  float *x = value.ptr<float>(), *velocity = buffer.ptr<float>();
  const float *gradient = grad.ptr<float>(), factor = *clip.ptr<float>();
  parallel_for(count, per_piece, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      float g = gradient[i] * factor + step.weight_decay * x[i];
      if (step.momentum != 0) {
        velocity[i] = step.first ? g : step.momentum * velocity[i] + (1 - step.dampening) * g;
        g = step.nesterov ? g + step.momentum * velocity[i] : velocity[i];
      }
      x[i] -= step.learning_rate * g;
    }
  });
}

void rmsprop(Context&, Tensor value, Tensor square, Tensor grad, Tensor clip, RmspropStep step) {
  const int64_t count = value.dim(0);
  check_shape(rmsprop_update, "value", value, {count});
  check_shape(rmsprop_update, "square", square, {count});
  check_shape(rmsprop_update, "grad", grad, {count});
  check_shape(rmsprop_update, "clip", clip, {1});
  float *x = value.ptr<float>(), *mean = square.ptr<float>();
  const float *gradient = grad.ptr<float>(), factor = *clip.ptr<float>();
  parallel_for(count, per_piece, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float g = gradient[i] * factor + step.weight_decay * x[i];
      mean[i] = step.alpha * mean[i] + (1 - step.alpha) * g * g;
      x[i] -= step.learning_rate * (g / (std::sqrt(mean[i]) + step.eps));
    }
  });
}

[[maybe_unused]] const bool added =
    sum_squares.add({"specification", DeviceKind::cpu, add_squares}) && clip_factor.add({"specification", DeviceKind::cpu, clip_of}) &&
    adamw_update.add({"specification", DeviceKind::cpu, adamw}) && sgd_update.add({"specification", DeviceKind::cpu, sgd}) &&
    rmsprop_update.add({"specification", DeviceKind::cpu, rmsprop});

}  // namespace
}  // namespace hone
