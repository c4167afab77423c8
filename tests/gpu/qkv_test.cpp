#include "kernels/rope/qkv.h"

#include "kernels/rope/rope.h"
#include "tests/gpu/quantized_on_gpu.h"

namespace hone::test {
namespace {

constexpr int64_t num_positions = 300, num_slots = 4000;

struct Case {
  int64_t tokens;
  QkvShape shape;
  bool norms;
  int64_t gap = 0;  // between rows; a multiple of 8 allows loads of 16 bytes
};
std::vector<Case> cases() {
  return {{1, {1, 1, 2, 2, 1e-6f}, false},
          {0, {2, 1, 8, 8, 1e-6f}, true},
          {37, {6, 2, 16, 16, 1e-6f}, true, 8},
          {20, {4, 4, 10, 6, 1e-6f}, false},
          {9, {3, 1, 24, 0, 1e-6f}, true, 3},
          {130, {14, 2, 64, 64, 1e-6f}, false},
          {50, {16, 8, 128, 128, 1e-6f}, true},
          {21, {12, 12, 64, 0, 0}, false},
          {33, {2, 1, 256, 64, 1e-6f}, true},
          {12, {2, 2, 256, 0, 1e-6f}, true},
          {18, {4, 2, 250, 250, 1e-6f}, true, 2},
          {3000, {4, 1, 64, 64, 1e-6f}, true},
          {37, {6, 2, 16, 16, 1e-6f, 0, true}, true, 8},
          {20, {4, 4, 10, 6, 1e-6f, 0, true}, false},
          {50, {16, 8, 128, 64, 1e-6f, 0, true}, true},
          {33, {14, 2, 64, 64, 1e-6f, 0, true}, false}};
}

struct Call {
  Call(const Case& c, DType dtype)
      : width((c.shape.num_heads + 2 * c.shape.num_kv_heads) * c.shape.head_dim),
        qkv(rounded(normals({c.tokens, width}, 3, 2, c.gap), dtype)),
        dq(rounded(normals({c.tokens, c.shape.num_heads, c.shape.head_dim}, 4, 1, c.gap), dtype)),
        dk(rounded(normals({c.tokens, c.shape.num_kv_heads, c.shape.head_dim}, 5, 1, c.gap), dtype)),
        q_norm(rounded(normals({c.shape.head_dim}, 6), dtype)),
        k_norm(rounded(normals({c.shape.head_dim}, 7), dtype)),
        cos_sin({num_positions, std::max<int64_t>(c.shape.rotary_dim, 2)}),
        positions(random_ids(c.tokens, num_positions, 8)),
        slots({c.tokens}),
        q(poisoned({c.tokens, c.shape.num_heads, c.shape.head_dim}, c.gap)),
        k(poisoned({c.tokens, c.shape.num_kv_heads, c.shape.head_dim}, c.gap)),
        rstd(poisoned({c.tokens, c.shape.num_heads + c.shape.num_kv_heads}, c.gap)),
        cache_k(poisoned({num_slots, c.shape.num_kv_heads, c.shape.head_dim})),
        cache_v(cache_k) {
    rope_table(cos_sin, {.dim = cos_sin.tensor().dim(1), .theta = 100});
    for (int64_t t = 0; t < c.tokens; ++t) slots[t] = static_cast<int32_t>((7 * t + 5) % num_slots);
  }
  int64_t width;
  Floats qkv, dq, dk, q_norm, k_norm, cos_sin;
  Ids positions, slots;
  Floats q, k, rstd, cache_k, cache_v;
};

std::string name(const Case& c, DType dtype) {
  return concat(name_of(dtype), ", ", c.tokens, " tokens, heads ", c.shape.num_heads, "/", c.shape.num_kv_heads, " of ",
                c.shape.head_dim, ", ", c.shape.rotary_dim, " rotated", c.shape.interleaved ? " interleaved" : "",
                c.norms ? ", norms" : "");
}

// Equal where the specification wrote a number, unchanged where it left NaN.
void expect_cache(const Floats& actual, const Floats& expected, DType dtype) {
  const double t = dtype == DType::bf16 ? 1e-2 : 2e-5;
  for (int64_t i = 0; i < expected.size(); ++i) {
    if (std::isnan(expected[i]))
      ASSERT_TRUE(std::isnan(actual[i])) << i;
    else
      ASSERT_LE(std::fabs(actual[i] - expected[i]), t * (std::fabs(expected[i]) + 1)) << i;
  }
}

}  // namespace

TEST(QkvOnGpu, ForwardAgreesWithTheSpecification) {
  HONE_GPU_OR_SKIP();
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Case& c : cases()) {
      if (!chosen()) continue;
      SCOPED_TRACE(name(c, dtype));
      Call call(c, dtype);
      OnGpu q(call.q, dtype), k(call.k, dtype), rstd(call.rstd), cache_k(call.cache_k, dtype),
          cache_v(call.cache_v, dtype);
      const OnGpu qkv(call.qkv, dtype), positions(call.positions), slots(call.slots), cos_sin(call.cos_sin),
          q_norm(call.q_norm, dtype), k_norm(call.k_norm, dtype);
      const auto given = [&](const auto& x) { return c.norms ? Tensor(x) : Tensor(); };
      qkv_forward(cpu(), {.q = call.q,
                          .k = call.k,
                          .rstd = given(call.rstd),
                          .qkv = call.qkv,
                          .positions = call.positions,
                          .cos_sin = call.cos_sin,
                          .q_norm = given(call.q_norm),
                          .k_norm = given(call.k_norm),
                          .shape = c.shape,
                          .cache = {call.cache_k, call.cache_v, call.slots}});
      const Tensor places = c.shape.rotary_dim ? positions.tensor() : Tensor(),
                   angles = c.shape.rotary_dim ? cos_sin.tensor() : Tensor();
      qkv_forward(*gpu(), {.q = q,
                           .k = k,
                           .rstd = given(rstd),
                           .qkv = qkv,
                           .positions = places,
                           .cos_sin = angles,
                           .q_norm = given(q_norm),
                           .k_norm = given(k_norm),
                           .shape = c.shape,
                           .cache = {cache_k, cache_v, slots}});
      const Floats k_written = k.read();
      EXPECT_TRUE(agrees(q.read(), call.q, dtype));
      EXPECT_TRUE(agrees(k_written, call.k, dtype));
      if (c.norms) {
        EXPECT_TRUE(agrees(rstd.read(), call.rstd, DType::f32));
      }
      const Floats k_cached = cache_k.read(), v_cached = cache_v.read();
      expect_cache(k_cached, call.cache_k, dtype);
      expect_cache(v_cached, call.cache_v, dtype);
      const int64_t row = c.shape.num_kv_heads * c.shape.head_dim;
      for (int64_t t = 0; t < c.tokens; ++t)
        for (int64_t i = 0; i < row; ++i)
          ASSERT_TRUE(same_bits(k_cached[call.slots[t] * row + i], k_written[t * row + i]));

      OnGpu alone_q(poisoned({c.tokens, c.shape.num_heads, c.shape.head_dim}), dtype),
          alone_k(poisoned({c.tokens, c.shape.num_kv_heads, c.shape.head_dim}), dtype);
      qkv_forward(*gpu(), {.q = alone_q,
                           .k = alone_k,
                           .qkv = qkv,
                           .positions = places,
                           .cos_sin = angles,
                           .q_norm = given(q_norm),
                           .k_norm = given(k_norm),
                           .shape = c.shape});
      EXPECT_TRUE(close(alone_q.read(), q.read(), {0, 0})) << "without a cache";
      EXPECT_TRUE(close(alone_k.read(), k_written, {0, 0})) << "without a cache";
    }
}

// Each head of a token in the cache equals a row of quantize_rows: of k before it is rounded to bf16, and of v as it
// is.
TEST(QkvOnGpu, WritesACacheInFp8) {
  HONE_GPU_OR_SKIP();
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Case& c : cases()) {
      if (c.tokens == 0 || !chosen()) continue;
      SCOPED_TRACE(name(c, dtype));
      Call call(c, dtype);
      const int64_t H = c.shape.num_heads, Hk = c.shape.num_kv_heads, d = c.shape.head_dim;
      OnGpu q(call.q, dtype), k(call.k, dtype);
      QuantizedOnGpu cache_k(QuantFormat::fp8, num_slots * Hk, d), cache_v(QuantFormat::fp8, num_slots * Hk, d);
      const QuantizedMatrix planes[] = {cache_k, cache_v};
      const OnGpu qkv(call.qkv, dtype), positions(call.positions), slots(call.slots), cos_sin(call.cos_sin),
          q_norm(call.q_norm, dtype), k_norm(call.k_norm, dtype);
      const auto given = [&](const auto& x) { return c.norms ? Tensor(x) : Tensor(); };
      const Tensor places = c.shape.rotary_dim ? positions.tensor() : Tensor(),
                   angles = c.shape.rotary_dim ? cos_sin.tensor() : Tensor();
      qkv_forward(*gpu(),
                  {.q = q,
                   .k = k,
                   .qkv = qkv,
                   .positions = places,
                   .cos_sin = angles,
                   .q_norm = given(q_norm),
                   .k_norm = given(k_norm),
                   .shape = c.shape,
                   .cache = {planes[0].values.view({num_slots, Hk, d}), planes[1].values.view({num_slots, Hk, d}),
                             slots, planes[0].scales.view({num_slots, Hk}), planes[1].scales.view({num_slots, Hk})}});
      const Floats written = k.read();
      Floats k_rows({c.tokens * Hk, d}), v_rows = k_rows;
      for (int64_t i = 0; i < k_rows.size(); ++i) {
        k_rows[i] = written[i];
        v_rows[i] = call.qkv[i / (Hk * d) * call.width + (H + Hk) * d + i % (Hk * d)];
      }
      const Quantized k_want(QuantFormat::fp8, k_rows), v_want(QuantFormat::fp8, v_rows), k_got = cache_k.read(),
                                                                                          v_got = cache_v.read();
      for (int64_t row = 0; row < c.tokens * Hk; ++row) {
        const int64_t at = call.slots[row / Hk] * Hk + row % Hk;
        ASSERT_TRUE(same_bits(v_got.scales[at], v_want.scales[row]));
        ASSERT_NEAR(k_got.scales[at], k_want.scales[row], dtype == DType::f32 ? 0 : 0x1p-8f * k_want.scales[row]);
        for (int64_t i = 0; i < d; ++i) {
          ASSERT_EQ(v_got.values[at * d + i], v_want.values[row * d + i]);
          if (dtype == DType::f32) {
            ASSERT_EQ(k_got.values[at * d + i], k_want.values[row * d + i]);
          } else {
            const float number = decoded(QuantFormat::fp8, k_got.values[at * d + i]) * k_got.scales[at];
            ASSERT_NEAR(number, k_rows[row * d + i], std::fabs(k_rows[row * d + i]) / 12 + k_got.scales[at] * 0x1p-9f);
          }
        }
      }
    }
}

TEST(QkvOnGpu, ATokensBitsDependOnItAlone) {
  HONE_GPU_OR_SKIP();
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Case& c : {Case{60, {4, 2, 64, 64, 1e-6f}, true}, Case{60, {2, 1, 20, 10, 1e-6f}, true, 1}}) {
      Call call(c, dtype);
      const int64_t row = c.shape.num_heads * c.shape.head_dim;
      OnGpu q(call.q, dtype), k(call.k, dtype),
          q_one = OnGpu::poisoned({3, c.shape.num_heads, c.shape.head_dim}, dtype, 1),
          k_one = OnGpu::poisoned({3, c.shape.num_kv_heads, c.shape.head_dim}, dtype, 1);
      const OnGpu qkv(call.qkv, dtype), positions(call.positions), cos_sin(call.cos_sin), q_norm(call.q_norm, dtype),
          k_norm(call.k_norm, dtype);
      qkv_forward(*gpu(), {.q = q,
                           .k = k,
                           .qkv = qkv,
                           .positions = positions,
                           .cos_sin = cos_sin,
                           .q_norm = q_norm,
                           .k_norm = k_norm,
                           .shape = c.shape});
      // With a gap of one more element rows cannot be moved 16 bytes at a time.
      qkv_forward(*gpu(), {.q = q_one,
                           .k = k_one,
                           .qkv = qkv.tensor().rows(41, 3),
                           .positions = positions.tensor().rows(41, 3),
                           .cos_sin = cos_sin,
                           .q_norm = q_norm,
                           .k_norm = k_norm,
                           .shape = c.shape});
      const Floats all = q.read(), some = q_one.read();
      for (int64_t i = 0; i < some.size(); ++i) ASSERT_TRUE(same_bits(some[i], all[41 * row + i])) << i;
    }
}

TEST(QkvOnGpu, BackwardAgreesWithTheSpecification) {
  HONE_GPU_OR_SKIP();
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Case& c : cases()) {
      SCOPED_TRACE(name(c, dtype));
      Call call(c, dtype);
      const int64_t dim = c.shape.head_dim, values = (c.shape.num_heads + c.shape.num_kv_heads) * dim;
      const auto given = [&](const auto& x) { return c.norms ? Tensor(x) : Tensor(); };
      qkv_forward(cpu(), {.q = call.q,
                          .k = call.k,
                          .rstd = given(call.rstd),
                          .qkv = call.qkv,
                          .positions = call.positions,
                          .cos_sin = call.cos_sin,
                          .q_norm = given(call.q_norm),
                          .k_norm = given(call.k_norm),
                          .shape = c.shape});
      // The columns of v belong to attention_backward.
      Floats dqkv = rounded(normals({c.tokens, call.width}, 9, 1, c.gap), dtype), dq_norm = normals({dim}, 10),
             dk_norm = normals({dim}, 11);
      for (int64_t i = 0; i < dqkv.size(); ++i)
        if (i % call.width < values) dqkv[i] = nan_f32;
      OnGpu dqkv_gpu(dqkv, dtype), dq_norm_gpu(dq_norm), dk_norm_gpu(dk_norm);
      const OnGpu dq(call.dq, dtype), dk(call.dk, dtype), rstd(call.rstd), qkv(call.qkv, dtype),
          positions(call.positions), cos_sin(call.cos_sin), q_norm(call.q_norm, dtype), k_norm(call.k_norm, dtype);
      qkv_backward(cpu(), {.dqkv = dqkv,
                           .dq_norm = given(dq_norm),
                           .dk_norm = given(dk_norm),
                           .dq = call.dq,
                           .dk = call.dk,
                           .rstd = given(call.rstd),
                           .qkv = call.qkv,
                           .positions = call.positions,
                           .cos_sin = call.cos_sin,
                           .q_norm = given(call.q_norm),
                           .k_norm = given(call.k_norm),
                           .shape = c.shape});
      const auto run = [&](Tensor q_weights, Tensor k_weights) {
        qkv_backward(*gpu(), {.dqkv = dqkv_gpu,
                              .dq_norm = q_weights,
                              .dk_norm = k_weights,
                              .dq = dq,
                              .dk = dk,
                              .rstd = given(rstd),
                              .qkv = qkv,
                              .positions = positions,
                              .cos_sin = c.shape.rotary_dim ? cos_sin.tensor() : Tensor(),
                              .q_norm = given(q_norm),
                              .k_norm = given(k_norm),
                              .shape = c.shape});
      };
      run(given(dq_norm_gpu), given(dk_norm_gpu));
      const Floats first = dqkv_gpu.read();
      EXPECT_TRUE(agrees(first, dqkv, dtype));
      EXPECT_TRUE(agrees(dq_norm_gpu.read(), dq_norm, DType::f32, 5));
      EXPECT_TRUE(agrees(dk_norm_gpu.read(), dk_norm, DType::f32, 5));
      run({}, {});
      EXPECT_TRUE(close(dqkv_gpu.read(), first, {0, 0})) << "without the weights' gradients";
    }
}

TEST(QkvOnGpu, BackwardIsTheSameEachTime) {
  HONE_GPU_OR_SKIP();
  const Case c{3000, {6, 2, 128, 128, 1e-6f}, true};
  Call call(c, DType::bf16);
  const OnGpu dq(call.dq, DType::bf16), dk(call.dk, DType::bf16), rstd(normals({3000, 8}, 1)),
      qkv(call.qkv, DType::bf16), positions(call.positions), cos_sin(call.cos_sin), q_norm(call.q_norm, DType::bf16),
      k_norm(call.k_norm, DType::bf16);
  OnGpu dqkv(call.qkv, DType::bf16);
  std::vector<Floats> sums;
  for (int run = 0; run < 3; ++run) {
    OnGpu dq_norm(Floats({128})), dk_norm(Floats({128}));
    qkv_backward(*gpu(), {.dqkv = dqkv,
                          .dq_norm = dq_norm,
                          .dk_norm = dk_norm,
                          .dq = dq,
                          .dk = dk,
                          .rstd = rstd,
                          .qkv = qkv,
                          .positions = positions,
                          .cos_sin = cos_sin,
                          .q_norm = q_norm,
                          .k_norm = k_norm,
                          .shape = c.shape});
    sums.push_back(dq_norm.read());
    EXPECT_TRUE(close(sums.back(), sums.front(), {0, 0}));
  }
}

}  // namespace hone::test
