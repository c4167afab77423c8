// Cases of multi-head latent attention at the head shape of DeepSeek-V3: training, decoding, and the maps of a head to
// and from the latent space. The CPU has its specification alone for the attention itself.
#include "cli/bench/op_bench.h"
#include "cli/bench/op_inputs.h"
#include "kernels/attention/latent/head_gemm.h"
#include "kernels/attention/latent/latent_attention.h"

namespace hone {
namespace {

constexpr int64_t heads = 128, rank = 512, width = 576, head_dim = 128;  // rank + 64 columns with positions

std::vector<BenchCase> packed(Context& context) {
  if (context.kind() == DeviceKind::cpu) return {};
  constexpr int64_t S = 2, T = 2048, rows = S * T;
  const Tensor q = bench_numbers(context, {rows, heads, width}), latents = bench_numbers(context, {rows, width}),
               dout = bench_numbers(context, {rows, heads, rank}), out = bench_numbers(context, {rows, heads, rank}),
               lse = bench_floats(context, {rows, heads}, 0.1f), dq = bench_numbers(context, {rows, heads, width}),
               drows = bench_numbers(context, {rows, width}), offsets = bench_offsets(context, S, T);
  const AttentionShape shape{.scale = 0.07f, .max_length = T};
  latent_attention_forward(context,
                           {.out = out, .lse = lse, .q = q, .rows = latents, .offsets = offsets, .shape = shape});
  // Products of a query head with a key: the score, and the sum of values. Backward: three with rows, two with values.
  const double pairs = static_cast<double>(S * heads) * static_cast<double>(T * (T + 1)),
               flops = pairs * static_cast<double>(width + rank),
               back = pairs * static_cast<double>(3 * width + 2 * rank),
               bytes =
                   static_cast<double>(size_of(q.dtype)) * static_cast<double>(rows * (heads * (width + rank) + width));
  const std::string name = concat(S, " x ", T, ", ", heads, " heads, rank ", rank);
  return {bench_case(latent_attention_forward, context, name, flops, bytes,
                     {.out = out, .lse = lse, .q = q, .rows = latents, .offsets = offsets, .shape = shape}),
          bench_case(latent_attention_backward, context, name, back, 2 * bytes,
                     {.dq = dq,
                      .drows = drows,
                      .dout = dout,
                      .out = out,
                      .lse = lse,
                      .q = q,
                      .rows = latents,
                      .offsets = offsets,
                      .shape = shape})};
}

std::vector<BenchCase> paged(Context& context) {
  if (context.kind() == DeviceKind::cpu) return {};
  struct Decode {
    int64_t sequences, length;
  };
  constexpr int64_t block = 16;
  std::vector<BenchCase> out;
  for (const auto& [S, L] : {Decode{1, 4096}, {16, 4096}, {64, 4096}, {128, 4096}, {1, 32768}}) {
    const Tensor q = bench_numbers(context, {S, heads, width}), result = bench_numbers(context, {S, heads, rank});
    std::vector<int32_t> blocks(static_cast<size_t>(S * L / block));
    for (size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<int32_t>(i);
    const LatentCache cache{
        .rows = bench_numbers(context, {S * L, width}),
        .block_table = bench_values(context, blocks).view({S, L / block}),
        .lengths = bench_values(context, std::vector<int32_t>(static_cast<size_t>(S), static_cast<int32_t>(L))),
        .block_size = block};
    const double keys = static_cast<double>(S * L),
                 bytes = static_cast<double>(size_of(q.dtype)) *
                         (keys * width + static_cast<double>(S * heads * (width + rank)));
    out.push_back(bench_case(latent_attention_paged, context,
                             concat(S, " x 1 of ", L, ", ", heads, " heads, rank ", rank),
                             2 * keys * static_cast<double>(heads * (width + rank)), bytes,
                             {.out = result,
                              .q = q,
                              .cache = cache,
                              .offsets = bench_offsets(context, S, 1),
                              .shape = AttentionShape{.scale = 0.07f, .max_length = 1}}));
  }
  return out;
}

std::vector<BenchCase> maps(Context& context) {
  const bool cpu = context.kind() == DeviceKind::cpu;
  const int64_t H = cpu ? 16 : heads;
  std::vector<BenchCase> out;
  const Tensor w = bench_numbers(context, {H, head_dim, rank}), dw = bench_floats(context, {H, head_dim, rank});
  for (const int64_t T : cpu ? std::vector<int64_t>{1, 64} : std::vector<int64_t>{64, 4096}) {
    const Tensor own = bench_numbers(context, {T, H, head_dim}), latent = bench_numbers(context, {T, H, rank});
    const double flops = 2.0 * static_cast<double>(T * H * head_dim * rank),
                 bytes =
                     static_cast<double>(size_of(w.dtype)) * static_cast<double>(w.size() + own.size() + latent.size());
    const std::string name = concat(T, " tokens, ", H, " heads, ", head_dim, " x ", rank);
    out.push_back(bench_case(head_gemm, context, name + ", to latents", flops, bytes,
                             {.y = latent, .x = own, .w = w, .transposed = true}));
    out.push_back(
        bench_case(head_gemm, context, name + ", from latents", flops, bytes, {.y = own, .x = latent, .w = w}));
    out.push_back(bench_case(head_gemm_weight, context, name, flops, bytes, {.dw = dw, .a = own, .b = latent}));
  }
  return out;
}

[[maybe_unused]] const bool added = bench_cases().add("latent_attention", packed) &&
                                    bench_cases().add("latent_attention_paged", paged) &&
                                    bench_cases().add("head_gemm", maps);

}  // namespace
}  // namespace hone
