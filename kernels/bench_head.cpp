// Cases of the head and of sampling, at the vocabularies of GPT-2 and Qwen.
#include <cstring>

#include "kernels/bench.h"
#include "kernels/bench_inputs.h"
#include "kernels/logprob.h"
#include "kernels/sample.h"

namespace hone {
namespace {

std::vector<BenchCase> head(Context& context) {
  const int64_t R = 256, V = 50257, D = 768;
  const Tensor hidden = bench_floats(context, {R, D}), w = bench_floats(context, {V, D}, 0.1f), targets = bench_ids(context, R, V);
  const Tensor logp = bench_floats(context, {R}), lse = bench_floats(context, {R}), dlogp = bench_floats(context, {R}, 1e-3f);
  const Tensor dhidden = bench_floats(context, {R, D}), dw = bench_floats(context, {V, D});
  const double product = 2.0 * static_cast<double>(R * V) * static_cast<double>(D), bytes = 4.0 * static_cast<double>(V * D);
  const std::string shape = concat(R, " x ", V, " x ", D);
  return {
      bench_case(logprob_forward, context, shape, product, bytes, logp, lse, {}, hidden, w, targets, 1.0f),
      bench_case(logprob_backward, context, shape, 3 * product, 3 * bytes, dhidden, dw, LogprobGrad{dlogp, {}, 0}, lse, {}, hidden, w, targets, 1.0f),
      bench_case(logprob_fused, context, shape, 3 * product, 3 * bytes, logp, lse, dhidden, dw, LogprobGrad{dlogp, {}, 0}, hidden, w, targets, 1.0f)};
}

std::vector<BenchCase> sampling(Context& context) {
  const int64_t S = 8, V = 151936;
  const Tensor logits = bench_floats(context, {S, V}, 20);
  const Tensor ids = bench_ids(context, S, V), logp = bench_floats(context, {S}), truncated = bench_floats(context, {S}),
               raw = bench_floats(context, {S});
  std::vector<BenchCase> out;
  for (const auto& [name, how] : {std::pair{"greedy", SampleParams{.temperature = 0}},
                                  {"all", SampleParams{}},
                                  {"top_k 50", SampleParams{.top_k = 50}},
                                  {"top_p 0.95", SampleParams{.top_p = 0.95f}},
                                  {"min_p 0.05", SampleParams{.min_p = 0.05f}}}) {
    const Tensor params = context.scratch().take(DType::u8, {S * static_cast<int64_t>(sizeof(SampleParams))});
    for (int64_t r = 0; r < S; ++r) std::memcpy(params.ptr<uint8_t>() + static_cast<size_t>(r) * sizeof how, &how, sizeof how);
    out.push_back(bench_case(sample_rows, context, concat(S, " x ", V, " ", name), 0, 4.0 * static_cast<double>(S * V), ids, logp, truncated, raw,
                             logits, params));
  }
  return out;
}

[[maybe_unused]] const bool added = bench_cases().add("logprob", head) && bench_cases().add("sample_rows", sampling);

}  // namespace
}  // namespace hone
