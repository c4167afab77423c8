// Cases of attention. CPU: GPT-2 124M in training, SmolLM 135M in prefill and decoding. GPU: the benchmarked models,
// long sequences, and decoding.
#include "cli/bench/op_bench.h"
#include "cli/bench/op_inputs.h"
#include "kernels/attention/attention.h"

namespace hone {
namespace {

struct Packed {
  int64_t S, T, H, Hk, d;
};

std::vector<BenchCase> packed(Context& context) {
  const bool cpu = context.kind() == DeviceKind::cpu;
  std::vector<BenchCase> out;
  for (const auto& [S, T, H, Hk, d] :
       cpu ? std::vector<Packed>{{4, 256, 12, 12, 64}, {1, 512, 9, 3, 64}, {1, 2048, 9, 3, 64}}
           : std::vector<Packed>{{8, 1024, 14, 2, 64},
                                 {4, 2048, 12, 2, 128},
                                 {4, 4096, 16, 16, 128},
                                 {4, 4096, 32, 32, 64},
                                 {1, 16384, 16, 16, 128},
                                 {1, 16384, 16, 16, 64}}) {
    const int64_t rows = S * T;
    const Tensor q = bench_numbers(context, {rows, H, d}), k = bench_numbers(context, {rows, Hk, d}),
                 v = bench_numbers(context, {rows, Hk, d}), dout = bench_numbers(context, {rows, H, d});
    const Tensor result = bench_numbers(context, {rows, H, d}), lse = bench_floats(context, {rows, H}, 0.1f),
                 dq = bench_numbers(context, {rows, H, d}), dk = bench_numbers(context, {rows, Hk, d}),
                 dv = bench_numbers(context, {rows, Hk, d}), offsets = bench_offsets(context, S, T);
    const AttentionShape shape{.scale = 0.125f, .max_length = T};
    attention_forward(context, {.out = result,
                                .lse = lse,
                                .q = q,
                                .k = k,
                                .v = v,
                                .offsets = offsets,
                                .shape = shape});  // input of the backward cases
    const double flops = 2.0 * static_cast<double>(S * H * d) * static_cast<double>(T * (T + 1)),
                 bytes = 2.0 * static_cast<double>(size_of(q.dtype)) * static_cast<double>(rows * (H + Hk) * d);
    const std::string name = concat(S, " x ", T, ", ", H, "/", Hk, " heads of ", d);
    out.push_back(bench_case(attention_forward, context, name, flops, bytes,
                             {.out = result, .lse = lse, .q = q, .k = k, .v = v, .offsets = offsets, .shape = shape}));
    out.push_back(bench_case(attention_backward, context, name, 2.5 * flops, 2.5 * bytes,
                             {.dq = dq,
                              .dk = dk,
                              .dv = dv,
                              .dout = dout,
                              .out = result,
                              .lse = lse,
                              .q = q,
                              .k = k,
                              .v = v,
                              .offsets = offsets,
                              .shape = shape}));
  }
  return out;
}

struct PagedShape {
  int64_t S, L, H, Hk, d;  // one token and L keys per sequence
};

std::vector<BenchCase> paged(Context& context) {
  const bool cpu = context.kind() == DeviceKind::cpu;
  constexpr int64_t block = 16;
  std::vector<BenchCase> out;
  for (const auto& [S, L, H, Hk, d] : cpu ? std::vector<PagedShape>{{1, 1024, 9, 3, 64}, {8, 1024, 9, 3, 64}}
                                          : std::vector<PagedShape>{{1, 512, 12, 2, 128},
                                                                    {256, 512, 12, 2, 128},
                                                                    {256, 512, 14, 2, 64},
                                                                    {64, 512, 32, 8, 128},
                                                                    {1, 32768, 32, 8, 128}}) {
    const Tensor q = bench_numbers(context, {S, H, d}), result = bench_numbers(context, {S, H, d}),
                 offsets = bench_offsets(context, S, 1);
    std::vector<int32_t> blocks(static_cast<size_t>(S * L / block));
    for (size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<int32_t>(i);
    const PagedKv cache{
        .k = bench_numbers(context, {S * L, Hk, d}),
        .v = bench_numbers(context, {S * L, Hk, d}),
        .block_table = bench_values(context, blocks).view({S, L / block}),
        .lengths = bench_values(context, std::vector<int32_t>(static_cast<size_t>(S), static_cast<int32_t>(L))),
        .block_size = block};
    const double elements = static_cast<double>(S * L * d);
    out.push_back(bench_case(attention_paged, context, concat(S, " x 1 of ", L, ", ", H, "/", Hk, " heads of ", d),
                             4.0 * elements * static_cast<double>(H),
                             2.0 * static_cast<double>(size_of(q.dtype) * static_cast<size_t>(Hk)) * elements,
                             {.out = result,
                              .q = q,
                              .cache = cache,
                              .offsets = offsets,
                              .shape = AttentionShape{.scale = 0.125f, .max_length = 1}}));
  }
  return out;
}

[[maybe_unused]] const bool added =
    bench_cases().add("attention", packed) && bench_cases().add("attention_paged", paged);

}  // namespace
}  // namespace hone
