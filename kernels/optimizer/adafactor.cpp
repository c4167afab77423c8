// CPU specification of Adafactor's steps.
#include "kernels/optimizer/adafactor.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/base/parallel_for.h"
#include "kernels/optimizer/matrix_checks.h"

namespace hone {
namespace {

constexpr int64_t per_piece = int64_t{1} << 14;

float reciprocal_root(float x) { return 1 / std::sqrt(x); }

void factored(Context&, const AdafactorFactored& args) {
  check(args);
  const int64_t rows = args.grad.dim(0), cols = args.grad.dim(1);
  if (rows == 0 || cols == 0) return;
  const float clip = *args.clip.ptr<float>(), beta2 = args.step.beta2, rest = static_cast<float>(1 - double{beta2});
  const float* grad = args.grad.ptr<float>();
  float *row = args.row.ptr<float>(), *col = args.col.ptr<float>();
  const auto squared = [&](int64_t r, int64_t c) {
    const float g = grad[r * cols + c] * clip;
    return double{g * g + args.step.eps};
  };
  parallel_for(rows, std::max<int64_t>(1, per_piece / cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      double sum = 0;
      for (int64_t c = 0; c < cols; ++c) sum += squared(r, c);
      row[r] = row[r] * beta2 + rest * static_cast<float>(sum / static_cast<double>(cols));
    }
  });
  parallel_for(cols, std::max<int64_t>(1, per_piece / rows), [&](int64_t begin, int64_t end) {
    std::vector<double> sums(static_cast<size_t>(end - begin));
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = begin; c < end; ++c) sums[static_cast<size_t>(c - begin)] += squared(r, c);
    for (int64_t c = begin; c < end; ++c)
      col[c] =
          col[c] * beta2 + rest * static_cast<float>(sums[static_cast<size_t>(c - begin)] / static_cast<double>(rows));
  });
  double total = 0;
  for (int64_t r = 0; r < rows; ++r) total += row[r];
  const float mean = static_cast<float>(total / static_cast<double>(rows));
  parallel_for(rows, std::max<int64_t>(1, per_piece / cols), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float of_row = reciprocal_root(row[r] / mean);
      for (int64_t c = 0; c < cols; ++c)
        args.update.ptr<float>()[r * cols + c] = of_row * reciprocal_root(col[c]) * (grad[r * cols + c] * clip);
    }
  });
}

void vector(Context&, const AdafactorVector& args) {
  check(args);
  const float clip = *args.clip.ptr<float>(), rest = static_cast<float>(1 - double{args.step.beta2});
  parallel_for(args.grad.dim(0), per_piece, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const float g = args.grad.ptr<float>()[i] * clip;
      float& square = args.square.ptr<float>()[i];
      square = square * args.step.beta2 + rest * (g * g + args.step.eps);
      args.update.ptr<float>()[i] = reciprocal_root(square) * g;
    }
  });
}

void apply(Context&, const AdafactorApply& args) {
  check(args);
  const auto rms = [&](const Tensor& squares) {
    return static_cast<float>(std::sqrt(*squares.ptr<double>() / static_cast<double>(args.size)));
  };
  const float rate = args.value_squares ? args.rate * std::max(args.eps, rms(args.value_squares)) : args.rate;
  const float below = std::max(1.0f, rms(args.squares) / args.clip_threshold), decay = args.weight_decay * rate;
  parallel_for(args.value.dim(0), per_piece, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      float u = args.update.ptr<float>()[i] / below * rate;
      if (args.mean) {
        float& mean = args.mean.ptr<float>()[i];
        mean = mean * args.beta1 + (1 - args.beta1) * u;
        u = mean;
      }
      float& x = args.value.ptr<float>()[i];
      x = x - decay * x - u;
      if (args.rounded) args.rounded.ptr<bf16>()[i] = to_bf16(x);
    }
  });
}

[[maybe_unused]] const bool added = adafactor_factored.add({"specification", DeviceKind::cpu, factored}) &&
                                    adafactor_vector.add({"specification", DeviceKind::cpu, vector}) &&
                                    adafactor_apply.add({"specification", DeviceKind::cpu, apply});

}  // namespace
}  // namespace hone
