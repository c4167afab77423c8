// Cases of the fused ops of a decoder layer, which decoding runs. The unfused bodies are measured as well.
#include "cli/bench/op_bench.h"
#include "cli/bench/op_inputs.h"
#include "kernels/decoder_layer/decoder_layer.h"

namespace hone {
namespace {

std::vector<BenchCase> projections(Context& context) {
  std::vector<BenchCase> out;
  if (context.kind() == DeviceKind::cpu) return out;
  std::vector<BenchModel> models(std::begin(bench_models), std::end(bench_models));
  models.push_back({"8B", 4096, 32, 8, 128, 14336, 128256});
  constexpr int64_t num_positions = 1024;
  for (const BenchModel& m : models) {
    const Tensor gate_up = bench_numbers(context, {2 * m.mlp, m.width}),
                 down = bench_numbers(context, {m.width, m.mlp}),
                 qkv = bench_numbers(context, {m.projected(), m.width}),
                 cos_sin = bench_floats(context, {num_positions, m.head_dim}), norm = bench_numbers(context, {m.width}),
                 output = bench_numbers(context, {m.width, m.heads * m.head_dim});
    const QkvShape heads{
        .num_heads = m.heads, .num_kv_heads = m.kv_heads, .head_dim = m.head_dim, .rotary_dim = m.head_dim};
    for (const int64_t rows : {1, 8, 64, 256}) {
      std::vector<int32_t> places(static_cast<size_t>(rows));
      for (size_t r = 0; r < places.size(); ++r) places[r] = static_cast<int32_t>(r);
      const Tensor x = bench_numbers(context, {rows, m.width}), normed = bench_numbers(context, {rows, m.width}),
                   y = bench_numbers(context, {rows, m.mlp}), q = bench_numbers(context, {rows, m.heads, m.head_dim}),
                   at = bench_values(context, places);
      const KvWriteTarget cache{bench_numbers(context, {rows, m.kv_heads, m.head_dim}),
                                bench_numbers(context, {rows, m.kv_heads, m.head_dim}), at};
      const auto add = [&](const auto& op, const Tensor& w, const Tensor& input, double written_bytes,
                           const auto& args) {
        const double numbers = static_cast<double>(w.size()),
                     bytes = static_cast<double>(w.bytes() + input.bytes()) + written_bytes;
        out.push_back(bench_case(op, context, concat(rows, " rows, ", m.name), 2 * numbers * static_cast<double>(rows),
                                 bytes, args));
      };
      const QkvProjection to{q, {norm, 1e-6f}, {qkv, {}}, at, cos_sin, {}, {}, heads, cache};
      add(qkv_rope_cache, qkv, x, static_cast<double>(q.bytes() + cache.k.bytes() + cache.v.bytes()),
          QkvRopeCache{.x = x, .to = to});
      add(gemm_rmsnorm, down, y, static_cast<double>(2 * x.bytes()),
          GemmRmsnorm{.y = x, .normed = normed, .x = y, .product = {down, {}}, .norm = {norm, 1e-6f}});
      add(gate_up_swiglu, gate_up, x, static_cast<double>(y.bytes()),
          GateUpSwiglu{.y = y, .x = x, .norm = {norm, 1e-6f}, .gate_up = {gate_up, {}}});
      const double numbers = static_cast<double>(output.size() + gate_up.size() + down.size() + qkv.size());
      out.push_back(bench_case(decoder_layer_tail, context, concat(rows, " rows, ", m.name),
                               2 * numbers * static_cast<double>(rows), 2 * numbers,
                               {.x = normed,
                                .mixed = q.view({rows, m.heads * m.head_dim}),
                                .output = GemmWeights{output, {}},
                                .mlp = GatedMlpWeights{{norm, 1e-6f}, {gate_up, {}}, {down, {}}},
                                .next = to}));
    }
  }
  return out;
}

[[maybe_unused]] const bool added = bench_cases().add("projection", projections);

}  // namespace
}  // namespace hone
