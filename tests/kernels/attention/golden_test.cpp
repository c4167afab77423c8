// Attention against stored arrays of other implementations.
#include "kernels/attention/attention.h"
#include "tests/kernels/stored.h"
#include "tests/support/support.h"

namespace hone::test {

// Four causal sequences of one head, forward and backward.
TEST(AttentionGolden, FlashAttentionVectors) {
  HONE_SHARED_OR_SKIP(path, "vectors/a2/flash_attention.safetensors");
  const SafetensorsReader file(path);
  constexpr int64_t S = 4, T = 128, d = 64;
  const Floats q = stored(file, "q", {S * T, 1, d}), k = stored(file, "k", {S * T, 1, d}),
               v = stored(file, "v", {S * T, 1, d}), dout = stored(file, "do", {S * T, 1, d});
  Ids offsets({S + 1});
  for (int64_t s = 0; s <= S; ++s) offsets[s] = static_cast<int32_t>(s * T);
  const AttentionShape shape{.scale = 0.125f, .max_length = T};
  Floats out = poisoned({S * T, 1, d}), lse = poisoned({S * T, 1}), dq = out, dk = out, dv = out;
  attention_forward(cpu(), {.out = out, .lse = lse, .q = q, .k = k, .v = v, .offsets = offsets, .shape = shape});
  attention_backward(cpu(), {.dq = dq,
                             .dk = dk,
                             .dv = dv,
                             .dout = dout,
                             .out = out,
                             .lse = lse,
                             .q = q,
                             .k = k,
                             .v = v,
                             .offsets = offsets,
                             .shape = shape});
  const Tolerance tolerance{1e-4, 1e-5};
  EXPECT_TRUE(close(out, stored(file, "causal.o", {S * T, 1, d}), tolerance));
  EXPECT_TRUE(close(lse, stored(file, "causal.lse", {S * T, 1}), tolerance));
  EXPECT_TRUE(close(dq, stored(file, "causal.dq", {S * T, 1, d}), tolerance));
  EXPECT_TRUE(close(dk, stored(file, "causal.dk", {S * T, 1, d}), tolerance));
  EXPECT_TRUE(close(dv, stored(file, "causal.dv", {S * T, 1, d}), tolerance));
}

// Attention under any mask: each query is a sequence of its own. Its block table (blocks of one key) lists the keys
// that the mask admits.
TEST(AttentionGolden, MaskedAttentionThroughABlockTable) {
  HONE_SHARED_OR_SKIP(path, "vectors/a1/sdpa.safetensors");
  const SafetensorsReader file(path);
  constexpr int64_t batch = 4, queries = 12, keys = 16, d = 64, rows = batch * queries;
  const Floats q = stored(file, "q", {rows, 1, d}), k = stored(file, "k", {batch * keys, 1, d}),
               v = stored(file, "v", {batch * keys, 1, d});
  const uint8_t* mask = static_cast<const uint8_t*>(file.at("mask").data);
  Ids table({rows, keys}), lengths({rows}), offsets({rows + 1});
  for (int64_t r = 0; r < rows; ++r) {
    offsets[r + 1] = static_cast<int32_t>(r + 1);
    for (int64_t j = 0; j < keys; ++j)
      if (mask[r * keys + j]) table[r * keys + lengths[r]++] = static_cast<int32_t>(r / queries * keys + j);
  }
  Floats out = poisoned({rows, 1, d});
  attention_paged(cpu(), {.out = out,
                          .q = q,
                          .cache = {.k = k, .v = v, .block_table = table, .lengths = lengths, .block_size = 1},
                          .offsets = offsets,
                          .shape = {.scale = 0.125f, .max_length = keys}});
  EXPECT_TRUE(close(out, stored(file, "expected_3d", {rows, 1, d}), {1e-4, 1e-5}));
}

}  // namespace hone::test
