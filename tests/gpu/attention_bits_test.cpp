// Attention has the same bits in every body and with the limits of every GPU, and repeats them.
#include "kernels/cuda/limits.h"
#include "tests/gpu/attention_cases.h"

namespace hone::test {
namespace {

// Lengths around the tiles of 64 and 128 rows and the splits of 1024 keys, windows that begin within a split, and heads
// that are narrower than a tile.
const std::vector<Case> edge_cases = {
    {{63, 65, 127, 129, 191, 193}, 3, 3, 64},
    {{1023, 1025, 2047, 2049}, 2, 1, 128},
    {{4100}, 7, 1, 64},
    {{3100, 17}, 5, 1, 128, 1500},
    {{2300, 95}, 6, 2, 64, 1025},
    {{1100, 1, 1100}, 3, 1, 72, 129},
    {{1030, 2100}, 2, 2, 256, 700},
    {{1025, 2050, 64}, 8, 1, 64, 128, true},
    {{2300}, 4, 1, 128, 0, true},
};

TEST(AttentionBitsOnGpu, EveryForwardBodyHasTheSameBits) {
  HONE_GPU_OR_SKIP();
  std::vector<Case> all = cases;
  all.insert(all.end(), edge_cases.begin(), edge_cases.end());
  for (const Case& c : all) {
    if (!chosen()) continue;
    const Inputs in(c, DType::bf16);
    std::vector<Floats> outs, sums;
    each_gpu_body(attention_forward, [&](auto run) {
      OnGpu out = OnGpu::poisoned({c.tokens(), c.heads, c.dim}, DType::bf16),
            lse = OnGpu::poisoned({c.tokens(), c.heads});
      if (!run({.out = out,
                .lse = lse,
                .q = OnGpu(in.q, DType::bf16),
                .k = OnGpu(in.k, DType::bf16),
                .v = OnGpu(in.v, DType::bf16),
                .offsets = OnGpu(offsets_of(c.lengths)),
                .shape = c.shape(),
                .sinks = SinksOnGpu(in)}))
        return;
      outs.push_back(out.read()), sums.push_back(lse.read());
      EXPECT_TRUE(close(outs.back(), outs.front(), {0, 0})) << c.name();
      EXPECT_TRUE(close(sums.back(), sums.front(), {0, 0})) << c.name();
    });
    EXPECT_GE(outs.size(), 1u);
  }
}

// The limits choose the plan of a kernel: less shared memory, other tiles, the same bits.
TEST(AttentionBitsOnGpu, PortableForwardHasTheSameBitsWithTheLimitsOfEveryGpu) {
  HONE_GPU_OR_SKIP();
  for (const Case& c : edge_cases) {
    if (!chosen()) continue;
    const Inputs in(c, DType::bf16);
    const Result expected = forward_on_gpu(c, in, DType::bf16);
    for (const int capability : {80, 86}) {
      const DeviceLimitsScope scope(DeviceLimits::of(capability));
      const Result actual = forward_on_gpu(c, in, DType::bf16);
      EXPECT_TRUE(close(actual.out, expected.out, {0, 0})) << c.name() << ", limits of " << capability;
      EXPECT_TRUE(close(actual.lse, expected.lse, {0, 0})) << c.name() << ", limits of " << capability;
      EXPECT_TRUE(close(in_chunks(c, in, DType::bf16, 16, 200), expected.out, {0, 0}))
          << c.name() << ", limits of " << capability << ", paged";
    }
  }
}

// Query heads of a KV head that are shared out between thread blocks, and key tiles that wait for each other's turn.
TEST(AttentionBitsOnGpu, EveryBackwardBodyRepeatsItsBits) {
  HONE_GPU_OR_SKIP();
  for (const int capability : {0, 86}) {
    std::optional<DeviceLimitsScope> small;
    if (capability > 0) small.emplace(DeviceLimits::of(capability));
    for (const Case& c : {Case{{1500}, 16, 1, 64}, Case{{1500, 130}, 8, 1, 128}, Case{{900, 700}, 4, 4, 128, 333},
                          Case{{600}, 2, 1, 256}}) {
      if (!chosen()) continue;
      const Inputs in(c, DType::bf16);
      const Result forward = forward_on_gpu(c, in, DType::bf16);
      each_gpu_body(attention_backward, [&](auto run) {
        std::vector<Floats> first;
        for (int repeat = 0; repeat < sized(8, 2); ++repeat) {
          OnGpu dq = OnGpu::poisoned({c.tokens(), c.heads, c.dim}, DType::bf16),
                dk = OnGpu::poisoned({c.tokens(), c.kv_heads, c.dim}, DType::bf16),
                dv = OnGpu::poisoned({c.tokens(), c.kv_heads, c.dim}, DType::bf16);
          if (!run({.dq = dq,
                    .dk = dk,
                    .dv = dv,
                    .dout = OnGpu(in.dout, DType::bf16),
                    .out = OnGpu(forward.out, DType::bf16),
                    .lse = OnGpu(forward.lse),
                    .q = OnGpu(in.q, DType::bf16),
                    .k = OnGpu(in.k, DType::bf16),
                    .v = OnGpu(in.v, DType::bf16),
                    .offsets = OnGpu(offsets_of(c.lengths)),
                    .shape = c.shape()}))
            return;
          const std::vector<Floats> now = {dq.read(), dk.read(), dv.read()};
          if (first.empty()) first = now;
          for (size_t i = 0; i < now.size(); ++i) {
            EXPECT_TRUE(close(now[i], first[i], {0, 0})) << i << ", " << c.name();
            for (int64_t j = 0; j < now[i].size(); ++j) ASSERT_TRUE(std::isfinite(now[i][j])) << i << ", " << c.name();
          }
        }
      });
    }
  }
}

}  // namespace
}  // namespace hone::test
