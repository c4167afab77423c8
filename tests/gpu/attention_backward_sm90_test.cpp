#include <numeric>

#include "tests/gpu/plain_attention.h"

namespace hone::test {
namespace {

struct Case {
  std::vector<int32_t> lengths;
  int64_t heads = 1, kv_heads = 1, window = 0;

  int64_t tokens() const { return std::accumulate(lengths.begin(), lengths.end(), int64_t{0}); }
  Ids offsets() const {
    Ids out({static_cast<int64_t>(lengths.size()) + 1});
    std::partial_sum(lengths.begin(), lengths.end(), &out[1]);
    return out;
  }
};

const std::vector<Case> cases = {
    {{1}, 1, 1},
    {{128}, 1, 1},
    {{0, 5, 0, 0, 300, 0}, 2, 2},
    {{7, 64, 65, 1, 130, 129}, 4, 1},
    {{33, 515}, 7, 1},
    {{700}, 4, 1, 1},
    {{259, 385}, 2, 1, 64},
    {{640, 40}, 2, 2, 100},
    {{513, 40}, 4, 2, 300},
    {std::vector<int32_t>(70, 9), 2, 1},
};

// The index of the body in bodies(), or -1.
int body() {
  for (size_t i = 0; i < attention_backward.bodies().size(); ++i)
    if (attention_backward.bodies()[i].device == DeviceKind::cuda &&
        std::string_view(attention_backward.bodies()[i].name) == "sm90")
      return static_cast<int>(i);
  return -1;
}

struct Call {
  Call(const Case& c, int64_t head_dim)
      : tokens(c.tokens()),
        heads(c.heads),
        kv_heads(c.kv_heads),
        dim(head_dim),
        shape{.scale = 1 / std::sqrt(static_cast<float>(dim)),
              .window = c.window,
              .max_length = *std::ranges::max_element(c.lengths)},
        offsets(c.offsets()) {
    attention_forward(cpu(), {.out = out, .lse = lse, .q = q, .k = k, .v = v, .offsets = offsets, .shape = shape});
    out = rounded(out, DType::bf16);
  }
  AttentionGradients on_cpu() const {
    AttentionGradients g{poisoned({tokens, heads, dim}), poisoned({tokens, kv_heads, dim}),
                         poisoned({tokens, kv_heads, dim})};
    attention_backward(cpu(), {.dq = g.dq,
                               .dk = g.dk,
                               .dv = g.dv,
                               .dout = dout,
                               .out = out,
                               .lse = lse,
                               .q = q,
                               .k = k,
                               .v = v,
                               .offsets = offsets,
                               .shape = shape});
    return g;
  }
  AttentionGradients on_gpu() const {
    constexpr DType type = DType::bf16;
    OnGpu dq = OnGpu::poisoned({tokens, heads, dim}, type), dk = OnGpu::poisoned({tokens, kv_heads, dim}, type, 8),
          dv = OnGpu::poisoned({tokens, kv_heads, dim}, type, 72);
    const OnGpu gpu_dout(dout, type), gpu_out(out, type), gpu_lse(lse), gpu_q(q, type), gpu_k(k, type), gpu_v(v, type),
        gpu_offsets(offsets);
    EXPECT_TRUE(attention_backward.supported(static_cast<size_t>(body()), {.dq = dq,
                                                                           .dk = dk,
                                                                           .dv = dv,
                                                                           .dout = gpu_dout,
                                                                           .out = gpu_out,
                                                                           .lse = gpu_lse,
                                                                           .q = gpu_q,
                                                                           .k = gpu_k,
                                                                           .v = gpu_v,
                                                                           .offsets = gpu_offsets,
                                                                           .shape = shape}));
    attention_backward.run_body(static_cast<size_t>(body()), *gpu(),
                                {.dq = dq,
                                 .dk = dk,
                                 .dv = dv,
                                 .dout = gpu_dout,
                                 .out = gpu_out,
                                 .lse = gpu_lse,
                                 .q = gpu_q,
                                 .k = gpu_k,
                                 .v = gpu_v,
                                 .offsets = gpu_offsets,
                                 .shape = shape});
    return {dq.read(), dk.read(), dv.read()};
  }

  int64_t tokens, heads, kv_heads, dim;
  AttentionShape shape;
  Ids offsets;
  Floats q = normal(heads, 7, 0), k = normal(kv_heads, 8, 24), v = normal(kv_heads, 9, 40), dout = normal(heads, 10, 0);
  Floats out = poisoned({tokens, heads, dim}, 16), lse = poisoned({tokens, heads}, 3);

 private:
  Floats normal(int64_t rows, uint64_t seed, int64_t gap) const {
    return rounded(normals({tokens, rows, dim}, seed, 1, gap), DType::bf16);
  }
};

TEST(AttentionBackwardOnHopper, AgreesWithTheSpecification) {
  HONE_HOPPER_OR_SKIP();
  ASSERT_GE(body(), 0);
  for (const int64_t dim : {64, 128})
    for (const Case& c : cases) {
      if (!chosen()) continue;
      const ::testing::ScopedTrace trace(
          __FILE__, __LINE__,
          concat(c.tokens(), " tokens, ", c.heads, "/", c.kv_heads, " heads of ", dim, ", window ", c.window));
      const Call call(c, dim);
      const AttentionGradients expected = call.on_cpu(), actual = call.on_gpu();
      const AttentionGradients plain =
          plain_attention_backward(call.dout, call.out, call.lse, call.q, call.k, call.v, call.offsets, call.shape);
      EXPECT_TRUE(within_twice(actual.dq, plain.dq, expected.dq));
      EXPECT_TRUE(within_twice(actual.dk, plain.dk, expected.dk));
      EXPECT_TRUE(within_twice(actual.dv, plain.dv, expected.dv));
    }
}

TEST(AttentionBackwardOnHopper, HasTheSameBitsInEveryRun) {
  HONE_HOPPER_OR_SKIP();
  ASSERT_GE(body(), 0);
  for (const int64_t dim : {64, 128}) {
    const Call call({{sized(1000, 300), 0, 257, 130}, 6, 2, 0}, dim);
    const AttentionGradients first = call.on_gpu();
    for (int run = 0; run < sized(3, 1); ++run) {
      const AttentionGradients again = call.on_gpu();
      EXPECT_TRUE(close(again.dq, first.dq, {0, 0}) && close(again.dk, first.dk, {0, 0}) &&
                  close(again.dv, first.dv, {0, 0}));
    }
  }
}

TEST(AttentionBackwardOnHopper, NoTokensAreNoWork) {
  HONE_HOPPER_OR_SKIP();
  ASSERT_GE(body(), 0);
  const Call call({{0, 0}, 2, 1, 0}, 64);
  EXPECT_EQ(call.on_gpu().dq.size(), 0);
}

}  // namespace
}  // namespace hone::test
