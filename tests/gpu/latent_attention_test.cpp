// Latent attention and its maps on a GPU, compared with the specification; equal bits of prefill, decoding, training
// and of the plans of every GPU.
#include "kernels/attention/latent/head_gemm.h"
#include "kernels/cuda/limits.h"
#include "kernels/rope/latent_rows.h"
#include "kernels/rope/rope.h"
#include "tests/gpu/attention_cases.h"
#include "tests/gpu/plain_attention.h"
#include "tests/kernels/attention/latent_cases.h"

namespace hone::test {
namespace {

// Lengths around the blocks of 64 keys and the splits of 1024, heads that do not fill a tile, windows that begin within
// a split, and the head shape of DeepSeek-V3.
const std::vector<LatentCase> latent_cases = {
    {{1}, 1, 8, 8},
    {{}, 2, 8, 8},
    {{0, 5, 0, 3, 0}, 3, 24, 8},
    {{7, 64, 65, 1, 130}, 4, 32, 16},
    {{33, 300}, 6, 128, 64, 17},
    {{66, 129}, 16, 512, 64},
    {{40}, 128, 512, 64},
    {{1023, 1030}, 3, 64, 32},
    {{2100, 5}, 5, 40, 8, 1100},
    {{50}, 70, 256, 32},
    {{90}, 3, 10, 6},
};

struct LatentResult {
  Floats out, lse;
};

LatentInputs rounded_inputs(const LatentCase& c, DType dtype) {
  LatentInputs in(c);
  in.q = rounded(in.q, dtype);
  in.rows = rounded(in.rows, dtype);
  in.dout = rounded(in.dout, dtype);
  return in;
}

LatentResult on_cpu(const LatentCase& c, const LatentInputs& in) {
  LatentResult to{poisoned({c.tokens(), c.heads, c.rank}), poisoned({c.tokens(), c.heads})};
  latent_attention_forward(
      cpu(), {.out = to.out, .lse = to.lse, .q = in.q, .rows = in.rows, .offsets = in.offsets, .shape = c.shape()});
  return to;
}

LatentResult on_gpu(const LatentCase& c, const LatentInputs& in, DType dtype) {
  OnGpu out = OnGpu::poisoned({c.tokens(), c.heads, c.rank}, dtype, 8),
        lse = OnGpu::poisoned({c.tokens(), c.heads}, DType::f32, 3);
  latent_attention_forward(*gpu(), {.out = out,
                                    .lse = lse,
                                    .q = OnGpu(in.q, dtype),
                                    .rows = OnGpu(in.rows, dtype),
                                    .offsets = OnGpu(in.offsets),
                                    .shape = c.shape()});
  return {out.read(), lse.read()};
}

// All tokens by paged calls of `chunk` tokens of each sequence; from token `first` on, one call before that.
Floats paged_on_gpu(const LatentCase& c, const LatentInputs& in, DType dtype, int64_t block_size, int64_t chunk,
                    int64_t first = 0) {
  const LatentPages pages(c, in, block_size);
  const OnGpu rows(pages.rows, dtype), table(pages.table);
  Floats out = poisoned({c.tokens(), c.heads, c.rank});
  for (int64_t done = 0, next = 0; done < c.shape().max_length; done = next) {
    next = done < first ? first : done + chunk;
    const LatentChunk part(c, in, done, next - done);
    AttentionShape shape = c.shape();
    shape.max_length = next - done;
    OnGpu result = OnGpu::poisoned({std::ssize(part.tokens), c.heads, c.rank}, dtype);
    const OnGpu lengths(part.lengths);
    latent_attention_paged(*gpu(),
                           {.out = result,
                            .q = OnGpu(part.q, dtype),
                            .cache = {.rows = rows, .block_table = table, .lengths = lengths, .block_size = block_size},
                            .offsets = OnGpu(part.offsets),
                            .shape = shape});
    part.place(c, result.read(), out);
  }
  return out;
}

struct LatentGradients {
  Floats dq, drows;
};

LatentGradients gradients_on_cpu(const LatentCase& c, const LatentInputs& in, const LatentResult& forward) {
  LatentGradients out{poisoned({c.tokens(), c.heads, c.width()}), poisoned({c.tokens(), c.width()})};
  latent_attention_backward(cpu(), {.dq = out.dq,
                                    .drows = out.drows,
                                    .dout = in.dout,
                                    .out = forward.out,
                                    .lse = forward.lse,
                                    .q = in.q,
                                    .rows = in.rows,
                                    .offsets = in.offsets,
                                    .shape = c.shape()});
  return out;
}

LatentGradients gradients_on_gpu(const LatentCase& c, const LatentInputs& in, const LatentResult& forward,
                                 DType dtype) {
  OnGpu dq = OnGpu::poisoned({c.tokens(), c.heads, c.width()}, dtype),
        drows = OnGpu::poisoned({c.tokens(), c.width()}, dtype, 8);
  latent_attention_backward(*gpu(), {.dq = dq,
                                     .drows = drows,
                                     .dout = OnGpu(in.dout, dtype),
                                     .out = OnGpu(forward.out, dtype),
                                     .lse = OnGpu(forward.lse),
                                     .q = OnGpu(in.q, dtype),
                                     .rows = OnGpu(in.rows, dtype),
                                     .offsets = OnGpu(in.offsets),
                                     .shape = c.shape()});
  return {dq.read(), drows.read()};
}

// The gradients in plain bf16 arithmetic: attention with one KV head whose key is the row and whose value is the row
// with zeros after the rank.
LatentGradients plain_gradients(const LatentCase& c, const LatentInputs& in, const LatentResult& forward) {
  const int64_t T = c.tokens(), W = c.width();
  Floats k({T, 1, W}), v({T, 1, W}), out({T, c.heads, W}), dout({T, c.heads, W});
  for (int64_t t = 0; t < T; ++t)
    for (int64_t d = 0; d < W; ++d) {
      k[t * W + d] = in.rows[t * W + d];
      v[t * W + d] = d < c.rank ? in.rows[t * W + d] : 0;
    }
  for (int64_t row = 0; row < T * c.heads; ++row)
    for (int64_t d = 0; d < W; ++d) {
      out[row * W + d] = d < c.rank ? forward.out[row * c.rank + d] : 0;
      dout[row * W + d] = d < c.rank ? in.dout[row * c.rank + d] : 0;
    }
  const AttentionGradients of = plain_attention_backward(dout, out, forward.lse, in.q, k, v, in.offsets, c.shape());
  LatentGradients to{of.dq, Floats({T, W})};
  for (int64_t i = 0; i < T * W; ++i) to.drows[i] = to_float(to_bf16(of.dk[i] + of.dv[i]));
  return to;
}

TEST(LatentAttentionOnGpu, AgreesWithTheSpecification) {
  HONE_GPU_OR_SKIP();
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const LatentCase& c : latent_cases) {
      if (!chosen()) continue;
      SCOPED_TRACE(concat(c.name(), ", ", name_of(dtype)));
      const LatentInputs in = rounded_inputs(c, dtype);
      const LatentResult expected = on_cpu(c, in), actual = on_gpu(c, in, dtype);
      EXPECT_TRUE(heads_agree(actual.out, expected.out, dtype));
      EXPECT_TRUE(close(actual.lse, expected.lse, {1e-4, 1e-4}));
    }
}

// The bodies for bf16 with a rank up to 512: wgmma and mma.sync. The plain body has a rule of its own.
TEST(LatentAttentionOnGpu, HopperAndPortableBodiesHaveTheSameBits) {
  HONE_GPU_OR_SKIP();
  for (const LatentCase& c : latent_cases) {
    if (!chosen() || c.rank % 8 != 0 || c.width() % 8 != 0) continue;
    const LatentInputs in = rounded_inputs(c, DType::bf16);
    std::vector<LatentResult> results;
    for (size_t i = 0; i < latent_attention_forward.bodies().size(); ++i) {
      const OpBase::BodyInfo& body = latent_attention_forward.bodies()[i];
      if (body.device != DeviceKind::cuda || std::string_view(body.name) == "plain") continue;
      OnGpu out = OnGpu::poisoned({c.tokens(), c.heads, c.rank}, DType::bf16),
            lse = OnGpu::poisoned({c.tokens(), c.heads});
      const OnGpu q(in.q, DType::bf16), rows(in.rows, DType::bf16), offsets(in.offsets);
      const LatentAttentionForward args{
          .out = out, .lse = lse, .q = q, .rows = rows, .offsets = offsets, .shape = c.shape()};
      if (!latent_attention_forward.supported(i, args)) continue;
      latent_attention_forward.run_body(i, *gpu(), args);
      results.push_back({out.read(), lse.read()});
      EXPECT_TRUE(close(results.back().out, results.front().out, {0, 0})) << c.name() << ", " << body.name;
      EXPECT_TRUE(close(results.back().lse, results.front().lse, {0, 0})) << c.name() << ", " << body.name;
    }
    EXPECT_GE(results.size(), runs_hopper_bodies() ? 2u : 1u) << c.name();
  }
}

TEST(LatentAttentionOnGpu, GradientsAgreeWithTheSpecification) {
  HONE_GPU_OR_SKIP();
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const LatentCase& c : latent_cases) {
      if (!chosen()) continue;
      SCOPED_TRACE(concat(c.name(), ", ", name_of(dtype)));
      const LatentInputs in = rounded_inputs(c, dtype);
      LatentResult forward = on_cpu(c, in);
      forward.out = rounded(forward.out, dtype);
      const LatentGradients expected = gradients_on_cpu(c, in, forward),
                            actual = gradients_on_gpu(c, in, forward, dtype);
      if (dtype == DType::f32) {
        EXPECT_TRUE(heads_agree(actual.dq, expected.dq, dtype, 2, 0.3));
        EXPECT_TRUE(agrees(actual.drows, expected.drows, dtype, 2));
        continue;
      }
      const LatentGradients plain = plain_gradients(c, in, forward);
      EXPECT_TRUE(within_twice(actual.dq, plain.dq, expected.dq));
      EXPECT_TRUE(within_twice(actual.drows, plain.drows, expected.drows));
    }
}

TEST(LatentAttentionOnGpu, PrefillDecodeAndTrainingHaveTheSameBits) {
  HONE_GPU_OR_SKIP();
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const LatentCase& c : latent_cases) {
      if (!chosen()) continue;
      SCOPED_TRACE(concat(c.name(), ", ", name_of(dtype)));
      const LatentInputs in = rounded_inputs(c, dtype);
      const Floats whole = on_gpu(c, in, dtype).out;
      for (const auto& [chunk, block_size] : {std::pair<int64_t, int64_t>{200, 16}, {1000, 5}})
        EXPECT_TRUE(close(paged_on_gpu(c, in, dtype, block_size, chunk), whole, {0, 0})) << "chunks of " << chunk;
      const int64_t late = std::max<int64_t>(0, c.shape().max_length - 9);
      for (const int64_t chunk : {1, 3})
        EXPECT_TRUE(close(paged_on_gpu(c, in, dtype, 16, chunk, late), whole, {0, 0})) << chunk << " at a time";
    }
}

// Few sequences, whose splits are items of their own, and many, whose tiles are.
TEST(LatentAttentionOnGpu, AnyNumberOfSequencesDecodesToTheSameBits) {
  HONE_GPU_OR_SKIP();
  const LatentCase one{{2500}, 128, 512, 64};
  const LatentInputs in = rounded_inputs(one, DType::bf16);
  const LatentPages pages(one, in, 16);
  const OnGpu rows(pages.rows, DType::bf16);
  Floats expected({1, 128, 512});
  for (const int64_t sequences : {1, 20, 64, 150}) {
    if (!chosen()) continue;
    Ids table({sequences, pages.max_blocks}), lengths({sequences}), offsets({sequences + 1});
    Floats q({sequences, 128, 576});
    for (int64_t s = 0; s < sequences; ++s) {
      for (int64_t b = 0; b < pages.max_blocks; ++b) table[s * pages.max_blocks + b] = pages.table[b];
      lengths[s] = static_cast<int32_t>(2500 - 13 * s);
      offsets[s + 1] = static_cast<int32_t>(s + 1);
      for (int64_t i = 0; i < 128 * 576; ++i) q[s * 128 * 576 + i] = in.q[2499 * 128 * 576 + i];
    }
    OnGpu out = OnGpu::poisoned({sequences, 128, 512}, DType::bf16);
    const OnGpu table_there(table), lengths_there(lengths);
    latent_attention_paged(
        *gpu(), {.out = out,
                 .q = OnGpu(q, DType::bf16),
                 .cache = {.rows = rows, .block_table = table_there, .lengths = lengths_there, .block_size = 16},
                 .offsets = OnGpu(offsets),
                 .shape = {.scale = one.shape().scale, .max_length = 1}});
    const Floats actual = out.read();
    if (sequences == 1)
      for (int64_t i = 0; i < expected.size(); ++i) expected[i] = actual[i];
    for (int64_t i = 0; i < expected.size(); ++i)
      ASSERT_TRUE(same_bits(actual[i], expected[i])) << sequences << " sequences, element " << i;
  }
}

TEST(LatentAttentionOnGpu, HasTheSameBitsWithTheLimitsOfEveryGpu) {
  HONE_GPU_OR_SKIP();
  for (const LatentCase& c : latent_cases) {
    if (!chosen()) continue;
    const LatentInputs in = rounded_inputs(c, DType::bf16);
    const LatentResult expected = on_gpu(c, in, DType::bf16);
    for (const int capability : {80, 86}) {
      const DeviceLimitsScope scope(DeviceLimits::of(capability));
      const LatentResult actual = on_gpu(c, in, DType::bf16);
      EXPECT_TRUE(close(actual.out, expected.out, {0, 0})) << c.name() << ", limits of " << capability;
      EXPECT_TRUE(close(actual.lse, expected.lse, {0, 0})) << c.name() << ", limits of " << capability;
    }
  }
}

TEST(LatentAttentionOnGpu, GradientsFitTheLimitsOfEveryGpuAndRepeatTheirBits) {
  HONE_GPU_OR_SKIP();
  for (const int capability : {0, 80, 86}) {
    std::optional<DeviceLimitsScope> small;
    if (capability > 0) small.emplace(DeviceLimits::of(capability));
    for (const LatentCase& c : {LatentCase{{700, 130}, 16, 512, 64}, LatentCase{{300}, 5, 72, 16, 100}}) {
      if (!chosen()) continue;
      const LatentInputs in = rounded_inputs(c, DType::bf16);
      const LatentResult forward = on_gpu(c, in, DType::bf16);
      const LatentGradients expected = gradients_on_cpu(c, in, forward),
                            first = gradients_on_gpu(c, in, forward, DType::bf16);
      EXPECT_TRUE(heads_agree(first.dq, expected.dq, DType::bf16, 2, 0.3)) << c.name() << ", " << capability;
      EXPECT_TRUE(agrees(first.drows, expected.drows, DType::bf16, 2)) << c.name() << ", " << capability;
      for (int run = 0; run < sized(3, 1); ++run) {
        const LatentGradients again = gradients_on_gpu(c, in, forward, DType::bf16);
        EXPECT_TRUE(close(again.dq, first.dq, {0, 0}) && close(again.drows, first.drows, {0, 0})) << c.name();
      }
    }
  }
}

TEST(HeadGemmOnGpu, AgreesWithTheSpecificationRowByRow) {
  HONE_GPU_OR_SKIP();
  struct Shape {
    int64_t tokens, heads, N, K, extra;
  };
  for (const Shape& shape : {Shape{1, 1, 5, 7, 1}, {70, 3, 128, 512, 64}, {300, 4, 40, 24, 8}, {9, 128, 128, 512, 64}})
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const bool transposed : {false, true}) {
        if (!chosen()) continue;
        const auto& [T, H, N, K, extra] = shape;
        const int64_t inputs = transposed ? N : K, outputs = transposed ? K : N;
        const Floats x = rounded(normals({T, H, inputs + extra}, 1, 1, 8), dtype),
                     w = rounded(normals({H, N, K}, 2, 1, 8 * K), dtype), before({T, H, outputs + extra}, 3);
        const Floats expected = before;
        head_gemm(cpu(), {.y = expected, .x = x, .w = w, .transposed = transposed});
        OnGpu y(before, dtype);
        const OnGpu x_there(x, dtype), w_there(w, dtype);
        head_gemm(*gpu(), {.y = y, .x = x_there, .w = w_there, .transposed = transposed});
        const Floats actual = y.read();
        EXPECT_TRUE(agrees(actual, expected, dtype)) << T << " tokens, " << H << " heads, " << name_of(dtype);
        OnGpu alone(Floats({1, H, outputs + extra}, 3), dtype);
        head_gemm(*gpu(), {.y = alone, .x = x_there.tensor().rows(T - 1, 1), .w = w_there, .transposed = transposed});
        const Floats last = alone.read();
        for (int64_t i = 0; i < last.size(); ++i)
          ASSERT_TRUE(same_bits(last[i], actual[(T - 1) * last.size() + i])) << "element " << i;
        // The gradient of w.
        const Floats b = rounded(normals({T, H, K}, 4), dtype), a = rounded(normals({T, H, N + extra}, 5), dtype),
                     dw = normals({H, N, K}, 6);
        OnGpu dw_there(dw);
        head_gemm_weight(cpu(), {.dw = dw, .a = a, .b = b});
        head_gemm_weight(*gpu(), {.dw = dw_there, .a = OnGpu(a, dtype), .b = OnGpu(b, dtype)});
        EXPECT_TRUE(agrees(dw_there.read(), dw, DType::f32, 5));
      }
}

TEST(LatentRowsOnGpu, AgreeWithTheSpecification) {
  HONE_GPU_OR_SKIP();
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const bool interleaved : {false, true}) {
      const int64_t T = 37, H = 5, W = 24 + 8, P = 8;
      const Floats q_in = rounded(normals({T, H, 12 + P}, 1), dtype), row_in = rounded(normals({T, W}, 2), dtype),
                   q = rounded(normals({T, H, W}, 3), dtype), rows = rounded(normals({T, W}, 4), dtype),
                   cache({T + 3, W}, -1), cos_sin({64, P});
      rope_table(cos_sin, {.dim = P, .theta = 100});
      Ids positions({T}), slots({T});
      for (int64_t t = 0; t < T; ++t) {
        positions[t] = static_cast<int32_t>(t * 7 % 64);
        slots[t] = static_cast<int32_t>(T + 2 - t);
      }
      OnGpu q_there(q, dtype), rows_there(rows, dtype), cache_there(cache, dtype), dq_in_there(q_in, dtype),
          drow_in_there(row_in, dtype);
      const OnGpu positions_there(positions), angles(cos_sin);
      latent_rows_forward(*gpu(), {.q = q_there,
                                   .rows = rows_there,
                                   .q_in = OnGpu(q_in, dtype),
                                   .row_in = OnGpu(row_in, dtype),
                                   .positions = positions_there,
                                   .cos_sin = angles,
                                   .interleaved = interleaved,
                                   .cache = cache_there,
                                   .slots = OnGpu(slots)});
      latent_rows_backward(*gpu(), {.dq_in = dq_in_there,
                                    .drow_in = drow_in_there,
                                    .dq = OnGpu(q, dtype),
                                    .drows = OnGpu(rows, dtype),
                                    .positions = positions_there,
                                    .cos_sin = angles,
                                    .interleaved = interleaved});
      latent_rows_backward(cpu(), {.dq_in = q_in,
                                   .drow_in = row_in,
                                   .dq = q,
                                   .drows = rows,
                                   .positions = positions,
                                   .cos_sin = cos_sin,
                                   .interleaved = interleaved});
      EXPECT_TRUE(agrees(dq_in_there.read(), q_in, dtype));
      EXPECT_TRUE(agrees(drow_in_there.read(), row_in, dtype));
      const Floats fresh_q = rounded(normals({T, H, 12 + P}, 1), dtype), fresh_row = rounded(normals({T, W}, 2), dtype);
      latent_rows_forward(cpu(), {.q = q,
                                  .rows = rows,
                                  .q_in = fresh_q,
                                  .row_in = fresh_row,
                                  .positions = positions,
                                  .cos_sin = cos_sin,
                                  .interleaved = interleaved,
                                  .cache = cache,
                                  .slots = slots});
      EXPECT_TRUE(agrees(q_there.read(), q, dtype));
      EXPECT_TRUE(agrees(rows_there.read(), rows, dtype));
      EXPECT_TRUE(agrees(cache_there.read(), cache, dtype));
    }
}

}  // namespace
}  // namespace hone::test
