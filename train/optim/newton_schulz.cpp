#include "train/optim/newton_schulz.h"

#include <algorithm>

#include "kernels/elementwise/cast.h"
#include "kernels/gemm/gemm.h"
#include "kernels/optimizer/muon.h"
#include "train/optim/tensor_parts.h"

namespace hone {

Orthogonal orthogonalize(Context& context, Tensor update, const NewtonSchulz& settings) {
  const int64_t rows = update.dim(0), cols = update.dim(1), m = std::min(rows, cols), n = std::max(rows, cols);
  const bool transposed = rows < cols, is_f32 = settings.dtype == DType::f32;
  Arena& scratch = context.scratch();
  const Tensor x = scratch.take(settings.dtype, {n, m});
  const ScratchScope scope(context);
  const Tensor gram = scratch.take(DType::f32, {m, m}), a = is_f32 ? gram : scratch.take(settings.dtype, {m, m});
  const Tensor square = scratch.take(settings.dtype, {m, m}), product = scratch.take(settings.dtype, {n, m});
  muon_normalize(context, {.x = x,
                           .update = update,
                           .squares = sum_of_squares(context, update.view({rows * cols})),
                           .eps = settings.eps,
                           .transposed = transposed});
  for (int64_t step = 0; step < settings.steps; ++step) {
    context.zero(gram);
    gemm_backward_weight(context, gram, Tensor(), x, x);
    if (!is_f32) cast(context, a, gram);
    gemm_backward_input(context, square, a, a);
    scaled_sum(context, {.y = a.view({m * m}), .x = square.view({m * m}), .a = settings.b, .b = settings.c});
    gemm_backward_input(context, product, x, a);
    scaled_sum(context, {.y = x.view({n * m}), .x = product.view({n * m}), .a = settings.a, .b = 1});
  }
  return {x, transposed};
}

}  // namespace hone
