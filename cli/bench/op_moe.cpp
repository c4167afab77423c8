// Cases of a mixture of experts: its grouped products, beside one dense product with as many rows, and what decode
// passes run. GPU: the experts of OLMoE-1B-7B and Qwen3-30B-A3B at 16,384 tokens, and at the few tokens of a decode
// pass.
#include <algorithm>
#include <numeric>
#include <set>

#include "cli/bench/op_bench.h"
#include "cli/bench/op_inputs.h"
#include "kernels/decoder_layer/moe_layer_tail.h"
#include "kernels/gemm/gemm.h"
#include "kernels/quant/quantize.h"
#include "model/batch.h"

namespace hone {
namespace {

struct Experts {
  const char* model;
  int64_t num_experts, num_choices, width, inner;
  QkvShape heads;  // of the layer's attention
};
constexpr Experts gpu_models[] = {
    {"OLMoE", 64, 8, 2048, 1024, {.num_heads = 16, .num_kv_heads = 16, .head_dim = 128, .rotary_dim = 128}},
    {"Qwen3-30B-A3B", 128, 8, 2048, 768, {.num_heads = 32, .num_kv_heads = 4, .head_dim = 128, .rotary_dim = 128}}};
constexpr Experts cpu_model = {"tiny", 8,   2,
                               512,    384, {.num_heads = 8, .num_kv_heads = 2, .head_dim = 64, .rotary_dim = 64}};

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
  // Of the gradient of the matrices, which are f32.
  double weight_bytes(DType dtype, bool add) const {
    return static_cast<double>(size_of(dtype)) * static_cast<double>(rows() * (N + K)) +
           (add ? 8.0 : 4.0) * static_cast<double>(experts.num_experts * N * K);
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
    for (const bool add : {false, true}) {  // a gradient that is written moves half as many bytes
      const GradTarget to(dw, add), to_first(dfirst, add);
      BenchCase weight =
          bench_case(grouped_gemm_backward_weight, context, concat(s.text(), add ? ", added" : ", written"), s.flops(),
                     s.weight_bytes(dy.dtype, add), {.dw = to, .dy = dy, .x = x, .offsets = offsets});
      weight.bodies.push_back({"(gemm_backward_weight)",
                               [&context, to_first, dy, x] { gemm_backward_weight(context, to_first, {}, dy, x); }});
      out.push_back(std::move(weight));
    }
  }
  return out;
}

// Weights in the layers' dtype and in bytes.
struct ExpertWeights {
  ExpertMatrices bench_dtype, int8, fp8;
};
ExpertWeights expert_weights(Context& context, int64_t E, int64_t N, int64_t K) {
  ExpertWeights out{.bench_dtype = {.w = bench_numbers(context, {E, N, K})}, .int8 = {}, .fp8 = {}};
  for (const QuantFormat format : {QuantFormat::int8, QuantFormat::fp8}) {
    const QuantizedMatrix rows{context.scratch().take(DType::u8, {E * N, K}),
                               context.scratch().take(DType::f32, {E * N}), format};
    quantize_rows(context, rows, out.bench_dtype.w.view({E * N, K}));
    (format == QuantFormat::int8 ? out.int8 : out.fp8).quantized = {rows.values.view({E, N, K}),
                                                                    rows.scales.view({E, N}), format};
  }
  return out;
}

// The experts that some token chooses: the k largest logits of each row.
int64_t chosen_experts(Context& context, const Tensor& logits, int64_t k) {
  const std::vector<float> numbers = download(context, logits);
  const auto E = static_cast<size_t>(logits.dim(1));
  std::set<size_t> out;
  for (size_t t = 0; t < static_cast<size_t>(logits.dim(0)); ++t) {
    std::vector<size_t> order(E);
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, [&](size_t a, size_t b) { return numbers[t * E + a] > numbers[t * E + b]; });
    out.insert(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(k));
  }
  return std::ssize(out);
}

// Decode passes from the router's logits to the output. Bytes are those of the chosen experts' matrices.
std::vector<BenchCase> routed(Context& context) {
  std::vector<BenchCase> out;
  const bool cpu = context.kind() == DeviceKind::cpu;
  for (const Experts& e : cpu ? std::span(&cpu_model, 1) : std::span<const Experts>(gpu_models)) {
    const ExpertWeights gate_up = expert_weights(context, e.num_experts, 2 * e.inner, e.width),
                        down = expert_weights(context, e.num_experts, e.width, e.inner);
    for (const int64_t tokens : {1, 8, 64}) {
      const Tensor y = bench_numbers(context, {tokens, e.width}), x = bench_numbers(context, {tokens, e.width}),
                   logits = bench_floats(context, {tokens, e.num_experts});
      const double matrix = static_cast<double>(3 * e.inner * e.width),
                   read = matrix * static_cast<double>(chosen_experts(context, logits, e.num_choices));
      for (const auto& [name, member] : {std::pair{name_of(y.dtype), &ExpertWeights::bench_dtype},
                                         {"int8", &ExpertWeights::int8},
                                         {"fp8", &ExpertWeights::fp8}}) {
        const double width = member == &ExpertWeights::bench_dtype ? static_cast<double>(size_of(y.dtype)) : 1;
        const RoutedExperts args{.y = y,
                                 .x = x,
                                 .logits = logits,
                                 .gate_up = gate_up.*member,
                                 .down = down.*member,
                                 .num_choices = e.num_choices};
        BenchCase one = bench_case(routed_experts, context, concat(e.model, " ", tokens, " tokens, ", name),
                                   2 * matrix * static_cast<double>(tokens * e.num_choices), width * read, args);
        if (cpu) one.bodies.push_back({"steps", [&context, args] { routed_experts_steps(context, args); }});
        out.push_back(std::move(one));
      }
    }
  }
  return out;
}

// A layer with experts from its attention to the next one's, for one sequence. Bytes are those of all matrices that it
// reads.
std::vector<BenchCase> layer_tails(Context& context) {
  std::vector<BenchCase> out;
  const bool cpu = context.kind() == DeviceKind::cpu;
  for (const Experts& e : cpu ? std::span(&cpu_model, 1) : std::span<const Experts>(gpu_models)) {
    const int64_t attended = e.heads.num_heads * e.heads.head_dim,
                  projected = attended + 2 * e.heads.num_kv_heads * e.heads.head_dim;
    const Tensor norm = bench_numbers(context, {e.width}), at = bench_values(context, {0}),
                 q = bench_numbers(context, {1, e.heads.num_heads, e.heads.head_dim}),
                 k = bench_numbers(context, {1, e.heads.num_kv_heads, e.heads.head_dim}),
                 v = bench_numbers(context, {1, e.heads.num_kv_heads, e.heads.head_dim});
    const MoeLayerTail args{.x = bench_numbers(context, {1, e.width}),
                            .mixed = bench_numbers(context, {1, attended}),
                            .output = {bench_numbers(context, {e.width, attended}), {}},
                            .norm = {norm, 1e-6f},
                            .router = {bench_numbers(context, {e.num_experts, e.width}), {}},
                            .gate_up = {.w = bench_numbers(context, {e.num_experts, 2 * e.inner, e.width})},
                            .down = {.w = bench_numbers(context, {e.num_experts, e.width, e.inner})},
                            .num_choices = e.num_choices,
                            .next = {q,
                                     {norm, 1e-6f},
                                     {bench_numbers(context, {projected, e.width}), {}},
                                     at,
                                     bench_floats(context, {1, e.heads.rotary_dim}),
                                     {},
                                     {},
                                     e.heads,
                                     {k, v, at}}};
    const double numbers =
        static_cast<double>(e.width * (attended + projected + e.num_experts) + 3 * e.num_choices * e.inner * e.width);
    out.push_back(bench_case(moe_layer_tail, context, e.model, 2 * numbers,
                             static_cast<double>(size_of(args.x.dtype)) * numbers, args));
  }
  return out;
}

[[maybe_unused]] const bool added =
    bench_cases().add("grouped_gemm_forward", forward) && bench_cases().add("grouped_gemm_backward", backward) &&
    bench_cases().add("routed_experts", routed) && bench_cases().add("moe_layer_tail", layer_tails);

}  // namespace
}  // namespace hone
