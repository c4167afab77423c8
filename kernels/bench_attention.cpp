// Cases of attention: the shapes of GPT-2's 124M parameters in training and of SmolLM's 135M in prefill and decoding.
#include "kernels/attention.h"
#include "kernels/bench.h"
#include "kernels/bench_inputs.h"

namespace hone {
namespace {

Tensor equal_offsets(Context& context, int64_t sequences, int64_t length) {
  const Tensor out = context.scratch().take(DType::i32, {sequences + 1});
  for (int64_t s = 0; s <= sequences; ++s) out.ptr<int32_t>()[s] = static_cast<int32_t>(s * length);
  return out;
}

std::vector<BenchCase> packed(Context& context) {
  std::vector<BenchCase> out;
  for (const auto& [S, T, H, Hk, d] : {std::array<int64_t, 5>{4, 256, 12, 12, 64}, {1, 512, 9, 3, 64}, {1, 2048, 9, 3, 64}}) {
    const int64_t rows = S * T;
    const Tensor q = bench_floats(context, {rows, H, d}), k = bench_floats(context, {rows, Hk, d}), v = bench_floats(context, {rows, Hk, d}),
                 dout = bench_floats(context, {rows, H, d});
    const Tensor result = bench_floats(context, {rows, H, d}), lse = bench_floats(context, {rows, H}, 0.1f), dq = bench_floats(context, {rows, H, d}),
                 dk = bench_floats(context, {rows, Hk, d}), dv = bench_floats(context, {rows, Hk, d}), offsets = equal_offsets(context, S, T);
    const AttentionShape shape{.scale = 0.125f, .max_length = T};
    const double flops = 2.0 * static_cast<double>(S * H * d) * static_cast<double>(T * (T + 1)),
                 bytes = 8.0 * static_cast<double>(rows * (H + Hk) * d);
    const std::string name = concat(S, " x ", T, ", ", H, "/", Hk, " heads of ", d);
    out.push_back(bench_case(attention_forward, context, name, flops, bytes, result, lse, q, k, v, offsets, shape));
    out.push_back(bench_case(attention_backward, context, name, 2.5 * flops, 2.5 * bytes, dq, dk, dv, dout, result, lse, q, k, v, offsets, shape));
  }
  return out;
}

std::vector<BenchCase> paged(Context& context) {
  std::vector<BenchCase> out;
  constexpr int64_t L = 1024, H = 9, Hk = 3, d = 64, block = 16;
  for (const int64_t S : {1, 8}) {
    const Tensor q = bench_floats(context, {S, H, d}), result = bench_floats(context, {S, H, d}), offsets = equal_offsets(context, S, 1);
    PagedKv cache{.k = bench_floats(context, {S * L, Hk, d}),
                  .v = bench_floats(context, {S * L, Hk, d}),
                  .block_table = context.scratch().take(DType::i32, {S, L / block}),
                  .lengths = context.scratch().take(DType::i32, {S}),
                  .block_size = block};
    for (int64_t i = 0; i < S * L / block; ++i) cache.block_table.ptr<int32_t>()[i] = static_cast<int32_t>(i);
    for (int64_t s = 0; s < S; ++s) cache.lengths.ptr<int32_t>()[s] = L;
    const double elements = static_cast<double>(S * L * d);
    out.push_back(bench_case(attention_paged, context, concat(S, " x 1 of ", L, ", ", H, "/", Hk, " heads of ", d), 4.0 * elements * H,
                             8.0 * elements * Hk, result, q, cache, offsets, AttentionShape{.scale = 0.125f, .max_length = L}));
  }
  return out;
}

[[maybe_unused]] const bool added = bench_cases().add("attention", packed) && bench_cases().add("attention_paged", paged);

}  // namespace
}  // namespace hone
