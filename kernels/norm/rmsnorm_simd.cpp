// rmsnorm_forward and rmsnorm_backward on the CPU with SIMD (Google Highway).
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/norm/rmsnorm_simd.cpp"
#include <hwy/foreach_target.h>

#include <cmath>

#include "kernels/cpu/row-inl.h"
#include "kernels/norm/rmsnorm.h"

HWY_BEFORE_NAMESPACE();
namespace hone::HWY_NAMESPACE {

void rmsnorm_rows(Tensor y, Tensor rstd, Tensor x, const float* w, float eps, float offset, int64_t begin,
                  int64_t end) {
  const RowTag d;
  const int64_t dim = x.dim(1);
  const RowVector shift = hn::Set(d, offset);
  for (int64_t r = begin; r < end; ++r) {
    const float* in = x.row<float>(r);
    float* out = y.row<float>(r);
    RowSum squares;
    for_each_vector(dim, [&](int64_t i, auto lanes) {
      const RowVector v = lanes.load(in + i);
      squares.at(i) = hn::MulAdd(v, v, squares.at(i));
    });
    const float scale =
        static_cast<float>(1 / std::sqrt(double{squares.total()} / static_cast<double>(dim) + double{eps}));
    const RowVector factor = hn::Set(d, scale);
    for_each_vector(dim, [&](int64_t i, auto lanes) {
      const RowVector weight = hn::Add(lanes.load(w + i), shift);
      lanes.store(hn::Mul(hn::Mul(lanes.load(in + i), factor), weight), out + i);
    });
    if (rstd) rstd.ptr<float>()[r] = scale;
  }
}

// dw [dim] of these rows is added to, unless nullptr.
void rmsnorm_gradient_rows(Tensor dx, float* dw, Tensor dy, Tensor x, const float* rstd, const float* w, float offset,
                           bool accumulate, int64_t begin, int64_t end) {
  const RowTag d;
  const int64_t dim = x.dim(1);
  const RowVector shift = hn::Set(d, offset);
  for (int64_t r = begin; r < end; ++r) {
    const float *in = x.row<float>(r), *grad = dy.row<float>(r);
    float* out = dx.row<float>(r);
    RowSum dot;
    for_each_vector(dim, [&](int64_t i, auto lanes) {
      const RowVector weight = hn::Add(lanes.load(w + i), shift);
      dot.at(i) = hn::MulAdd(hn::Mul(lanes.load(grad + i), weight), lanes.load(in + i), dot.at(i));
    });
    const RowVector scale = hn::Set(d, rstd[r]),
                    pull = hn::Set(d, dot.total() * rstd[r] * rstd[r] / static_cast<float>(dim));
    for_each_vector(dim, [&](int64_t i, auto lanes) {
      const RowVector g = lanes.load(grad + i), v = lanes.load(in + i);
      const RowVector weight = hn::Add(lanes.load(w + i), shift);
      const RowVector value = hn::Mul(scale, hn::NegMulAdd(pull, v, hn::Mul(g, weight)));
      if (dw) lanes.store(hn::MulAdd(g, hn::Mul(v, scale), lanes.load(dw + i)), dw + i);
      lanes.store(accumulate ? hn::Add(lanes.load(out + i), value) : value, out + i);
    });
  }
}

}  // namespace hone::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "core/base/parallel_for.h"
#include "kernels/check_shape.h"

namespace hone {
namespace {

HWY_EXPORT(rmsnorm_rows);
HWY_EXPORT(rmsnorm_gradient_rows);

void forward(Context&, Tensor y, Tensor rstd, Tensor x, Tensor w, float eps, float offset) {
  const int64_t rows = x.dim(0), dim = x.dim(1);
  check_shape(rmsnorm_forward, "x", x, {rows, dim});
  check_shape(rmsnorm_forward, "y", y, {rows, dim});
  check_shape(rmsnorm_forward, "w", w, {dim});
  check_optional(rmsnorm_forward, "rstd", rstd, {rows});
  parallel_for(rows, 16, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(rmsnorm_rows)(y, rstd, x, w.ptr<float>(), eps, offset, begin, end);
  });
}

void backward(Context& context, const RmsnormBackward& args) {
  const int64_t rows = args.x.dim(0), dim = args.x.dim(1);
  check_shape(rmsnorm_backward, "x", args.x, {rows, dim});
  check_shape(rmsnorm_backward, "dx", args.dx, {rows, dim});
  check_shape(rmsnorm_backward, "dy", args.dy, {rows, dim});
  check_shape(rmsnorm_backward, "w", args.w, {dim});
  check_optional(rmsnorm_backward, "dw", args.dw, {dim});
  check_shape(rmsnorm_backward, "rstd", args.rstd, {rows});
  constexpr int64_t piece = 64;
  const int64_t pieces = (rows + piece - 1) / piece;
  const ScratchScope scope(context);
  const Tensor partial = args.dw ? context.scratch().take(DType::f32, {pieces, dim}) : Tensor();  // dw of each part
  if (args.dw) context.zero(partial);
  parallel_for(rows, piece, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(rmsnorm_gradient_rows)
    (args.dx, args.dw ? partial.row<float>(begin / piece) : nullptr, args.dy, args.x, args.rstd.ptr<float>(),
     args.w.ptr<float>(), args.offset, args.accumulate, begin, end);
  });
  if (!args.dw) return;
  for (int64_t p = 0; p < pieces; ++p)
    for (int64_t i = 0; i < dim; ++i) args.dw.ptr<float>()[i] += partial.row<float>(p)[i];
}

[[maybe_unused]] const bool added = rmsnorm_forward.add({"simd", DeviceKind::cpu, forward, 10}) &&
                                    rmsnorm_backward.add({"simd", DeviceKind::cpu, backward, 10});

}  // namespace
}  // namespace hone
#endif
