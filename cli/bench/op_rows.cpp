// Cases of the ops that read rows or flat ranges once. Memory bandwidth bounds them.
#include "cli/bench/op_bench.h"
#include "cli/bench/op_inputs.h"
#include "kernels/elementwise/activation.h"
#include "kernels/elementwise/cast.h"
#include "kernels/elementwise/embedding.h"
#include "kernels/norm/layernorm.h"
#include "kernels/norm/rmsnorm.h"
#include "kernels/optimizer/adafactor.h"
#include "kernels/optimizer/muon.h"
#include "kernels/optimizer/optimizer.h"
#include "kernels/rope/qkv.h"

namespace hone {
namespace {

struct Shape {
  int64_t R, D, F;  // rows, width, MLP width
};
std::vector<Shape> shapes(const Context& context) {
  if (context.kind() == DeviceKind::cpu) return {{1024, 768, 2048}};
  std::vector<Shape> out;
  for (const BenchModel& m : bench_models) out.push_back({bench_tokens, m.width, m.mlp});
  return out;
}

double bytes_of(const Tensor& x) { return static_cast<double>(x.bytes()); }

std::vector<BenchCase> norms(Context& context) {
  std::vector<BenchCase> out;
  for (const auto& [R, D, F] : shapes(context)) {
    const Tensor x = bench_numbers(context, {R, D}), y = bench_numbers(context, {R, D}),
                 dx = bench_numbers(context, {R, D}), w = bench_numbers(context, {D}), dw = bench_floats(context, {D}),
                 db = bench_floats(context, {D}), rstd = bench_floats(context, {R}), mean = bench_floats(context, {R});
    const double bytes = bytes_of(x);
    const std::string shape = concat(R, " x ", D);
    out.push_back(bench_case(rmsnorm_forward, context, shape, 0, 2 * bytes, y, rstd, x, w, 1e-5f, 0.0f));
    out.push_back(bench_case(rmsnorm_backward, context, shape, 0, 3 * bytes,
                             {.dx = dx, .dw = dw, .dy = y, .x = x, .rstd = rstd, .w = w, .accumulate = false}));
    if (context.kind() == DeviceKind::cpu) continue;
    out.push_back(bench_case(rmsnorm_backward, context, shape + " added", 0, 4 * bytes,
                             {.dx = dx, .dw = dw, .dy = y, .x = x, .rstd = rstd, .w = w, .accumulate = true}));
    out.push_back(bench_case(layernorm_forward, context, shape, 0, 2 * bytes,
                             {.y = y, .mean = mean, .rstd = rstd, .x = x, .w = w, .b = w, .eps = 1e-5f}));
    out.push_back(bench_case(
        layernorm_backward, context, shape + " added", 0, 4 * bytes,
        {.dx = dx, .dw = dw, .db = db, .dy = y, .x = x, .mean = mean, .rstd = rstd, .w = w, .accumulate = true}));
  }
  return out;
}

std::vector<BenchCase> activations(Context& context) {
  std::vector<BenchCase> out;
  for (const auto& [R, D, F] : shapes(context)) {
    const Tensor x = bench_numbers(context, {R, 2 * F}, 4), wide = bench_numbers(context, {R, 2 * F}),
                 y = bench_numbers(context, {R, F});
    const double bytes = bytes_of(y);
    const std::string shape = concat(R, " x ", F), wide_shape = concat(R, " x ", 2 * F);
    out.push_back(bench_case(glu_forward, context, shape, 0, 3 * bytes, y, x, Activation::silu));
    out.push_back(bench_case(glu_backward, context, shape, 0, 5 * bytes, wide, {}, y, x, Activation::silu));
    out.push_back(bench_case(activation_forward, context, wide_shape, 0, 4 * bytes, wide, x, Activation::gelu_tanh));
    if (context.kind() != DeviceKind::cpu)
      out.push_back(
          bench_case(activation_backward, context, wide_shape, 0, 6 * bytes, wide, wide, x, Activation::gelu_tanh));
  }
  return out;
}

// qkv_forward and qkv_backward.
std::vector<BenchCase> heads(Context& context) {
  std::vector<BenchCase> out;
  if (context.kind() == DeviceKind::cpu) return out;
  for (const BenchModel& m : bench_models) {
    const int64_t R = bench_tokens, H = m.heads, Hk = m.kv_heads, d = m.head_dim;
    std::vector<int32_t> places(static_cast<size_t>(R));
    for (int64_t r = 0; r < R; ++r) places[static_cast<size_t>(r)] = static_cast<int32_t>(r % 1024);
    const Tensor qkv = bench_numbers(context, {R, m.projected()}), dqkv = bench_numbers(context, {R, m.projected()}),
                 q = bench_numbers(context, {R, H, d}), k = bench_numbers(context, {R, Hk, d}),
                 positions = bench_values(context, places), cos_sin = bench_floats(context, {1024, d}),
                 rstd = bench_floats(context, {R, H + Hk}), norm = bench_numbers(context, {d}),
                 dnorm = bench_floats(context, {d});
    const QkvShape shape{.num_heads = H, .num_kv_heads = Hk, .head_dim = d, .rotary_dim = d, .norm_eps = 1e-6f};
    const double bytes = 2 * (bytes_of(q) + bytes_of(k));
    const std::string name = concat(R, " x ", H, "+", Hk, " heads of ", d);
    out.push_back(bench_case(qkv_forward, context, name, 0, bytes,
                             {.q = q, .k = k, .qkv = qkv, .positions = positions, .cos_sin = cos_sin, .shape = shape}));
    out.push_back(bench_case(qkv_forward, context, name + " normed", 0, bytes,
                             {.q = q,
                              .k = k,
                              .rstd = rstd,
                              .qkv = qkv,
                              .positions = positions,
                              .cos_sin = cos_sin,
                              .q_norm = norm,
                              .k_norm = norm,
                              .shape = shape}));
    out.push_back(bench_case(
        qkv_backward, context, name, 0, bytes,
        {.dqkv = dqkv, .dq = q, .dk = k, .qkv = qkv, .positions = positions, .cos_sin = cos_sin, .shape = shape}));
    out.push_back(bench_case(qkv_backward, context, name + " normed", 0, 1.5 * bytes,
                             {.dqkv = dqkv,
                              .dq_norm = dnorm,
                              .dk_norm = dnorm,
                              .dq = q,
                              .dk = k,
                              .rstd = rstd,
                              .qkv = qkv,
                              .positions = positions,
                              .cos_sin = cos_sin,
                              .q_norm = norm,
                              .k_norm = norm,
                              .shape = shape}));
  }
  return out;
}

std::vector<BenchCase> lookups(Context& context) {
  std::vector<BenchCase> out;
  if (context.kind() == DeviceKind::cpu) return out;
  for (const BenchModel& m : bench_models) {
    const int64_t R = bench_tokens, D = m.width, V = m.vocabulary;
    const Tensor table = bench_numbers(context, {V, D}), dtable = bench_floats(context, {V, D}),
                 ids = bench_ids(context, R, V), rows = bench_ids(context, R, R), y = bench_numbers(context, {R, D}),
                 x = bench_numbers(context, {R, D}), wide = bench_floats(context, {R, D});
    const double bytes = bytes_of(y);
    const std::string shape = concat(R, " x ", D);
    out.push_back(bench_case(embedding_forward, context, shape, 0, 2 * bytes, y, table, ids, false));
    out.push_back(bench_case(embedding_backward, context, shape, 0, 5 * bytes, dtable, y, ids));
    out.push_back(bench_case(gather_rows, context, shape, 0, 2 * bytes, y, x, rows));
    out.push_back(bench_case(scatter_rows, context, shape, 0, 2 * bytes, x, y, rows));
    out.push_back(bench_case(cast, context, shape, 0, 3 * bytes, y, wide));
    out.push_back(bench_case(add_into, context, shape, 0, 3 * bytes, y, x));
  }
  return out;
}

std::vector<BenchCase> updates(Context& context) {
  const bool cpu = context.kind() == DeviceKind::cpu;
  const int64_t n = int64_t{1} << (cpu ? 24 : 28);
  const Tensor value = bench_floats(context, {n}), m = bench_floats(context, {n}, 0), v = bench_floats(context, {n}, 0),
               grad = bench_floats(context, {n}), clip = bench_floats(context, {1}),
               update = bench_floats(context, {n}, 0);
  const Tensor pieces = context.scratch().take(DType::f64, {n / norm_piece});
  const auto numbers = static_cast<double>(n);
  const AdamwStep step{.learning_rate = 1e-4f};
  std::vector<BenchCase> out{bench_case(adamw_update, context, concat(n), 0, 28 * numbers,
                                        {.range = ParamRange{value, {}, grad, {}, clip}, .m = m, .v = v, .step = step}),
                             bench_case(sum_squares, context, concat(n), 0, 4 * numbers, pieces, grad, norm_piece)};
  out.push_back(bench_case(lion_update, context, concat(n), 0, 20 * numbers,
                           {.range = ParamRange{value, {}, grad, {}, clip}, .m = m, .step = {.learning_rate = 1e-4f}}));
  out.push_back(bench_case(muon_momentum, context, concat(n), 0, 16 * numbers,
                           {.update = update, .buffer = m, .grad = grad, .clip = clip, .step = {}}));
  const int64_t rows = int64_t{1} << 12, cols = n / rows;
  out.push_back(bench_case(adafactor_factored, context, concat(rows, " x ", cols), 0, 16 * numbers,
                           {.update = update.view({rows, cols}),
                            .row = bench_floats(context, {rows}, 0),
                            .col = bench_floats(context, {cols}, 0),
                            .grad = grad.view({rows, cols}),
                            .clip = clip,
                            .step = {.beta2 = 0.9f}}));
  if (cpu) return out;
  const Tensor rounded = bench_numbers(context, {n}), m16 = bench_numbers(context, {n}, 0),
               v16 = bench_numbers(context, {n}, 0);
  const ParamRange mixed{value, rounded, grad, {}, clip};
  out.push_back(bench_case(adamw_update, context, concat(n, " bf16"), 0, 30 * numbers,
                           {.range = mixed, .m = m, .v = v, .step = step}));
  out.push_back(bench_case(adamw_update, context, concat(n, " bf16, bf16 moments"), 0, 22 * numbers,
                           {.range = mixed, .m = m16, .v = v16, .step = step}));
  return out;
}

[[maybe_unused]] const bool added = bench_cases().add("rmsnorm_layernorm", norms) &&
                                    bench_cases().add("activation", activations) && bench_cases().add("qkv", heads) &&
                                    bench_cases().add("lookups", lookups) && bench_cases().add("optimizer", updates);

}  // namespace
}  // namespace hone
