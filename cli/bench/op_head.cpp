// Cases of the lm_head and of sampling. CPU: the vocabularies of GPT-2 and Qwen. GPU: those of the benchmarked models,
// and a wide one.
#include <cstring>

#include "cli/bench/op_bench.h"
#include "cli/bench/op_inputs.h"
#include "kernels/lm_head/logprob.h"
#include "kernels/sampling/sample.h"

namespace hone {
namespace {

struct Head {
  int64_t R, V, D;
};

std::vector<BenchCase> head(Context& context) {
  std::vector<Head> shapes{{256, 50257, 768}};
  if (context.kind() != DeviceKind::cpu) {
    shapes = {{bench_tokens, 131072, 4096}};
    for (const BenchModel& m : bench_models) shapes.push_back({bench_tokens, m.vocabulary, m.width});
  }
  std::vector<BenchCase> out;
  for (const auto& [R, V, D] : shapes) {
    const Tensor hidden = bench_numbers(context, {R, D}), w = bench_numbers(context, {V, D}, 0.1f),
                 targets = bench_ids(context, R, V);
    const Tensor logp = bench_floats(context, {R}), lse = bench_floats(context, {R}),
                 entropy = bench_floats(context, {R}), dlogp = bench_floats(context, {R}, 1e-3f);
    const Tensor dhidden = bench_numbers(context, {R, D}), dw = bench_floats(context, {V, D});
    const double product = 2.0 * static_cast<double>(R * V) * static_cast<double>(D),
                 bytes = static_cast<double>(size_of(w.dtype)) * static_cast<double>(V * D);
    const std::string shape = concat(R, " x ", V, " x ", D);
    const LogprobGrad grad{dlogp, {}, 0};
    logprob_forward(context, {.logp = logp,
                              .lse = lse,
                              .entropy = entropy,
                              .hidden = hidden,
                              .w = w,
                              .targets = targets,
                              .inv_temperature = 1.0f});  // input of the backward case
    out.push_back(
        bench_case(logprob_forward, context, shape, product, bytes,
                   {.logp = logp, .lse = lse, .hidden = hidden, .w = w, .targets = targets, .inv_temperature = 1.0f}));
    if (context.kind() != DeviceKind::cpu)
      out.push_back(bench_case(logprob_forward, context, shape + " entropy", product, bytes,
                               {.logp = logp,
                                .lse = lse,
                                .entropy = entropy,
                                .hidden = hidden,
                                .w = w,
                                .targets = targets,
                                .inv_temperature = 1.0f}));
    out.push_back(bench_case(logprob_backward, context, shape, 3 * product, 3 * bytes,
                             {.dhidden = dhidden,
                              .dw = dw,
                              .grad = grad,
                              .lse = lse,
                              .hidden = hidden,
                              .w = w,
                              .targets = targets,
                              .inv_temperature = 1.0f}));
    out.push_back(bench_case(logprob_fused, context, shape, 3 * product, 3 * bytes,
                             {.logp = logp,
                              .lse = lse,
                              .dhidden = dhidden,
                              .dw = dw,
                              .grad = grad,
                              .hidden = hidden,
                              .w = w,
                              .targets = targets,
                              .inv_temperature = 1.0f}));
  }
  return out;
}

std::vector<BenchCase> sampling(Context& context) {
  const int64_t V = 151936;
  std::vector<BenchCase> out;
  for (const int64_t S : context.kind() == DeviceKind::cpu ? std::vector<int64_t>{8} : std::vector<int64_t>{1, 256}) {
    const Tensor logits = bench_floats(context, {S, V}, 20);
    const Tensor ids = bench_ids(context, S, V), logp = bench_floats(context, {S}),
                 truncated = bench_floats(context, {S}), raw = bench_floats(context, {S});
    for (const auto& [name, how] : {std::pair{"greedy", RowSamplingParams{.temperature = 0}},
                                    {"all", RowSamplingParams{}},
                                    {"top_k 50", RowSamplingParams{.top_k = 50}},
                                    {"top_p 0.95", RowSamplingParams{.top_p = 0.95f}},
                                    {"min_p 0.05", RowSamplingParams{.min_p = 0.05f}}}) {
      std::vector<uint8_t> bytes(static_cast<size_t>(S) * sizeof how);
      for (int64_t r = 0; r < S; ++r) std::memcpy(bytes.data() + static_cast<size_t>(r) * sizeof how, &how, sizeof how);
      const Tensor params = context.scratch().take(DType::u8, {static_cast<int64_t>(bytes.size())});
      context.copy(params, host_view(std::span(bytes)));
      out.push_back(bench_case(sample_rows, context, concat(S, " x ", V, " ", name), 0,
                               4.0 * static_cast<double>(S * V),
                               {.ids = ids,
                                .logp = logp,
                                .truncated_logp = truncated,
                                .raw_logp = raw,
                                .logits = logits,
                                .params = params}));
    }
  }
  return out;
}

[[maybe_unused]] const bool added = bench_cases().add("logprob", head) && bench_cases().add("sample_rows", sampling);

}  // namespace
}  // namespace hone
