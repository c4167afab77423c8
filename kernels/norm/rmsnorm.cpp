// CPU specification of rmsnorm_forward and rmsnorm_backward.
#include "kernels/norm/rmsnorm.h"

#include <cmath>

#include "kernels/check_shape.h"

namespace hone {
namespace {

void forward(Context&, Tensor y, Tensor rstd, Tensor x, Tensor w, float eps, float offset) {
  const int64_t rows = x.dim(0), dim = x.dim(1);
  check_shape(rmsnorm_forward, "x", x, {rows, dim});
  check_shape(rmsnorm_forward, "y", y, {rows, dim});
  check_shape(rmsnorm_forward, "w", w, {dim});
  check_optional(rmsnorm_forward, "rstd", rstd, {rows});
  const float* weight = w.ptr<float>();
  for (int64_t r = 0; r < rows; ++r) {
    const float* in = x.row<float>(r);
    float* out = y.row<float>(r);
    double squares = 0;
    for (int64_t i = 0; i < dim; ++i) squares += double{in[i]} * in[i];
    const float scale = static_cast<float>(1 / std::sqrt(squares / static_cast<double>(dim) + double{eps}));
    for (int64_t i = 0; i < dim; ++i) out[i] = in[i] * scale * (weight[i] + offset);
    if (rstd) rstd.ptr<float>()[r] = scale;
  }
}

// With g = dy * (w + offset): dx = rstd * (g - x * rstd^2 * mean(g * x)),  dw = sum over rows of dy * x * rstd.
void backward(Context&, const RmsnormBackward& args) {
  const int64_t rows = args.x.dim(0), dim = args.x.dim(1);
  check_shape(rmsnorm_backward, "x", args.x, {rows, dim});
  check_shape(rmsnorm_backward, "dx", args.dx, {rows, dim});
  check_shape(rmsnorm_backward, "dy", args.dy, {rows, dim});
  check_shape(rmsnorm_backward, "w", args.w, {dim});
  check_optional(rmsnorm_backward, "dw", args.dw, {dim});
  check_shape(rmsnorm_backward, "rstd", args.rstd, {rows});
  const float* weight = args.w.ptr<float>();
  for (int64_t r = 0; r < rows; ++r) {
    const float *in = args.x.row<float>(r), *grad = args.dy.row<float>(r);
    float* out = args.dx.row<float>(r);
    const double scale = args.rstd.ptr<float>()[r];
    double dot = 0;
    for (int64_t i = 0; i < dim; ++i) dot += double{grad[i]} * (weight[i] + args.offset) * in[i];
    const double pull = dot * scale * scale / static_cast<double>(dim);
    for (int64_t i = 0; i < dim; ++i) {
      const float value = static_cast<float>(scale * (double{grad[i]} * (weight[i] + args.offset) - pull * in[i]));
      out[i] = args.accumulate ? out[i] + value : value;
      if (args.dw) args.dw.ptr<float>()[i] += static_cast<float>(double{grad[i]} * in[i] * scale);
    }
  }
}

[[maybe_unused]] const bool added = rmsnorm_forward.add({"specification", DeviceKind::cpu, forward}) &&
                                    rmsnorm_backward.add({"specification", DeviceKind::cpu, backward});

}  // namespace
}  // namespace hone
