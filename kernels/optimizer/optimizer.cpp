// CPU specification of the optimizer updates and of the gradient norm.
#include "kernels/optimizer/optimizer.h"

#include <algorithm>
#include <cmath>

#include "core/base/parallel_for.h"
#include "kernels/check_shape.h"
#include "kernels/optimizer/internal.h"

namespace hone {
namespace {

constexpr int64_t per_piece = int64_t{1} << 14;

void squares_of_pieces(Context&, Tensor pieces, Tensor x, int64_t size) {
  check_pieces(pieces, x, size);
  const float* in = x.ptr<float>();
  for (int64_t p = 0; p < pieces.dim(0); ++p) {
    double squares = 0;
    for (int64_t i = p * size; i < std::min((p + 1) * size, x.dim(0)); ++i) squares += double{in[i]} * in[i];
    pieces.ptr<double>()[p] = squares;
  }
}

void add_pieces(Context&, Tensor sum, Tensor pieces) {
  check_pieces(sum, pieces);
  double total = 0;
  for (int64_t p = 0; p < pieces.dim(0); ++p) total += pieces.ptr<double>()[p];
  *sum.ptr<double>() = total;
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

void adamw(Context&, const AdamwUpdate& args) {
  check_range(adamw_update, args.range);
  check_moments(args.range, args.m, args.v);
  const float keep = static_cast<float>(1 - double{args.step.learning_rate} * args.step.weight_decay);
  const float rest1 = static_cast<float>(1 - double{args.step.beta1}),
              rest2 = static_cast<float>(1 - double{args.step.beta2});
  const float rate = static_cast<float>(double{args.step.learning_rate} / args.step.correction1),
              root = static_cast<float>(std::sqrt(double{args.step.correction2}));
  parallel_for(args.range.value.dim(0), per_piece, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float g = clipped(args.range, i), old1 = read_moment(args.m, i), old2 = read_moment(args.v, i);
      const float first = old1 + rest1 * (g - old1), second = old2 * args.step.beta2 + rest2 * g * g;
      float& x = master(args.range, i);
      x = x * (decays(args.range, i) ? keep : 1) - rate * first / (std::sqrt(second) / root + args.step.eps);
      publish(args.range, i);
      const uint32_t noise =
          args.m.dtype == DType::bf16 ? rounding_noise(args.step.seed, args.step.stream, args.range.first + i) : 0;
      write_moment(args.m, i, first, noise);
      write_moment(args.v, i, second, noise >> 16);
    }
  });
}

void sgd(Context&, const SgdUpdate& args) {
  check_range(sgd_update, args.range);
  if (args.step.momentum != 0) check_shape(sgd_update, "buffer", args.buffer, {args.range.value.dim(0)});
  float* velocity = args.step.momentum != 0 ? args.buffer.ptr<float>() : nullptr;
  parallel_for(args.range.value.dim(0), per_piece, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      float& x = master(args.range, i);
      float g = clipped(args.range, i) + (decays(args.range, i) ? args.step.weight_decay : 0) * x;
      if (args.step.momentum != 0) {
        velocity[i] = args.step.first ? g : args.step.momentum * velocity[i] + (1 - args.step.dampening) * g;
        g = args.step.nesterov ? g + args.step.momentum * velocity[i] : velocity[i];
      }
      x -= args.step.learning_rate * g;
      publish(args.range, i);
    }
  });
}

void rmsprop(Context&, const RmspropUpdate& args) {
  check_range(rmsprop_update, args.range);
  check_shape(rmsprop_update, "square", args.square, {args.range.value.dim(0)});
  float* mean = args.square.ptr<float>();
  parallel_for(args.range.value.dim(0), per_piece, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      float& x = master(args.range, i);
      const float g = clipped(args.range, i) + (decays(args.range, i) ? args.step.weight_decay : 0) * x;
      mean[i] = args.step.alpha * mean[i] + (1 - args.step.alpha) * g * g;
      x -= args.step.learning_rate * (g / (std::sqrt(mean[i]) + args.step.eps));
      publish(args.range, i);
    }
  });
}

void adagrad(Context&, const AdagradUpdate& args) {
  check_range(adagrad_update, args.range);
  check_shape(adagrad_update, "sum", args.sum, {args.range.value.dim(0)});
  float* sum = args.sum.ptr<float>();
  parallel_for(args.range.value.dim(0), per_piece, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      float& x = master(args.range, i);
      const float g = clipped(args.range, i) + (decays(args.range, i) ? args.step.weight_decay : 0) * x;
      sum[i] = (args.step.first ? args.step.initial : sum[i]) + g * g;
      x -= args.step.learning_rate * (g / (std::sqrt(sum[i]) + args.step.eps));
      publish(args.range, i);
    }
  });
}

void lion(Context&, const LionUpdate& args) {
  check_range(lion_update, args.range);
  check_mean(lion_update, args.m, args.range.value.dim(0));
  const float keep = static_cast<float>(1 - double{args.step.learning_rate} * args.step.weight_decay);
  const float rest1 = static_cast<float>(1 - double{args.step.beta1}),
              rest2 = static_cast<float>(1 - double{args.step.beta2});
  parallel_for(args.range.value.dim(0), per_piece, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float g = clipped(args.range, i), mean = read_moment(args.m, i);
      const float mix = mean * args.step.beta1 + g * rest1;
      const float sign = mix > 0 ? 1.0f : mix < 0 ? -1.0f : mix;  // 0 and NaN stay
      float& x = master(args.range, i);
      x = x * (decays(args.range, i) ? keep : 1) - args.step.learning_rate * sign;
      publish(args.range, i);
      const uint32_t noise =
          args.m.dtype == DType::bf16 ? rounding_noise(args.step.seed, args.step.stream, args.range.first + i) : 0;
      write_moment(args.m, i, mean * args.step.beta2 + g * rest2, noise);
    }
  });
}

[[maybe_unused]] const bool added = sum_squares.add({"specification", DeviceKind::cpu, squares_of_pieces}) &&
                                    sum_pieces.add({"specification", DeviceKind::cpu, add_pieces}) &&
                                    clip_factor.add({"specification", DeviceKind::cpu, clip_of}) &&
                                    adamw_update.add({"specification", DeviceKind::cpu, adamw}) &&
                                    sgd_update.add({"specification", DeviceKind::cpu, sgd}) &&
                                    rmsprop_update.add({"specification", DeviceKind::cpu, rmsprop}) &&
                                    adagrad_update.add({"specification", DeviceKind::cpu, adagrad}) &&
                                    lion_update.add({"specification", DeviceKind::cpu, lion});

}  // namespace
}  // namespace hone
