// Cases of the matrix products. CPU: the layers of a 124M model at 512 tokens, few rows as in decoding, and oneDNN's
// sgemm on the same numbers. GPU: the layers of the benchmarked models at a micro-batch of tokens, and few rows.
#include <dnnl.h>

#include "cli/bench/op_bench.h"
#include "cli/bench/op_inputs.h"
#include "core/base/parallel_for.h"
#include "kernels/gemm/gemm.h"

extern "C" void omp_set_num_threads(int count);  // of libgomp, which runs oneDNN's threads

namespace hone {
namespace {

struct Shape {
  int64_t M, N, K;
  double flops() const { return 2.0 * static_cast<double>(M) * static_cast<double>(N) * static_cast<double>(K); }
  double bytes(DType dtype) const {
    return static_cast<double>(size_of(dtype)) * static_cast<double>(M * K + N * K + M * N);
  }
  std::string text() const { return concat(M, " x ", N, " x ", K); }
};

// Uses all of oneDNN's threads, as a direct call of oneDNN does.
void onednn(const Shape& s, Tensor y, Tensor x, Tensor w) {
  omp_set_num_threads(num_threads());
  const dnnl_status_t status =
      dnnl_sgemm('N', 'T', s.M, s.N, s.K, 1, x.ptr<float>(), s.K, w.ptr<float>(), s.K, 0, y.ptr<float>(), s.N);
  omp_set_num_threads(1);
  HONE_CHECK(status == dnnl_success, "oneDNN: sgemm returned status ", static_cast<int>(status));
}

// The layers of the benchmarked models: q, k and v; attention output; gate and up; down.
std::vector<Shape> layers(int64_t rows) {
  std::vector<Shape> out;
  for (const BenchModel& m : bench_models)
    for (const Shape& s : {Shape{rows, m.projected(), m.width},
                           {rows, m.width, m.heads * m.head_dim},
                           {rows, 2 * m.mlp, m.width},
                           {rows, m.width, m.mlp}})
      out.push_back(s);
  return out;
}

std::vector<Shape> forward_shapes(const Context& context) {
  if (context.kind() == DeviceKind::cpu)
    return {{512, 768, 768}, {512, 3072, 768}, {512, 768, 3072}, {512, 50257, 768}, {64, 3072, 768},
            {16, 3072, 768}, {1, 3072, 768},   {8, 65536, 2048}, {1, 65536, 2048}};
  std::vector<Shape> out = layers(bench_tokens);
  for (const int64_t rows : {256, 64, 1})
    for (const Shape& s : layers(rows)) out.push_back(s);
  return out;
}

std::vector<BenchCase> forward(Context& context) {
  std::vector<BenchCase> out;
  for (const Shape& s : forward_shapes(context)) {
    const Tensor y = bench_numbers(context, {s.M, s.N}), x = bench_numbers(context, {s.M, s.K}),
                 w = bench_numbers(context, {s.N, s.K});
    BenchCase one = bench_case(gemm_forward, context, s.text(), s.flops(), s.bytes(y.dtype), {.y = y, .x = x, .w = w});
    if (context.kind() == DeviceKind::cpu) one.bodies.push_back({"(oneDNN sgemm)", [=] { onednn(s, y, x, w); }});
    out.push_back(std::move(one));
  }
  return out;
}

std::vector<BenchCase> backward(Context& context) {
  std::vector<BenchCase> out;
  const bool cpu = context.kind() == DeviceKind::cpu;
  for (const Shape& s :
       cpu ? std::vector<Shape>{{512, 768, 768}, {512, 3072, 768}, {512, 50257, 768}} : layers(bench_tokens)) {
    const Tensor dy = bench_numbers(context, {s.M, s.N}), x = bench_numbers(context, {s.M, s.K}),
                 w = bench_numbers(context, {s.N, s.K}), dw = bench_floats(context, {s.N, s.K});
    out.push_back(bench_case(gemm_backward_input, context, s.text(), s.flops(), s.bytes(dy.dtype), x, dy, w));
    out.push_back(bench_case(gemm_backward_weight, context, s.text(), s.flops(), s.bytes(dy.dtype), dw, {}, dy, x));
  }
  return out;
}

[[maybe_unused]] const bool added =
    bench_cases().add("gemm_forward", forward) && bench_cases().add("gemm_backward", backward);

}  // namespace
}  // namespace hone
