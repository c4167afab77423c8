#include "kernels/attention/attention.h"

#include <gtest/gtest.h>

#include <numeric>

#include "core/base/parallel_for.h"
#include "tests/kernels/op_cases.h"
#include "tests/kernels/op_contract.h"
#include "tests/kernels/quant/quantized.h"

namespace hone {
namespace {

using namespace test;

// The shape of a call: sequence lengths, heads, KV heads, head dim, window, soft-cap.
struct Case {
  std::vector<int32_t> lengths;
  int64_t heads = 1, kv_heads = 1, dim = 8, window = 0;
  float softcap = 0;

  int64_t sequences() const { return static_cast<int64_t>(lengths.size()); }
  int64_t tokens() const { return std::accumulate(lengths.begin(), lengths.end(), int64_t{0}); }
  AttentionShape shape() const {
    return {.scale = 1 / std::sqrt(static_cast<float>(dim)),
            .window = window,
            .max_length = lengths.empty() ? 0 : *std::ranges::max_element(lengths),
            .softcap = softcap};
  }
  Ids offsets() const {
    Ids out({sequences() + 1});
    for (int64_t s = 0; s < sequences(); ++s) out[s + 1] = out[s] + lengths[static_cast<size_t>(s)];
    return out;
  }
};

const std::vector<Case> cases = {
    {{1}, 1, 1, 8},
    {{}, 2, 1, 8},
    {{0, 5, 0, 0, 3, 0}, 3, 1, 16},
    {{7, 64, 65, 1, 130}, 2, 2, 24},
    {{33, 100}, 6, 2, 64, 17},
    {{129}, 4, 1, 80, 64},
    {{70, 3}, 8, 1, 128, 1},
    {{66}, 2, 1, 256},
    {{50}, 70, 1, 8},
    {{200}, 2, 2, 10, 65},
    {{7, 64, 1}, 2, 2, 24, 0, 1.5f},
    {{0, 70}, 6, 2, 16, 17, 0.7f},
};

struct Call {
  explicit Call(const Case& c, uint64_t seed = 7)
      : q(normals({c.tokens(), c.heads, c.dim}, seed)),
        k(normals({c.tokens(), c.kv_heads, c.dim}, seed + 1, 1, 24)),
        v(normals({c.tokens(), c.kv_heads, c.dim}, seed + 2, 1, 40)),
        dout(normals({c.tokens(), c.heads, c.dim}, seed + 3)),
        out(poisoned({c.tokens(), c.heads, c.dim})),
        lse(poisoned({c.tokens(), c.heads})),
        offsets(c.offsets()) {}
  Floats q, k, v, dout, out, lse;
  Ids offsets;
};

// Attention by the textbook formula, in double: all weights of a row, then the sums.
std::vector<double> textbook(const Case& c, const Call& call) {
  std::vector<double> out(static_cast<size_t>(call.q.size()));
  for (int64_t s = 0; s < c.sequences(); ++s)
    for (int64_t t = call.offsets[s]; t < call.offsets[s + 1]; ++t)
      for (int64_t h = 0; h < c.heads; ++h) {
        const int64_t kv = h / (c.heads / c.kv_heads);
        std::vector<double> weights;
        double total = 0;
        for (int64_t j = call.offsets[s]; j <= t; ++j) {
          double score = 0;
          for (int64_t i = 0; i < c.dim; ++i)
            score += double{call.q[(t * c.heads + h) * c.dim + i]} * call.k[(j * c.kv_heads + kv) * c.dim + i];
          score /= std::sqrt(static_cast<double>(c.dim));
          if (c.softcap > 0) score = c.softcap * std::tanh(score / c.softcap);
          weights.push_back(c.window > 0 && t - j >= c.window ? 0 : std::exp(score));
          total += weights.back();
        }
        for (int64_t j = call.offsets[s]; j <= t; ++j)
          for (int64_t i = 0; i < c.dim; ++i)
            out[static_cast<size_t>((t * c.heads + h) * c.dim + i)] +=
                weights[static_cast<size_t>(j - call.offsets[s])] / total * call.v[(j * c.kv_heads + kv) * c.dim + i];
      }
  return out;
}

// Keys and values of a call in a paged cache. Blocks are assigned in descending order; slots without a key hold NaN.
struct Cache {
  Cache(const Case& c, const Call& call, int64_t block_size) : max_blocks(1), size(block_size) {
    for (const int32_t length : c.lengths)
      max_blocks = std::max<int64_t>(max_blocks, (length + block_size - 1) / block_size);
    const int64_t blocks = max_blocks * c.sequences();
    k = poisoned({blocks * block_size, c.kv_heads, c.dim}), v = k;
    table = Ids({c.sequences(), max_blocks});
    for (int64_t s = 0; s < c.sequences(); ++s)
      for (int64_t b = 0; b < max_blocks; ++b)
        table[s * max_blocks + b] = static_cast<int32_t>(blocks - 1 - (b * c.sequences() + s));
    for (int64_t s = 0; s < c.sequences(); ++s)
      for (int64_t j = 0; j < c.lengths[static_cast<size_t>(s)]; ++j) {
        const int64_t slot = int64_t{table[s * max_blocks + j / block_size]} * block_size + j % block_size,
                      row = c.kv_heads * c.dim;
        for (int64_t i = 0; i < row; ++i)
          k[slot * row + i] = call.k[(call.offsets[s] + j) * row + i],
                         v[slot * row + i] = call.v[(call.offsets[s] + j) * row + i];
      }
  }
  PagedKv view(const Ids& lengths) const {
    return {.k = k, .v = v, .block_table = table, .lengths = lengths, .block_size = size};
  }
  int64_t max_blocks, size;
  Floats k{{1}}, v{{1}};
  Ids table{{1, 1}};
};

TEST(Attention, SpecificationIsTheTextbookFormula) {
  for (const Case& c : cases) {
    Call call(c);
    const Tensor lse = call.lse;
    each_cpu_body(attention_forward, [&](auto run, const std::string&) {
      if (!run({.out = call.out,
                .lse = lse,
                .q = call.q,
                .k = call.k,
                .v = call.v,
                .offsets = call.offsets,
                .shape = c.shape()}))
        return;
      EXPECT_TRUE(close(call.out, textbook(c, call), {1e-5, 2e-6}));
    });
  }
}

[[maybe_unused]] const bool added = op_cases().add("attention_forward", [] {
  for (const Case& c : cases) {
    Call call(c);
    expect_bodies_agree(attention_forward, {1e-5, 2e-6},
                        {.out = call.out,
                         .lse = call.lse,
                         .q = call.q,
                         .k = call.k,
                         .v = call.v,
                         .offsets = call.offsets,
                         .shape = c.shape()});
  }
}) && op_cases().add("attention_backward", [] {
  for (const Case& c : cases) {
    Call call(c);
    attention_forward(cpu(), {.out = call.out,
                              .lse = call.lse,
                              .q = call.q,
                              .k = call.k,
                              .v = call.v,
                              .offsets = call.offsets,
                              .shape = c.shape()});
    Floats dq = poisoned({c.tokens(), c.heads, c.dim}), dk = poisoned({c.tokens(), c.kv_heads, c.dim}, 8),
           dv = poisoned({c.tokens(), c.kv_heads, c.dim}, 40);
    expect_bodies_agree(attention_backward, {1e-4, 2e-5},
                        {.dq = dq,
                         .dk = dk,
                         .dv = dv,
                         .dout = call.dout,
                         .out = call.out,
                         .lse = call.lse,
                         .q = call.q,
                         .k = call.k,
                         .v = call.v,
                         .offsets = call.offsets,
                         .shape = c.shape()});
  }
}) && op_cases().add("attention_paged", [] {
  for (const Case& c : cases) {
    Call call(c);
    const Cache cache(c, call, 16);
    Ids lengths({c.sequences()});
    for (int64_t s = 0; s < c.sequences(); ++s) lengths[s] = c.lengths[static_cast<size_t>(s)];
    expect_bodies_agree(
        attention_paged, {1e-5, 2e-6},
        {.out = call.out, .q = call.q, .cache = cache.view(lengths), .offsets = call.offsets, .shape = c.shape()});
  }
});

TEST(Attention, BodiesAgreeOnALongSequence) {
  const Case c{{2048}, 1, 1, 8};
  Call call(c);
  expect_bodies_agree(attention_forward, {2e-5, 4e-6},
                      {.out = call.out,
                       .lse = call.lse,
                       .q = call.q,
                       .k = call.k,
                       .v = call.v,
                       .offsets = call.offsets,
                       .shape = c.shape()});
  Floats dq = poisoned({c.tokens(), c.heads, c.dim}), dk = poisoned({c.tokens(), c.kv_heads, c.dim}), dv = dk;
  expect_bodies_agree(attention_backward, {1e-4, 1e-4},
                      {.dq = dq,
                       .dk = dk,
                       .dv = dv,
                       .dout = call.dout,
                       .out = call.out,
                       .lse = call.lse,
                       .q = call.q,
                       .k = call.k,
                       .v = call.v,
                       .offsets = call.offsets,
                       .shape = c.shape()});
}

TEST(Attention, GradientsAreFiniteDifferences) {
  for (const Case& c : {Case{{5, 0, 9}, 4, 2, 8}, Case{{12}, 2, 2, 10, 4}}) {
    Call call(c);
    const auto loss = [&] {
      attention_forward(cpu(), {.out = call.out,
                                .lse = call.lse,
                                .q = call.q,
                                .k = call.k,
                                .v = call.v,
                                .offsets = call.offsets,
                                .shape = c.shape()});
      double sum = 0;
      for (int64_t i = 0; i < call.out.size(); ++i) sum += double{call.out[i]} * call.dout[i];
      return sum;
    };
    loss();
    const Floats out = call.out, lse = call.lse;
    each_cpu_body(attention_backward, [&](auto run, const std::string&) {
      Floats dq = poisoned({c.tokens(), c.heads, c.dim}), dk = poisoned({c.tokens(), c.kv_heads, c.dim}), dv = dk;
      if (!run({.dq = dq,
                .dk = dk,
                .dv = dv,
                .dout = call.dout,
                .out = out,
                .lse = lse,
                .q = call.q,
                .k = call.k,
                .v = call.v,
                .offsets = call.offsets,
                .shape = c.shape()}))
        return;
      expect_gradient(loss, call.q, dq);
      expect_gradient(loss, call.k, dk);
      expect_gradient(loss, call.v, dv);
    });
  }
}

// Runs one body of attention_paged by name on the last `chunk` tokens of each prefix, as prefill in chunks does, or
// decode with chunk = 1.
Floats in_chunks(const Case& c, const Call& call, const std::string& name, int64_t chunk, int64_t block_size) {
  const Cache cache(c, call, block_size);
  Floats out = poisoned({c.tokens(), c.heads, c.dim});
  const int64_t row = c.heads * c.dim;
  for (int64_t done = 0; done < c.shape().max_length; done += chunk) {
    Ids lengths({c.sequences()}), offsets({c.sequences() + 1});
    std::vector<int64_t> rows;
    for (int64_t s = 0; s < c.sequences(); ++s) {
      const int64_t length = c.lengths[static_cast<size_t>(s)], last = std::min(length, done + chunk);
      lengths[s] = static_cast<int32_t>(last);
      for (int64_t t = done; t < last; ++t) rows.push_back(call.offsets[s] + t);
      offsets[s + 1] = static_cast<int32_t>(rows.size());
    }
    Floats q({static_cast<int64_t>(rows.size()), c.heads, c.dim}),
        part = poisoned({static_cast<int64_t>(rows.size()), c.heads, c.dim});
    for (size_t r = 0; r < rows.size(); ++r)
      for (int64_t i = 0; i < row; ++i) q[static_cast<int64_t>(r) * row + i] = call.q[rows[r] * row + i];
    each_cpu_body(attention_paged, [&](auto run, const std::string& body) {
      if (body == name)
        run({.out = part, .q = q, .cache = cache.view(lengths), .offsets = offsets, .shape = c.shape()});
    });
    for (size_t r = 0; r < rows.size(); ++r)
      for (int64_t i = 0; i < row; ++i) out[rows[r] * row + i] = part[static_cast<int64_t>(r) * row + i];
  }
  return out;
}

TEST(Attention, PackedPagedChunkedAndDecodedQueriesHaveTheSameBits) {
  for (const Case& c : cases) {
    Call call(c);
    each_cpu_body(attention_forward, [&](auto run, const std::string& name) {
      if (!run({.out = call.out,
                .lse = call.lse,
                .q = call.q,
                .k = call.k,
                .v = call.v,
                .offsets = call.offsets,
                .shape = c.shape()}))
        return;
      for (const auto& [chunk, block_size] : {std::pair<int64_t, int64_t>{1, 16}, {7, 1}, {64, 5}, {1000, 32}})
        EXPECT_TRUE(close(in_chunks(c, call, name, chunk, block_size), call.out, {0, 0}))
            << "chunks of " << chunk << ", cache blocks of " << block_size << ", head dim " << c.dim;
    });
  }
}

TEST(Attention, ASequenceHasTheSameBitsAloneAndPacked) {
  const Case together{{40, 90, 3}, 4, 2, 32, 50}, alone{{90}, 4, 2, 32, 50};
  Call packed(together), single(alone);
  const auto copy = [](Floats& to, const Floats& from, int64_t row) {
    for (int64_t i = 0; i < to.size(); ++i) to[i] = from[40 * row + i];
  };
  copy(single.q, packed.q, 128), copy(single.k, packed.k, 64), copy(single.v, packed.v, 64);
  each_cpu_body(attention_forward, [&](auto run, const std::string&) {
    run({.out = packed.out,
         .lse = packed.lse,
         .q = packed.q,
         .k = packed.k,
         .v = packed.v,
         .offsets = packed.offsets,
         .shape = together.shape()});
    run({.out = single.out,
         .lse = single.lse,
         .q = single.q,
         .k = single.k,
         .v = single.v,
         .offsets = single.offsets,
         .shape = alone.shape()});
    Floats expected = single.out;
    copy(expected, packed.out, 128);
    EXPECT_TRUE(close(single.out, expected, {0, 0}));
  });
}

TEST(Attention, BitsDoNotDependOnTheNumberOfThreads) {
  const Case c{{100, 70, 0, 129}, 6, 3, 40};
  Call call(c);
  each_cpu_body(attention_backward, [&](auto run, const std::string&) {
    std::vector<Floats> first;
    for (const int threads : {1, 2, 3}) {
      set_num_threads(threads);
      attention_forward(cpu(), {.out = call.out,
                                .lse = call.lse,
                                .q = call.q,
                                .k = call.k,
                                .v = call.v,
                                .offsets = call.offsets,
                                .shape = c.shape()});
      Floats dq = poisoned({c.tokens(), c.heads, c.dim}), dk = poisoned({c.tokens(), c.kv_heads, c.dim}), dv = dk;
      run({.dq = dq,
           .dk = dk,
           .dv = dv,
           .dout = call.dout,
           .out = call.out,
           .lse = call.lse,
           .q = call.q,
           .k = call.k,
           .v = call.v,
           .offsets = call.offsets,
           .shape = c.shape()});
      const std::vector<Floats> now = {call.out, call.lse, dq, dk, dv};
      if (first.empty()) first = now;
      for (size_t i = 0; i < now.size(); ++i)
        EXPECT_TRUE(close(now[i], first[i], {0, 0})) << i << ", " << threads << " threads";
    }
    set_num_threads(2);
  });
}

TEST(Attention, WhatAQueryDoesNotSeeCannotReachIt) {
  const Case c{{90}, 2, 1, 16, 20};
  Call call(c);
  each_cpu_body(attention_forward, [&](auto run, const std::string&) {
    run({.out = call.out,
         .lse = call.lse,
         .q = call.q,
         .k = call.k,
         .v = call.v,
         .offsets = call.offsets,
         .shape = c.shape()});
    Call broken = call;
    for (int64_t i = 0; i < c.dim; ++i) broken.k[50 * c.dim + i] = nan_f32, broken.v[50 * c.dim + i] = nan_f32;
    run({.out = broken.out,
         .lse = broken.lse,
         .q = broken.q,
         .k = broken.k,
         .v = broken.v,
         .offsets = broken.offsets,
         .shape = c.shape()});
    const int64_t row = c.heads * c.dim;
    for (int64_t i = 0; i < call.out.size(); ++i) {
      const int64_t t = i / row;
      const bool sees = t >= 50 && t < 70;
      ASSERT_TRUE(sees ? std::isnan(broken.out[i]) : same_bits(broken.out[i], call.out[i]))
          << "query " << t << (sees ? " sees" : " does not see") << " key 50";
    }
  });
}

// The f32 numbers of an e4m3 cache; only slots with keys are converted.
TEST(Attention, ReadsACacheInFp8) {
  for (const Case& c : cases) {
    Call call(c);
    const Cache rows(c, call, 3);
    const int64_t slots = rows.k.size() / (c.kv_heads * c.dim);
    Bytes k({slots, c.kv_heads, c.dim}, uint8_t{0x7f}, 5), v = k;
    Floats k_scale = poisoned({slots, c.kv_heads}), v_scale = k_scale;
    Call rounded = call;
    const auto store = [&](Bytes& to, Floats& scale, const Floats& from, Floats& numbers) {
      for (int64_t s = 0; s < c.sequences(); ++s)
        for (int64_t j = 0; j < c.lengths[static_cast<size_t>(s)]; ++j)
          for (int64_t h = 0; h < c.kv_heads; ++h) {
            const int64_t slot = int64_t{rows.table[s * rows.max_blocks + j / 3]} * 3 + j % 3,
                          row = (call.offsets[s] + j) * c.kv_heads + h;
            Floats head({1, c.dim});
            for (int64_t i = 0; i < c.dim; ++i) head[i] = from[row * c.dim + i];
            const Quantized one(QuantFormat::fp8, head);
            scale[slot * c.kv_heads + h] = one.scales[0];
            for (int64_t i = 0; i < c.dim; ++i) {
              to[(slot * c.kv_heads + h) * c.dim + i] = one.values[i];
              numbers[row * c.dim + i] = decoded(QuantFormat::fp8, one.values[i]) * one.scales[0];
            }
          }
    };
    store(k, k_scale, call.k, rounded.k), store(v, v_scale, call.v, rounded.v);
    Ids lengths({c.sequences()});
    for (int64_t s = 0; s < c.sequences(); ++s) lengths[s] = static_cast<int32_t>(c.lengths[static_cast<size_t>(s)]);
    const PagedKv cache{.k = k,
                        .v = v,
                        .block_table = rows.table,
                        .lengths = lengths,
                        .block_size = 3,
                        .k_scale = k_scale,
                        .v_scale = v_scale};
    each_cpu_body(attention_paged, [&](auto run, const std::string&) {
      Floats out = poisoned({c.tokens(), c.heads, c.dim});
      if (!run({.out = out, .q = call.q, .cache = cache, .offsets = call.offsets, .shape = c.shape()})) return;
      EXPECT_TRUE(close(out, textbook(c, rounded), {1e-5, 2e-6}));
    });
    PagedKv without = cache;
    without.v_scale = {};
    EXPECT_THROW(
        attention_paged(cpu(),
                        {.out = call.out, .q = call.q, .cache = without, .offsets = call.offsets, .shape = c.shape()}),
        Error);
  }
}

TEST(Attention, RefusesArgumentsThatDoNotFit) {
  const Case c{{4, 3}, 2, 1, 8};
  Call call(c);
  Ids short_offsets({2});
  short_offsets[1] = 6;
  EXPECT_THROW(attention_forward(cpu(), {.out = call.out,
                                         .lse = call.lse,
                                         .q = call.q,
                                         .k = call.k,
                                         .v = call.v,
                                         .offsets = short_offsets,
                                         .shape = c.shape()}),
               Error);
  const Cache cache(c, call, 4);
  Ids lengths({2});
  lengths[0] = 4, lengths[1] = 5;
  EXPECT_THROW(
      attention_paged(
          cpu(),
          {.out = call.out, .q = call.q, .cache = cache.view(lengths), .offsets = call.offsets, .shape = c.shape()}),
      Error);
  lengths[1] = 2;
  EXPECT_THROW(
      attention_paged(
          cpu(),
          {.out = call.out, .q = call.q, .cache = cache.view(lengths), .offsets = call.offsets, .shape = c.shape()}),
      Error);
  lengths[1] = 3;
  PagedKv view = cache.view(lengths);
  Ids table = cache.table;
  table[0] = 2;
  view.block_table = table;
  EXPECT_THROW(attention_paged(
                   cpu(), {.out = call.out, .q = call.q, .cache = view, .offsets = call.offsets, .shape = c.shape()}),
               Error);
}

}  // namespace
}  // namespace hone
