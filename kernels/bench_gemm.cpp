// Cases of the matrix products: the layers of a 124M model at 512 tokens, few rows as in decoding, and oneDNN's sgemm on the same numbers.
#include <dnnl.h>

#include "core/parallel_for.h"
#include "kernels/bench.h"
#include "kernels/bench_inputs.h"
#include "kernels/gemm.h"

extern "C" void omp_set_num_threads(int count);  // libgomp, which oneDNN runs on

namespace hone {
namespace {

struct Shape {
  int64_t M, N, K;
  double flops() const { return 2.0 * static_cast<double>(M) * static_cast<double>(N) * static_cast<double>(K); }
  double bytes() const { return 4.0 * static_cast<double>(M * K + N * K + M * N); }
  std::string text() const { return concat(M, " x ", N, " x ", K); }
};

// With all threads of its own, as a program that calls oneDNN directly would have it.
void onednn(const Shape& s, Tensor y, Tensor x, Tensor w) {
  omp_set_num_threads(num_threads());
  const dnnl_status_t status = dnnl_sgemm('N', 'T', s.M, s.N, s.K, 1, x.ptr<float>(), s.K, w.ptr<float>(), s.K, 0, y.ptr<float>(), s.N);
  omp_set_num_threads(1);
  HONE_CHECK(status == dnnl_success, "oneDNN: sgemm returned status ", static_cast<int>(status));
}

std::vector<BenchCase> forward(Context& context) {
  std::vector<BenchCase> out;
  for (const Shape& s : {Shape{512, 768, 768},
                         {512, 3072, 768},
                         {512, 768, 3072},
                         {512, 50257, 768},
                         {64, 3072, 768},
                         {16, 3072, 768},
                         {1, 3072, 768},
                         {8, 65536, 2048},
                         {1, 65536, 2048}}) {
    const Tensor y = bench_floats(context, {s.M, s.N}), x = bench_floats(context, {s.M, s.K}), w = bench_floats(context, {s.N, s.K});
    BenchCase one = bench_case(gemm_forward, context, s.text(), s.flops(), s.bytes(), y, x, w, {}, {});
    one.bodies.push_back({"(oneDNN sgemm)", [=] { onednn(s, y, x, w); }});
    out.push_back(std::move(one));
  }
  return out;
}

std::vector<BenchCase> backward(Context& context) {
  std::vector<BenchCase> out;
  for (const Shape& s : {Shape{512, 768, 768}, {512, 3072, 768}, {512, 50257, 768}}) {
    const Tensor dy = bench_floats(context, {s.M, s.N}), x = bench_floats(context, {s.M, s.K}), w = bench_floats(context, {s.N, s.K});
    out.push_back(bench_case(gemm_backward_input, context, s.text(), s.flops(), s.bytes(), x, dy, w));
    out.push_back(bench_case(gemm_backward_weight, context, s.text(), s.flops(), s.bytes(), w, {}, dy, x));
  }
  return out;
}

[[maybe_unused]] const bool added = bench_cases().add("gemm_forward", forward) && bench_cases().add("gemm_backward", backward);

}  // namespace
}  // namespace hone
