// Cases of the ops that go through rows or flat ranges once: reading and writing memory bounds them.
#include "kernels/activation.h"
#include "kernels/bench.h"
#include "kernels/bench_inputs.h"
#include "kernels/optimizer.h"
#include "kernels/rmsnorm.h"

namespace hone {
namespace {

std::vector<BenchCase> norms(Context& context) {
  const int64_t R = 1024, D = 768;
  const Tensor x = bench_floats(context, {R, D}), y = bench_floats(context, {R, D}), dx = bench_floats(context, {R, D}),
               w = bench_floats(context, {D}), dw = bench_floats(context, {D}), rstd = bench_floats(context, {R});
  const double bytes = 4.0 * static_cast<double>(R * D);
  const std::string shape = concat(R, " x ", D);
  return {bench_case(rmsnorm_forward, context, shape, 0, 2 * bytes, y, rstd, x, w, 1e-5f),
          bench_case(rmsnorm_backward, context, shape, 0, 3 * bytes, dx, dw, y, x, rstd, w, false)};
}

std::vector<BenchCase> activations(Context& context) {
  const int64_t R = 1024, F = 2048;
  const Tensor x = bench_floats(context, {R, 2 * F}, 4), wide = bench_floats(context, {R, 2 * F}), y = bench_floats(context, {R, F});
  const double bytes = 4.0 * static_cast<double>(R * F);
  const std::string shape = concat(R, " x ", F), wide_shape = concat(R, " x ", 2 * F);
  return {bench_case(swiglu_forward, context, shape, 0, 3 * bytes, y, x), bench_case(swiglu_backward, context, shape, 0, 5 * bytes, wide, y, x),
          bench_case(gelu_forward, context, wide_shape, 0, 4 * bytes, wide, x)};
}

std::vector<BenchCase> updates(Context& context) {
  const int64_t n = int64_t{1} << 24;
  const Tensor value = bench_floats(context, {n}), m = bench_floats(context, {n}, 0), v = bench_floats(context, {n}, 0),
               grad = bench_floats(context, {n}), clip = bench_floats(context, {1});
  const Tensor sum = context.scratch().take(DType::f64, {1});
  context.zero(sum);
  const double bytes = 4.0 * static_cast<double>(n);
  return {bench_case(adamw_update, context, concat(n), 0, 7 * bytes, ParamRange{value, {}, grad, {}, clip}, m, v, AdamwStep{.learning_rate = 1e-4f}),
          bench_case(sum_squares, context, concat(n), 0, bytes, sum, grad)};
}

[[maybe_unused]] const bool added =
    bench_cases().add("rmsnorm", norms) && bench_cases().add("activation", activations) && bench_cases().add("optimizer", updates);

}  // namespace
}  // namespace hone
