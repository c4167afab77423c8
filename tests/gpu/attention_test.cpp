#include "tests/gpu/attention_cases.h"

namespace hone::test {
namespace {

TEST(AttentionOnGpu, ForwardAgreesWithTheSpecification) {
  HONE_GPU_OR_SKIP();
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Case& c : cases) {
      if (!chosen()) continue;
      const Inputs in(c, dtype);
      Floats out = poisoned({c.tokens(), c.heads, c.dim}), lse = poisoned({c.tokens(), c.heads});
      attention_forward(cpu(), {.out = out,
                                .lse = lse,
                                .q = in.q,
                                .k = in.k,
                                .v = in.v,
                                .offsets = offsets_of(c.lengths),
                                .shape = c.shape(),
                                .sinks = in.sinks_on_cpu()});
      each_gpu_body(attention_forward, [&](auto run) {
        OnGpu y = OnGpu::poisoned({c.tokens(), c.heads, c.dim}, dtype, 8),
              sums = OnGpu::poisoned({c.tokens(), c.heads}, DType::f32, 3);
        if (!run({.out = y,
                  .lse = sums,
                  .q = OnGpu(in.q, dtype),
                  .k = OnGpu(in.k, dtype),
                  .v = OnGpu(in.v, dtype),
                  .offsets = OnGpu(offsets_of(c.lengths)),
                  .shape = c.shape(),
                  .sinks = SinksOnGpu(in)}))
          return;
        EXPECT_TRUE(heads_agree(y.read(), out, dtype)) << c.name();
        EXPECT_TRUE(agrees(sums.read(), lse, DType::f32)) << c.name();
      });
    }
}

TEST(AttentionOnGpu, AHeadOfTenNumbersIsForF32) {
  HONE_GPU_OR_SKIP();
  const Case c{{200}, 2, 2, 10, 65};
  const Inputs in(c, DType::f32);
  Floats out = poisoned({c.tokens(), c.heads, c.dim});
  attention_forward(
      cpu(), {.out = out, .q = in.q, .k = in.k, .v = in.v, .offsets = offsets_of(c.lengths), .shape = c.shape()});
  EXPECT_TRUE(heads_agree(forward_on_gpu(c, in, DType::f32).out, out, DType::f32));
  EXPECT_THROW(forward_on_gpu(c, in, DType::bf16), Error);
}

TEST(AttentionOnGpu, PackedPagedChunkedAndDecodedQueriesHaveTheSameBits) {
  HONE_GPU_OR_SKIP();
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Case& c : cases) {
      if (!chosen()) continue;
      const Inputs in(c, dtype);
      const Floats out = forward_on_gpu(c, in, dtype).out;
      for (const auto& [chunk, block_size] : {std::pair<int32_t, int64_t>{64, 5}, {130, 1}, {10000, 32}})
        EXPECT_TRUE(close(in_chunks(c, in, dtype, block_size, chunk), out, {0, 0}))
            << c.name() << ", chunks of " << chunk << ", cache blocks of " << block_size;
      const int32_t late = std::max<int32_t>(static_cast<int32_t>(c.longest()) - sized(40, 5), 0);
      for (const int32_t chunk : {1, 2, 7})
        EXPECT_TRUE(close(in_chunks(c, in, dtype, 16, chunk, late), out, {0, 0}))
            << c.name() << ", " << chunk << " tokens at a time";
    }
}

TEST(AttentionOnGpu, DecodedFromTheFirstTokenOnQueriesHaveTheSameBits) {
  HONE_GPU_OR_SKIP();
  for (const Case& c :
       {Case{{sized(150, 10), 3, sized(260, 20)}, 4, 2, 64}, Case{{sized(280, 20)}, 7, 1, 128, sized(140, 10)}}) {
    if (!chosen()) continue;
    const Inputs in(c, DType::bf16);
    EXPECT_TRUE(close(in_chunks(c, in, DType::bf16, 16, 1), forward_on_gpu(c, in, DType::bf16).out, {0, 0}))
        << c.name();
  }
}

TEST(AttentionOnGpu, PrefillAndDecodeInOneCallHaveTheSameBits) {
  HONE_GPU_OR_SKIP();
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const bool grouped : {true, false}) {
      if (!chosen()) continue;
      const int32_t first = sized(1200, 120), second = sized(500, 150), fourth = sized(2100, 210),
                    last = sized(300, 60);
      const std::vector<int32_t> lengths = {first, second, 37, fourth, last};
      const Case c = grouped ? Case{lengths, 14, 2, 64} : Case{lengths, 4, 4, 128, 600};
      const Inputs in(c, dtype);
      const Floats out = forward_on_gpu(c, in, dtype).out;
      Floats part = out;
      run_parts(part, c, in, Cache(c, in, dtype, 16), dtype,
                {{first - 1, first}, {100, second}, {37, 37}, {fourth - 2, fourth}, {0, last}});
      EXPECT_TRUE(close(part, out, {0, 0})) << c.name();
    }
}

// Grids of at most one thread block per SM of an H200, and larger ones; each with 8 and with 16 rows, for all head
// dims.
TEST(AttentionOnGpu, ManySequencesDecodeToTheSameBits) {
  HONE_GPU_OR_SKIP();
  struct Shape {
    size_t sequences;
    int64_t heads, kv_heads, dim, window, block_size;
  };
  for (const Shape& shape : {Shape{30, 7, 1, 64, 0, 16},
                             {70, 7, 1, 64, 0, 16},
                             {70, 3, 1, 24, 600, 5},
                             {30, 8, 1, 128, 0, 8},
                             {70, 8, 1, 128, 600, 16},
                             {40, 2, 2, 128, 600, 32},
                             {30, 16, 1, 80, 0, 1},
                             {30, 2, 1, 256, 600, 2},
                             {70, 2, 1, 256, 0, 16},
                             {30, 8, 1, 256, 600, 4},
                             {70, 8, 1, 256, 0, 16}}) {
    std::vector<int32_t> lengths = sized(std::vector{0, 1, 1024, 1025, 1300, 2100}, {0, 1, 1025});
    while (lengths.size() < shape.sequences)
      lengths.push_back(static_cast<int32_t>(lengths.size()) * 37 % sized(400, 140));
    const Case c{lengths, shape.heads, shape.kv_heads, shape.dim, shape.window};
    const Inputs in(c, DType::bf16);
    const Cache cache(c, in, DType::bf16, shape.block_size, 2);
    const Floats out = forward_on_gpu(c, in, DType::bf16).out;
    for (const int32_t tokens : {1, 2}) {
      std::vector<Part> parts;
      for (const int32_t length : lengths) parts.push_back({std::max(length - tokens, 0), length});
      Floats decoded = out;
      run_parts(decoded, c, in, cache, DType::bf16, parts);
      EXPECT_TRUE(close(decoded, out, {0, 0}))
          << c.name() << ", " << tokens << " tokens, cache blocks of " << shape.block_size;
    }
  }
}

TEST(AttentionOnGpu, ASequenceHasTheSameBitsAloneAndPacked) {
  HONE_GPU_OR_SKIP();
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const int64_t dim : {32, 64, 128}) {
      const Case together{{40, 190, 3}, 4, 2, dim, 150}, alone{{190}, 4, 2, dim, 150};
      const Inputs packed(together, dtype);
      Inputs single(alone, dtype);
      std::vector<int64_t> rows(190);
      std::iota(rows.begin(), rows.end(), 40);
      single.q = rows_of(packed.q, rows), single.k = rows_of(packed.k, rows), single.v = rows_of(packed.v, rows);
      EXPECT_TRUE(close(forward_on_gpu(alone, single, dtype).out,
                        rows_of(forward_on_gpu(together, packed, dtype).out, rows), {0, 0}));
    }
}

TEST(AttentionOnGpu, LongSequences) {
  HONE_GPU_OR_SKIP();
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Case& c :
         {Case{{sized(32901, 2101), 600}, 2, 1, 64}, Case{{sized(33000, 2200)}, 1, 1, 128, sized(5000, 500)}}) {
      if (!chosen()) continue;
      const Inputs in(c, dtype);
      const Floats out = forward_on_gpu(c, in, dtype).out;
      // The specification on some queries: a paged call of one token each over the same keys.
      const int32_t far = sized(32900, 2100);
      for (const int32_t t : {0, 1023, 1024, far / 2, far - far % 1024, far}) {
        Ids table({1, c.lengths[0]}), length({1}), offsets = offsets_of({1});
        std::iota(&table[0], &table[0] + c.lengths[0], 0);
        length[0] = t + 1;
        const Floats q = rows_of(in.q, {t});
        Floats expected = poisoned({1, c.heads, c.dim});
        attention_paged(cpu(),
                        {.out = expected,
                         .q = q,
                         .cache = {.k = in.k, .v = in.v, .block_table = table, .lengths = length, .block_size = 1},
                         .offsets = offsets,
                         .shape = c.shape()});
        EXPECT_TRUE(heads_agree(rows_of(out, {t}), expected, dtype)) << c.name() << ", query " << t;
      }
      Floats decoded = out;
      std::vector<Part> parts = {{far - 1, far}, {599, 600}};
      parts.resize(c.lengths.size());
      run_parts(decoded, c, in, Cache(c, in, dtype, 16), dtype, parts);
      EXPECT_TRUE(close(decoded, out, {0, 0})) << c.name();
    }
}

TEST(AttentionOnGpu, WhatASequenceDoesNotHoldCannotReachIt) {
  HONE_GPU_OR_SKIP();
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Case c{{90, 100}, 2, 1, 64};
    Inputs in(c, dtype);
    const Floats out = forward_on_gpu(c, in, dtype).out;
    for (int64_t i = 90 * c.dim; i < in.k.size(); ++i) in.k[i] = nan_f32, in.v[i] = nan_f32;
    const Floats broken = forward_on_gpu(c, in, dtype).out;
    for (int64_t i = 0; i < out.size(); ++i)
      ASSERT_TRUE(i < 90 * c.heads * c.dim ? same_bits(broken[i], out[i]) : std::isnan(broken[i])) << i;
  }
}

TEST(AttentionOnGpu, BackwardAgreesWithTheSpecificationAndWithItself) {
  HONE_GPU_OR_SKIP();
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Case& c : cases) {
      if (!chosen()) continue;
      const Inputs in(c, dtype);
      const Ids offsets = offsets_of(c.lengths);
      Floats out = poisoned({c.tokens(), c.heads, c.dim}), lse = poisoned({c.tokens(), c.heads});
      attention_forward(cpu(), {.out = out,
                                .lse = lse,
                                .q = in.q,
                                .k = in.k,
                                .v = in.v,
                                .offsets = offsets,
                                .shape = c.shape(),
                                .sinks = in.sinks_on_cpu()});
      out = rounded(out, dtype);
      Floats dq = poisoned({c.tokens(), c.heads, c.dim}), dk = poisoned({c.tokens(), c.kv_heads, c.dim}), dv = dk,
             dsinks({c.heads});
      attention_backward(cpu(), {.dq = dq,
                                 .dk = dk,
                                 .dv = dv,
                                 .dout = in.dout,
                                 .out = out,
                                 .lse = lse,
                                 .q = in.q,
                                 .k = in.k,
                                 .v = in.v,
                                 .offsets = offsets,
                                 .shape = c.shape(),
                                 .sinks = in.sinks_on_cpu(),
                                 .dsinks = c.sinks ? dsinks.tensor() : Tensor()});
      const AttentionGradients plain =
          plain_attention_backward(in.dout, out, lse, in.q, in.k, in.v, offsets, c.shape());
      each_gpu_body(attention_backward, [&](auto run) {
        std::vector<Floats> first;
        for (int repeat = 0; repeat < 2; ++repeat) {
          OnGpu dq_gpu = OnGpu::poisoned({c.tokens(), c.heads, c.dim}, dtype, 8),
                dk_gpu = OnGpu::poisoned({c.tokens(), c.kv_heads, c.dim}, dtype, 16),
                dv_gpu = OnGpu::poisoned({c.tokens(), c.kv_heads, c.dim}, dtype, 40);
          OnGpu dsinks_gpu(Floats({c.heads}));
          if (!run({.dq = dq_gpu,
                    .dk = dk_gpu,
                    .dv = dv_gpu,
                    .dout = OnGpu(in.dout, dtype),
                    .out = OnGpu(out, dtype),
                    .lse = OnGpu(lse),
                    .q = OnGpu(in.q, dtype),
                    .k = OnGpu(in.k, dtype),
                    .v = OnGpu(in.v, dtype),
                    .offsets = OnGpu(offsets),
                    .shape = c.shape(),
                    .sinks = SinksOnGpu(in),
                    .dsinks = c.sinks ? Tensor(dsinks_gpu) : Tensor()}))
            return;
          const std::vector<Floats> now = {dq_gpu.read(), dk_gpu.read(), dv_gpu.read(), dsinks_gpu.read()};
          EXPECT_TRUE(close(now[3], dsinks, {1e-3, 2e-3})) << "dsinks, " << c.name();
          EXPECT_TRUE(gradient_agrees(now[0], plain.dq, dq, dtype)) << "dq, " << c.name();
          EXPECT_TRUE(gradient_agrees(now[1], plain.dk, dk, dtype)) << "dk, " << c.name();
          EXPECT_TRUE(gradient_agrees(now[2], plain.dv, dv, dtype)) << "dv, " << c.name();
          if (first.empty()) first = now;
          for (size_t i = 0; i < now.size(); ++i) EXPECT_TRUE(close(now[i], first[i], {0, 0})) << i << ", " << c.name();
        }
      });
    }
}

TEST(AttentionOnGpu, BackwardOfALongSequence) {
  HONE_GPU_OR_SKIP();
  // The window limits the specification's work; the sequence is long.
  for (const DType dtype : {DType::f32, DType::bf16}) {
    if (!chosen()) continue;
    const Case c{{sized(32800, 700)}, 2, 1, 64, 200};
    const Inputs in(c, dtype);
    const Ids offsets = offsets_of(c.lengths);
    Floats out = poisoned({c.tokens(), c.heads, c.dim}), lse = poisoned({c.tokens(), c.heads});
    attention_forward(
        cpu(), {.out = out, .lse = lse, .q = in.q, .k = in.k, .v = in.v, .offsets = offsets, .shape = c.shape()});
    out = rounded(out, dtype);
    Floats dq = poisoned({c.tokens(), c.heads, c.dim}), dk = poisoned({c.tokens(), c.kv_heads, c.dim}), dv = dk;
    attention_backward(cpu(), {.dq = dq,
                               .dk = dk,
                               .dv = dv,
                               .dout = in.dout,
                               .out = out,
                               .lse = lse,
                               .q = in.q,
                               .k = in.k,
                               .v = in.v,
                               .offsets = offsets,
                               .shape = c.shape()});
    OnGpu dq_gpu = OnGpu::poisoned({c.tokens(), c.heads, c.dim}, dtype),
          dk_gpu = OnGpu::poisoned({c.tokens(), c.kv_heads, c.dim}, dtype),
          dv_gpu = OnGpu::poisoned({c.tokens(), c.kv_heads, c.dim}, dtype);
    attention_backward(*gpu(), {.dq = dq_gpu,
                                .dk = dk_gpu,
                                .dv = dv_gpu,
                                .dout = OnGpu(in.dout, dtype),
                                .out = OnGpu(out, dtype),
                                .lse = OnGpu(lse),
                                .q = OnGpu(in.q, dtype),
                                .k = OnGpu(in.k, dtype),
                                .v = OnGpu(in.v, dtype),
                                .offsets = OnGpu(offsets),
                                .shape = c.shape()});
    const AttentionGradients plain = plain_attention_backward(in.dout, out, lse, in.q, in.k, in.v, offsets, c.shape());
    EXPECT_TRUE(gradient_agrees(dq_gpu.read(), plain.dq, dq, dtype));
    EXPECT_TRUE(gradient_agrees(dk_gpu.read(), plain.dk, dk, dtype));
    EXPECT_TRUE(gradient_agrees(dv_gpu.read(), plain.dv, dv, dtype));
  }
}

}  // namespace
}  // namespace hone::test
