#include "kernels/rope/qkv.h"

#include "core/base/parallel_for.h"
#include "kernels/attention/attention.h"
#include "kernels/rope/rope.h"
#include "tests/kernels/op_cases.h"
#include "tests/kernels/op_contract.h"
#include "tests/kernels/quant/quantized.h"
#include "tests/kernels/stored.h"
#include "tests/support/npy.h"
#include "tests/support/support.h"

namespace hone::test {
namespace {

struct Case {
  int64_t tokens;
  QkvShape shape;
  bool norms;
  int64_t width() const { return (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim; }
};

std::vector<Case> cases() {
  return {{1, {1, 1, 2, 2, 1e-6f}, false},           {0, {2, 1, 8, 8, 1e-6f}, true},
          {37, {6, 2, 16, 16, 1e-6f}, true},         {20, {4, 4, 10, 6, 1e-6f}, false},
          {9, {3, 1, 24, 0, 1e-6f}, true},           {17, {4, 2, 16, 16, 1e-6f, 0, true}, true},
          {20, {2, 2, 10, 6, 1e-6f, 0, true}, false}};
}

constexpr int64_t num_positions = 50;

struct Call {
  explicit Call(const Case& c, uint64_t seed = 3)
      : qkv(normals({c.tokens, c.width()}, seed, 1, 2)),
        q(poisoned({c.tokens, c.shape.num_heads, c.shape.head_dim})),
        k(poisoned({c.tokens, c.shape.num_kv_heads, c.shape.head_dim})),
        rstd(poisoned({c.tokens, c.shape.num_heads + c.shape.num_kv_heads})),
        dq(normals({c.tokens, c.shape.num_heads, c.shape.head_dim}, seed + 1)),
        dk(normals({c.tokens, c.shape.num_kv_heads, c.shape.head_dim}, seed + 2)),
        q_norm(normals({c.shape.head_dim}, seed + 3)),
        k_norm(normals({c.shape.head_dim}, seed + 4)),
        cos_sin({num_positions, std::max<int64_t>(c.shape.rotary_dim, 2)}),
        positions(random_ids(c.tokens, num_positions, seed + 5)) {
    rope_table(cos_sin, {.dim = cos_sin.tensor().dim(1), .theta = 100});
  }
  Floats qkv, q, k, rstd, dq, dk, q_norm, k_norm, cos_sin;
  Ids positions;
};
Tensor given(bool there, const Floats& x) { return there ? x.tensor() : Tensor(); }

[[maybe_unused]] const bool added = op_cases().add("qkv_forward", [] {
  for (const Case& c : cases()) {
    Call call(c);
    Floats cache_k = normals({64, c.shape.num_kv_heads, c.shape.head_dim}, 1),
           cache_v = normals({64, c.shape.num_kv_heads, c.shape.head_dim}, 2);
    Ids slots({c.tokens});
    for (int64_t t = 0; t < c.tokens; ++t) slots[t] = static_cast<int32_t>(63 - t);
    const Tensor q_norm = given(c.norms, call.q_norm), k_norm = given(c.norms, call.k_norm),
                 rstd = given(c.norms, call.rstd);
    expect_bodies_agree(qkv_forward, {2e-6, 1e-6},
                        {.q = call.q,
                         .k = call.k,
                         .rstd = rstd,
                         .qkv = call.qkv,
                         .positions = call.positions,
                         .cos_sin = call.cos_sin,
                         .q_norm = q_norm,
                         .k_norm = k_norm,
                         .shape = c.shape,
                         .cache = KvWriteTarget{cache_k, cache_v, slots}});
    expect_bodies_agree(qkv_forward, {2e-6, 1e-6},
                        {.q = call.q,
                         .k = call.k,
                         .qkv = call.qkv,
                         .positions = call.positions,
                         .cos_sin = call.cos_sin,
                         .q_norm = q_norm,
                         .k_norm = k_norm,
                         .shape = c.shape});
  }
}) && op_cases().add("qkv_backward", [] {
  for (const Case& c : cases()) {
    Call call(c);
    const Tensor q_norm = given(c.norms, call.q_norm), k_norm = given(c.norms, call.k_norm),
                 rstd = given(c.norms, call.rstd);
    qkv_forward(cpu(), {.q = call.q,
                        .k = call.k,
                        .rstd = rstd,
                        .qkv = call.qkv,
                        .positions = call.positions,
                        .cos_sin = call.cos_sin,
                        .q_norm = q_norm,
                        .k_norm = k_norm,
                        .shape = c.shape});
    Floats dqkv = normals({c.tokens, c.width()}, 9), dq_norm = normals({c.shape.head_dim}, 10),
           dk_norm = normals({c.shape.head_dim}, 11);
    expect_bodies_agree(qkv_backward, {1e-5, 1e-5},
                        {.dqkv = dqkv,
                         .dq_norm = given(c.norms, dq_norm),
                         .dk_norm = given(c.norms, dk_norm),
                         .dq = call.dq,
                         .dk = call.dk,
                         .rstd = rstd,
                         .qkv = call.qkv,
                         .positions = call.positions,
                         .cos_sin = call.cos_sin,
                         .q_norm = q_norm,
                         .k_norm = k_norm,
                         .shape = c.shape});
  }
});

// One head by the formulas, in double: norm, then rotation of pairs (i, i + half) or (2i, 2i + 1).
std::vector<double> expected_head(const Case& c, const Call& call, int64_t t, int64_t h) {
  const int64_t dim = c.shape.head_dim, half = c.shape.rotary_dim / 2;
  std::vector<double> x, out;
  double squares = 0;
  for (int64_t i = 0; i < dim; ++i) x.push_back(call.qkv[t * c.width() + h * dim + i]), squares += x.back() * x.back();
  const Floats& weight = h < c.shape.num_heads ? call.q_norm : call.k_norm;
  for (int64_t i = 0; c.norms && i < dim; ++i)
    x[static_cast<size_t>(i)] *= weight[i] / std::sqrt(squares / static_cast<double>(dim) + double{c.shape.norm_eps});
  out = x;
  for (int64_t i = 0; i < half; ++i) {
    const auto first = static_cast<size_t>(c.shape.interleaved ? 2 * i : i);
    const auto second = static_cast<size_t>(c.shape.interleaved ? 2 * i + 1 : i + half);
    const double angle = call.positions[t] * std::pow(100.0, -static_cast<double>(i) / static_cast<double>(half));
    out[first] = x[first] * std::cos(angle) - x[second] * std::sin(angle);
    out[second] = x[second] * std::cos(angle) + x[first] * std::sin(angle);
  }
  return out;
}

}  // namespace

TEST(Qkv, NormsRotatesAndWritesTheCache) {
  for (const Case& c : cases()) {
    Call call(c);
    const int64_t H = c.shape.num_heads, Hk = c.shape.num_kv_heads, d = c.shape.head_dim;
    Floats cache_k = poisoned({64, Hk, d}), cache_v = cache_k;
    Ids slots({c.tokens});
    for (int64_t t = 0; t < c.tokens; ++t) slots[t] = static_cast<int32_t>((5 * t + 1) % 64);
    std::vector<double> q, k;
    for (int64_t t = 0; t < c.tokens; ++t)
      for (int64_t h = 0; h < H + Hk; ++h)
        for (const double x : expected_head(c, call, t, h)) (h < H ? q : k).push_back(x);
    each_cpu_body(qkv_forward, [&](auto run, const std::string&) {
      run({.q = call.q,
           .k = call.k,
           .qkv = call.qkv,
           .positions = call.positions,
           .cos_sin = call.cos_sin,
           .q_norm = given(c.norms, call.q_norm),
           .k_norm = given(c.norms, call.k_norm),
           .shape = c.shape,
           .cache = KvWriteTarget{cache_k, cache_v, slots}});
      EXPECT_TRUE(close(call.q, q, {2e-6, 2e-6}));
      EXPECT_TRUE(close(call.k, k, {2e-6, 2e-6}));
      for (int64_t t = 0; t < c.tokens; ++t)
        for (int64_t i = 0; i < Hk * d; ++i) {
          ASSERT_TRUE(same_bits(cache_k[slots[t] * Hk * d + i], call.k[t * Hk * d + i]));
          ASSERT_TRUE(same_bits(cache_v[slots[t] * Hk * d + i], call.qkv[t * c.width() + (H + Hk) * d + i]));
        }
    });
  }
}

// Each head of a token equals a row of quantize_rows.
TEST(Qkv, WritesACacheInFp8) {
  for (const Case& c : cases()) {
    Call call(c);
    const int64_t H = c.shape.num_heads, Hk = c.shape.num_kv_heads, d = c.shape.head_dim;
    Bytes cache_k({64, Hk, d}, uint8_t{0x55}, 3), cache_v = cache_k;
    Floats k_scale = poisoned({64, Hk}, 1), v_scale = k_scale;
    Ids slots({c.tokens});
    for (int64_t t = 0; t < c.tokens; ++t) slots[t] = static_cast<int32_t>((5 * t + 1) % 64);
    each_cpu_body(qkv_forward, [&](auto run, const std::string&) {
      if (!run({.q = call.q,
                .k = call.k,
                .qkv = call.qkv,
                .positions = call.positions,
                .cos_sin = call.cos_sin,
                .q_norm = given(c.norms, call.q_norm),
                .k_norm = given(c.norms, call.k_norm),
                .shape = c.shape,
                .cache = KvWriteTarget{cache_k, cache_v, slots, k_scale, v_scale}}))
        return;
      Floats k_rows({c.tokens * Hk, d}), v_rows = k_rows;
      for (int64_t i = 0; i < k_rows.size(); ++i) {
        k_rows[i] = call.k[i];
        v_rows[i] = call.qkv[i / (Hk * d) * c.width() + (H + Hk) * d + i % (Hk * d)];
      }
      const Quantized k(QuantFormat::fp8, k_rows), v(QuantFormat::fp8, v_rows);
      for (int64_t row = 0; row < c.tokens * Hk; ++row) {
        const int64_t at = slots[row / Hk] * Hk + row % Hk;
        ASSERT_TRUE(same_bits(k_scale[at], k.scales[row]) && same_bits(v_scale[at], v.scales[row]));
        for (int64_t i = 0; i < d; ++i)
          ASSERT_TRUE(cache_k[at * d + i] == k.values[row * d + i] && cache_v[at * d + i] == v.values[row * d + i]);
      }
      EXPECT_TRUE(cache_k.gaps_intact() && cache_v.gaps_intact() && k_scale.gaps_intact() && v_scale.gaps_intact());
    });
  }
}

TEST(Qkv, GradientsAreFiniteDifferencesAndLeaveTheValuesAlone) {
  for (const Case& c : {Case{4, {2, 1, 8, 8, 1e-3f}, true}, Case{3, {2, 2, 6, 4, 0}, false},
                        Case{4, {2, 1, 8, 6, 1e-3f, 0, true}, true}}) {
    Call call(c);
    const Tensor q_norm = given(c.norms, call.q_norm), k_norm = given(c.norms, call.k_norm),
                 rstd = given(c.norms, call.rstd);
    const auto loss = [&] {
      qkv_forward(cpu(), {.q = call.q,
                          .k = call.k,
                          .rstd = rstd,
                          .qkv = call.qkv,
                          .positions = call.positions,
                          .cos_sin = call.cos_sin,
                          .q_norm = q_norm,
                          .k_norm = k_norm,
                          .shape = c.shape});
      double sum = 0;
      for (int64_t i = 0; i < call.q.size(); ++i) sum += double{call.q[i]} * call.dq[i];
      for (int64_t i = 0; i < call.k.size(); ++i) sum += double{call.k[i]} * call.dk[i];
      return sum;
    };
    loss();
    const Floats kept = call.rstd;
    each_cpu_body(qkv_backward, [&](auto run, const std::string&) {
      Floats dqkv({c.tokens, c.width()}), dq_norm({c.shape.head_dim}), dk_norm({c.shape.head_dim});
      const int64_t values = (c.shape.num_heads + c.shape.num_kv_heads) * c.shape.head_dim;
      run({.dqkv = dqkv,
           .dq_norm = given(c.norms, dq_norm),
           .dk_norm = given(c.norms, dk_norm),
           .dq = call.dq,
           .dk = call.dk,
           .rstd = given(c.norms, kept),
           .qkv = call.qkv,
           .positions = call.positions,
           .cos_sin = call.cos_sin,
           .q_norm = q_norm,
           .k_norm = k_norm,
           .shape = c.shape});
      for (int64_t i = 0; i < dqkv.size(); ++i) ASSERT_TRUE(i % c.width() < values || dqkv[i] == 0);
      expect_gradient(loss, call.qkv, dqkv);
      if (!c.norms) return;
      expect_gradient(loss, call.q_norm, dq_norm);
      expect_gradient(loss, call.k_norm, dk_norm);
    });
  }
}

TEST(Qkv, BitsDependNeitherOnOtherTokensNorOnThreads) {
  const Case c{70, {4, 2, 20, 20, 1e-6f}, true};
  Call call(c);
  std::vector<Floats> first;
  for (const int threads : {1, 2}) {
    set_num_threads(threads);
    qkv_forward(cpu(), {.q = call.q,
                        .k = call.k,
                        .rstd = call.rstd,
                        .qkv = call.qkv,
                        .positions = call.positions,
                        .cos_sin = call.cos_sin,
                        .q_norm = call.q_norm,
                        .k_norm = call.k_norm,
                        .shape = c.shape});
    Floats dqkv({70, c.width()}), dq_norm({20}), dk_norm({20});
    qkv_backward(cpu(), {.dqkv = dqkv,
                         .dq_norm = dq_norm,
                         .dk_norm = dk_norm,
                         .dq = call.dq,
                         .dk = call.dk,
                         .rstd = call.rstd,
                         .qkv = call.qkv,
                         .positions = call.positions,
                         .cos_sin = call.cos_sin,
                         .q_norm = call.q_norm,
                         .k_norm = call.k_norm,
                         .shape = c.shape});
    const std::vector<Floats> now = {call.q, call.k, dqkv, dq_norm, dk_norm};
    if (first.empty()) first = now;
    for (size_t i = 0; i < now.size(); ++i) EXPECT_TRUE(close(now[i], first[i], {0, 0})) << i;
  }
  Floats q = poisoned({1, 4, 20}), k = poisoned({1, 2, 20});
  qkv_forward(cpu(), {.q = q,
                      .k = k,
                      .qkv = call.qkv.tensor().rows(41, 1),
                      .positions = call.positions.tensor().rows(41, 1),
                      .cos_sin = call.cos_sin,
                      .q_norm = call.q_norm,
                      .k_norm = call.k_norm,
                      .shape = c.shape});
  for (int64_t i = 0; i < q.size(); ++i) ASSERT_TRUE(same_bits(q[i], call.q[41 * 80 + i]));
}

// A projection of queries alone gives the bits of the queries of a whole one, forward and backward.
TEST(Qkv, QueriesAloneHaveTheBitsOfAWholeProjection) {
  for (const bool interleaved : {false, true}) {
    const Case whole{19, {4, 2, 8, 8, 1e-6f, 0, interleaved}, true};
    QkvShape alone = whole.shape;
    alone.num_kv_heads = 0;
    Call call(whole);
    Floats q = poisoned({19, 4, 8}), rstd = poisoned({19, 4}), dqkv({19, 64}), dq_norm({8}), dk_norm({8}),
           alone_dqkv({19, 32}), alone_dq_norm({8});
    const Tensor queries = call.qkv.tensor().columns(0, 32);
    qkv_forward(cpu(), {.q = call.q,
                        .k = call.k,
                        .rstd = call.rstd,
                        .qkv = call.qkv,
                        .positions = call.positions,
                        .cos_sin = call.cos_sin,
                        .q_norm = call.q_norm,
                        .k_norm = call.k_norm,
                        .shape = whole.shape});
    qkv_forward(cpu(), {.q = q,
                        .rstd = rstd,
                        .qkv = queries,
                        .positions = call.positions,
                        .cos_sin = call.cos_sin,
                        .q_norm = call.q_norm,
                        .shape = alone});
    EXPECT_TRUE(close(q, call.q, {0, 0}));
    QkvBackward back{.dqkv = dqkv,
                     .dq_norm = dq_norm,
                     .dk_norm = dk_norm,
                     .dq = call.dq,
                     .dk = call.dk,
                     .rstd = call.rstd,
                     .qkv = call.qkv,
                     .positions = call.positions,
                     .cos_sin = call.cos_sin,
                     .q_norm = call.q_norm,
                     .k_norm = call.k_norm,
                     .shape = whole.shape};
    qkv_backward(cpu(), back);
    back.dqkv = alone_dqkv, back.dq_norm = alone_dq_norm, back.rstd = rstd, back.qkv = queries, back.shape = alone;
    back.dk_norm = back.dk = back.k_norm = {};
    qkv_backward(cpu(), back);
    EXPECT_TRUE(close(alone_dq_norm, dq_norm, {0, 0}));
    for (int64_t i = 0; i < alone_dqkv.size(); ++i)
      ASSERT_TRUE(same_bits(alone_dqkv[i], dqkv[i / 32 * 64 + i % 32])) << i;
  }
}

TEST(Qkv, RefusesPositionsAndSlotsOutsideTheirTables) {
  const Case c{2, {1, 1, 4, 4, 0}, false};
  Call call(c);
  const Floats cache({3, 1, 4});
  Ids slots({2});
  slots[1] = 3;
  const auto run = [&] {
    qkv_forward(cpu(), {.q = call.q,
                        .k = call.k,
                        .qkv = call.qkv,
                        .positions = call.positions,
                        .cos_sin = call.cos_sin,
                        .shape = c.shape,
                        .cache = {cache, cache, slots}});
  };
  EXPECT_THROW(run(), Error);
  slots[1] = 2;
  EXPECT_NO_THROW(run());
  call.positions[0] = num_positions;
  EXPECT_THROW(run(), Error);
}

namespace {

// q, k (and v) of a folder of stored arrays as one fused projection [T, (H + 2 Hk) * d].
Floats fused(const std::vector<NpyArray>& parts, int64_t tokens, int64_t width) {
  Floats out({tokens, width});
  for (int64_t t = 0; t < tokens; ++t) {
    int64_t at = t * width;
    for (const NpyArray& part : parts) {
      const int64_t columns = static_cast<int64_t>(part.values.size()) / tokens;
      for (int64_t i = 0; i < columns; ++i)
        out[at++] = static_cast<float>(part.values[static_cast<size_t>(t * columns + i)]);
    }
  }
  return out;
}
Ids ids_of(const NpyArray& array) {
  Ids out({static_cast<int64_t>(array.values.size())});
  for (int64_t i = 0; i < out.size(); ++i) out[i] = static_cast<int32_t>(array.values[static_cast<size_t>(i)]);
  return out;
}

}  // namespace

TEST(Qkv, RotationsMatchVllm) {
  struct Golden {
    std::string name;
    int64_t heads, kv_heads, dim, positions;
    RopeConfig rotary;
    double tolerance;
  };
  for (const Golden& g :
       std::vector<Golden>{{"rope_f32_pos_short", 4, 2, 64, 200000, {.dim = 32}, 1e-5},
                           {"rope_f32_pos_131k", 4, 2, 64, 200000, {.dim = 32}, 2e-2},
                           {"long_rope_llama3_neox_f32_bands",
                            2,
                            1,
                            24,
                            128,
                            {.dim = 16, .scaling = "llama3", .factor = 4, .original_max_position = 32},
                            1e-5},
                           {"long_rope_yarn_neox_f32_truncate",
                            2,
                            1,
                            16,
                            128,
                            {.dim = 8, .scaling = "yarn", .factor = 4, .original_max_position = 32},
                            1e-5}}) {
    HONE_SHARED_OR_SKIP(folder, "data/parity/vllmcpp_ops/" + g.name);
    const Ids positions = ids_of(read_npy(folder / "positions.npy"));
    const NpyArray q_in = read_npy(folder / "q_in.npy"), k_in = read_npy(folder / "k_in.npy");
    const int64_t tokens = positions.size(), width = (g.heads + 2 * g.kv_heads) * g.dim;
    const Floats qkv = fused({q_in, k_in, k_in}, tokens, width);
    Floats cos_sin({g.positions, g.rotary.dim}), q = poisoned({tokens, g.heads, g.dim}),
                                                 k = poisoned({tokens, g.kv_heads, g.dim});
    rope_table(cos_sin, g.rotary);
    qkv_forward(cpu(), {.q = q,
                        .k = k,
                        .qkv = qkv,
                        .positions = positions,
                        .cos_sin = cos_sin,
                        .shape = {g.heads, g.kv_heads, g.dim, g.rotary.dim, 0}});
    EXPECT_TRUE(close(q, read_npy(folder / "q_out.npy").values, {g.tolerance, g.tolerance})) << g.name;
    EXPECT_TRUE(close(k, read_npy(folder / "k_out.npy").values, {g.tolerance, g.tolerance})) << g.name;
  }
}

// Norms (their weights stored as an offset from one), partial rotation and attention, in the order of a Qwen3-Next
// layer.
TEST(Qkv, NormRotationAndAttentionMatchVllm) {
  for (const std::string name : {"dense_attention_f32_small", "dense_attention_f32_realdims"}) {
    HONE_SHARED_OR_SKIP(folder, "data/parity/vllmcpp_ops/" + name);
    const NpyArray q_in = read_npy(folder / "q.npy"), k_in = read_npy(folder / "k.npy"),
                   v_in = read_npy(folder / "v.npy"), q_weight = read_npy(folder / "q_norm_weight.npy"),
                   k_weight = read_npy(folder / "k_norm_weight.npy");
    const Ids positions = ids_of(read_npy(folder / "positions.npy"));
    const int64_t tokens = positions.size(), heads = q_in.shape[1], kv_heads = k_in.shape[1], dim = q_in.shape[2],
                  rotary = dim == 8 ? 4 : 64;
    const double theta = dim == 8 ? 1e4 : 1e7;
    const Floats qkv = fused({q_in, k_in, v_in}, tokens, (heads + 2 * kv_heads) * dim);
    Floats q_norm({dim}), k_norm({dim}), cos_sin({1000, rotary}), q = poisoned({tokens, heads, dim}),
                                                                  k = poisoned({tokens, kv_heads, dim}), out = q;
    for (int64_t i = 0; i < dim; ++i)
      q_norm[i] = static_cast<float>(1 + q_weight.values[static_cast<size_t>(i)]),
      k_norm[i] = static_cast<float>(1 + k_weight.values[static_cast<size_t>(i)]);
    rope_table(cos_sin, {.dim = rotary, .theta = theta});
    qkv_forward(cpu(), {.q = q,
                        .k = k,
                        .qkv = qkv,
                        .positions = positions,
                        .cos_sin = cos_sin,
                        .q_norm = q_norm,
                        .k_norm = k_norm,
                        .shape = {heads, kv_heads, dim, rotary, 1e-6f}});
    Ids offsets({2});
    offsets[1] = static_cast<int32_t>(tokens);
    const Tensor v = qkv.tensor().columns((heads + kv_heads) * dim, kv_heads * dim).view({tokens, kv_heads, dim});
    attention_forward(cpu(), {.out = out,
                              .q = q,
                              .k = k,
                              .v = v,
                              .offsets = offsets,
                              .shape = {.scale = 1 / std::sqrt(static_cast<float>(dim)), .max_length = tokens}});
    EXPECT_TRUE(close(out, read_npy(folder / "attn.npy").values, {2e-4, 2e-4})) << name;
  }
}

// The stored rotation pairs neighbors (2i, 2i + 1). Pairs (i, i + half) are the same numbers in another order.
TEST(Qkv, RotationMatchesAnInterleavedOne) {
  HONE_SHARED_OR_SKIP(path, "vectors/a1/rope.safetensors");
  const SafetensorsReader file(path);
  constexpr int64_t batch = 4, length = 12, dim = 64, tokens = batch * length;
  const Floats x = stored(file, "x", {tokens, dim}), expected = stored(file, "expected", {tokens, dim});
  Floats qkv({tokens, 3 * dim}), cos_sin({length, dim}), q = poisoned({tokens, 1, dim}), k = q,
                                                         rearranged({tokens, dim});
  Ids positions({tokens});
  for (int64_t t = 0; t < tokens; ++t) {
    std::memcpy(&positions[t], static_cast<const char*>(file.at("positions").data) + t % length * 8,
                4);  // the low half of an i64
    for (int64_t i = 0; i < dim; ++i)
      qkv[t * 3 * dim + i] = x[t * dim + i % 32 * 2 + i / 32],
                        rearranged[t * dim + i] = expected[t * dim + i % 32 * 2 + i / 32];
  }
  rope_table(cos_sin, {.dim = dim});
  qkv_forward(cpu(),
              {.q = q, .k = k, .qkv = qkv, .positions = positions, .cos_sin = cos_sin, .shape = {1, 1, dim, dim, 0}});
  EXPECT_TRUE(close(q, rearranged, {1e-4, 1e-5}));
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t i = 0; i < dim; ++i) qkv[t * 3 * dim + i] = x[t * dim + i];
  qkv_forward(
      cpu(),
      {.q = q, .k = k, .qkv = qkv, .positions = positions, .cos_sin = cos_sin, .shape = {1, 1, dim, dim, 0, 0, true}});
  EXPECT_TRUE(close(q, expected, {1e-4, 1e-5}));
}

}  // namespace hone::test
