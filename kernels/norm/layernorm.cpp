// CPU bodies of layernorm_forward and layernorm_backward, with f64 sums per row.
#include "kernels/norm/layernorm.h"

#include <cmath>

#include "core/base/parallel_for.h"
#include "kernels/check_shape.h"

namespace hone {
namespace {

constexpr int64_t rows_per_piece = 16;

void forward(Context&, const LayernormForward& args) {
  const int64_t rows = args.x.dim(0), dim = args.x.dim(1);
  check_shape(layernorm_forward, "x", args.x, {rows, dim});
  check_shape(layernorm_forward, "y", args.y, {rows, dim});
  check_shape(layernorm_forward, "w", args.w, {dim});
  check_optional(layernorm_forward, "b", args.b, {dim});
  check_optional(layernorm_forward, "mean", args.mean, {rows});
  check_optional(layernorm_forward, "rstd", args.rstd, {rows});
  const float *weight = args.w.ptr<float>(), *bias = args.b.ptr<float>();
  parallel_for(rows, rows_per_piece, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float* in = args.x.row<float>(r);
      float* out = args.y.row<float>(r);
      double sum = 0, squares = 0;
      for (int64_t i = 0; i < dim; ++i) sum += in[i];
      const float center = static_cast<float>(sum / static_cast<double>(dim));
      for (int64_t i = 0; i < dim; ++i) squares += (double{in[i]} - center) * (double{in[i]} - center);
      const float scale = static_cast<float>(1 / std::sqrt(squares / static_cast<double>(dim) + double{args.eps}));
      for (int64_t i = 0; i < dim; ++i) out[i] = (in[i] - center) * scale * weight[i] + (bias ? bias[i] : 0.0f);
      if (args.mean) args.mean.ptr<float>()[r] = center;
      if (args.rstd) args.rstd.ptr<float>()[r] = scale;
    }
  });
}

// With n = (x - mean) * rstd and g = dy * w: dx = rstd * (g - mean(g) - n * mean(g * n)), dw = sum of dy * n, db = sum
// of dy.
void backward(Context&, const LayernormBackward& args) {
  const int64_t rows = args.x.dim(0), dim = args.x.dim(1);
  check_shape(layernorm_backward, "x", args.x, {rows, dim});
  check_shape(layernorm_backward, "dx", args.dx, {rows, dim});
  check_shape(layernorm_backward, "dy", args.dy, {rows, dim});
  check_shape(layernorm_backward, "w", args.w, {dim});
  check_optional(layernorm_backward, "dw", args.dw, {dim});
  check_optional(layernorm_backward, "db", args.db, {dim});
  check_shape(layernorm_backward, "mean", args.mean, {rows});
  check_shape(layernorm_backward, "rstd", args.rstd, {rows});
  const float *weight = args.w.ptr<float>(), *centers = args.mean.ptr<float>(), *scales = args.rstd.ptr<float>();
  parallel_for(rows, rows_per_piece, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float *in = args.x.row<float>(r), *grad = args.dy.row<float>(r);
      float* out = args.dx.row<float>(r);
      const double center = centers[r], scale = scales[r];
      double sum = 0, dot = 0;
      for (int64_t i = 0; i < dim; ++i) {
        const double g = double{grad[i]} * weight[i];
        sum += g;
        dot += g * (in[i] - center) * scale;
      }
      sum /= static_cast<double>(dim);
      dot /= static_cast<double>(dim);
      for (int64_t i = 0; i < dim; ++i) {
        const float value =
            static_cast<float>(scale * (double{grad[i]} * weight[i] - sum - (in[i] - center) * scale * dot));
        out[i] = args.accumulate ? out[i] + value : value;
      }
    }
  });
  constexpr int64_t columns_per_piece = 64;  // a column adds its rows in ascending order, whichever thread computes it
  parallel_for(dim, columns_per_piece, [&](int64_t begin, int64_t end) {
    for (int64_t r = 0; r < rows; ++r) {
      const float *in = args.x.row<float>(r), *grad = args.dy.row<float>(r);
      if (args.dw)
        for (int64_t i = begin; i < end; ++i) args.dw.ptr<float>()[i] += grad[i] * ((in[i] - centers[r]) * scales[r]);
      if (args.db)
        for (int64_t i = begin; i < end; ++i) args.db.ptr<float>()[i] += grad[i];
    }
  });
}

[[maybe_unused]] const bool added = layernorm_forward.add({"specification", DeviceKind::cpu, forward}) &&
                                    layernorm_backward.add({"specification", DeviceKind::cpu, backward});

}  // namespace
}  // namespace hone
