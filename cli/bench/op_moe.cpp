// Cases of the grouped products of a mixture of experts, beside one dense product with as many rows. GPU: the experts
// of OLMoE-1B-7B and Qwen3-30B-A3B at 16,384 tokens, and at the few tokens of a decode pass.
#include "cli/bench/op_bench.h"
#include "cli/bench/op_inputs.h"
#include "kernels/gemm/gemm.h"
#include "kernels/moe/grouped_gemm.h"

namespace hone {
namespace {

struct Experts {
  const char* model;
  int64_t num_experts, num_choices, width, inner;
};
constexpr Experts gpu_models[] = {{"OLMoE", 64, 8, 2048, 1024}, {"Qwen3-30B-A3B", 128, 8, 2048, 768}};
constexpr Experts cpu_model = {"tiny", 8, 2, 512, 384};

struct Shape {
  Experts experts;
  int64_t tokens, N, K;
  int64_t rows() const { return tokens * experts.num_choices; }
  // Experts that some row uses.
  int64_t used() const { return std::min(rows(), experts.num_experts); }
  double flops() const { return 2.0 * static_cast<double>(rows()) * static_cast<double>(N) * static_cast<double>(K); }
  double bytes(DType dtype) const {
    return static_cast<double>(size_of(dtype)) * static_cast<double>(rows() * (N + K) + used() * N * K);
  }
  std::string text() const { return concat(experts.model, " ", rows(), " x ", N, " x ", K); }
};

std::vector<Shape> shapes(const Context& context) {
  std::vector<Shape> out;
  const auto add = [&](const Experts& e, int64_t tokens) {
    out.push_back({e, tokens, 2 * e.inner, e.width});
    out.push_back({e, tokens, e.width, e.inner});
  };
  if (context.kind() == DeviceKind::cpu) {
    for (const int64_t tokens : {512, 1}) add(cpu_model, tokens);
    return out;
  }
  for (const Experts& e : gpu_models)
    for (const int64_t tokens : {16384, 64, 1}) add(e, tokens);
  return out;
}

// Rows per expert between half and one and a half times the mean; few rows go to different experts.
Tensor uneven_offsets(Context& context, const Shape& s) {
  const int64_t E = s.experts.num_experts, mean = s.rows() / E;
  std::vector<int32_t> out{0};
  for (int64_t e = 0; e < E; ++e) {
    const int64_t shift = mean * (2 * (e * 37 % E) - E + 1) / (2 * E), even = (e + 1) * s.rows() / E;
    const int64_t size = mean > 0 ? mean + shift : even - out.back();
    out.push_back(static_cast<int32_t>(std::min(s.rows(), out.back() + std::max<int64_t>(size, 0))));
  }
  out.back() = static_cast<int32_t>(s.rows());
  return bench_values(context, out);
}

std::vector<BenchCase> forward(Context& context) {
  std::vector<BenchCase> out;
  for (const Shape& s : shapes(context)) {
    const Tensor y = bench_numbers(context, {s.rows(), s.N}), x = bench_numbers(context, {s.rows(), s.K}),
                 w = bench_numbers(context, {s.experts.num_experts, s.N, s.K}), offsets = uneven_offsets(context, s);
    BenchCase one = bench_case(grouped_gemm_forward, context, s.text(), s.flops(), s.bytes(y.dtype),
                               {.y = y, .x = x, .w = w, .offsets = offsets});
    const Tensor first = expert_matrix(w, 0);
    one.bodies.push_back(
        {"(gemm_forward)", [&context, y, x, first] { gemm_forward(context, {.y = y, .x = x, .w = first}); }});
    out.push_back(std::move(one));
  }
  return out;
}

std::vector<BenchCase> backward(Context& context) {
  std::vector<BenchCase> out;
  for (const Shape& s : shapes(context)) {
    if (s.tokens < 512) continue;
    const Tensor dy = bench_numbers(context, {s.rows(), s.N}), x = bench_numbers(context, {s.rows(), s.K}),
                 w = bench_numbers(context, {s.experts.num_experts, s.N, s.K}),
                 dw = bench_floats(context, {s.experts.num_experts, s.N, s.K}), offsets = uneven_offsets(context, s);
    const Tensor first = expert_matrix(w, 0), dfirst = expert_matrix(dw, 0);
    BenchCase input = bench_case(grouped_gemm_backward_input, context, s.text(), s.flops(), s.bytes(dy.dtype),
                                 {.dx = x, .dy = dy, .w = w, .offsets = offsets});
    input.bodies.push_back(
        {"(gemm_backward_input)", [&context, x, dy, first] { gemm_backward_input(context, x, dy, first); }});
    out.push_back(std::move(input));
    BenchCase weight = bench_case(grouped_gemm_backward_weight, context, s.text(), s.flops(), s.bytes(dy.dtype),
                                  {.dw = dw, .dy = dy, .x = x, .offsets = offsets});
    weight.bodies.push_back(
        {"(gemm_backward_weight)", [&context, dfirst, dy, x] { gemm_backward_weight(context, dfirst, {}, dy, x); }});
    out.push_back(std::move(weight));
  }
  return out;
}

[[maybe_unused]] const bool added =
    bench_cases().add("grouped_gemm_forward", forward) && bench_cases().add("grouped_gemm_backward", backward);

}  // namespace
}  // namespace hone
