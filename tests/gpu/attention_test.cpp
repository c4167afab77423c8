#include <numeric>

#include "kernels/cuda/limits.h"
#include "tests/gpu/plain_attention.h"

namespace hone::test {
namespace {

// The shape of a call: sequence lengths, heads, KV heads, head dim, window.
struct Case {
  std::vector<int32_t> lengths;
  int64_t heads = 1, kv_heads = 1, dim = 8, window = 0;

  int64_t sequences() const { return static_cast<int64_t>(lengths.size()); }
  int64_t tokens() const { return std::accumulate(lengths.begin(), lengths.end(), int64_t{0}); }
  int64_t longest() const { return lengths.empty() ? 0 : *std::ranges::max_element(lengths); }
  AttentionShape shape() const {
    return {.scale = 1 / std::sqrt(static_cast<float>(dim)), .window = window, .max_length = longest()};
  }
  std::string name() const {
    return concat(tokens(), " tokens, ", heads, "/", kv_heads, " heads of ", dim, ", window ", window);
  }
};

Ids offsets_of(const std::vector<int32_t>& lengths) {
  Ids out({static_cast<int64_t>(lengths.size()) + 1});
  for (size_t s = 0; s < lengths.size(); ++s)
    out[static_cast<int64_t>(s) + 1] = out[static_cast<int64_t>(s)] + lengths[s];
  return out;
}

const std::vector<Case> cases = {
    {{1}, 1, 1, 8},
    {{}, 2, 1, 8},
    {{0, 5, 0, 0, 3, 0}, 3, 1, 16},
    {{7, 64, 65, 1, 130}, 2, 2, 24},
    {{33, 300}, 6, 2, 64, 17},
    {{129, 1025}, 14, 2, 64},
    {{700, 2, 2049}, 2, 1, 128},
    {{1100, 40}, 4, 1, 128, 1030},
    {{129}, 4, 1, 80, 64},
    {{70, 3}, 8, 1, 128, 1},
    {{66, 1200}, 2, 1, 256},
    {{50}, 70, 1, 8},
    {{200}, 2, 2, 72, 65},
    {{900}, 14, 2, 64},
    {{600}, 16, 1, 64, 100},
};

struct Inputs {
  explicit Inputs(const Case& c, DType dtype, uint64_t seed = 7)
      : q(rounded(normals({c.tokens(), c.heads, c.dim}, seed), dtype)),
        k(rounded(normals({c.tokens(), c.kv_heads, c.dim}, seed + 1, 1, 24), dtype)),
        v(rounded(normals({c.tokens(), c.kv_heads, c.dim}, seed + 2, 1, 40), dtype)),
        dout(rounded(normals({c.tokens(), c.heads, c.dim}, seed + 3), dtype)) {}
  Floats q, k, v, dout;
};

// Calls test(run, name) for each CUDA body. run(arguments...) returns false if it does not support the arguments.
template <class... A, class Test>
void each_gpu_body(const Op<void(A...)>& op, Test test) {
  for (size_t i = 0; i < op.bodies().size(); ++i) {
    if (op.bodies()[i].device != DeviceKind::cuda) continue;
    const ::testing::ScopedTrace trace(__FILE__, __LINE__, concat(op.name(), ", body ", op.bodies()[i].name));
    test([&](std::type_identity_t<A>... arguments) {
      return op.supported(i, arguments...) && (op.run_body(i, *gpu(), arguments...), true);
    });
  }
}

// A query with one key has no gradient: 0.3 is the scale of numbers that cancel, in f32.
::testing::AssertionResult gradient_agrees(const Floats& actual, const Floats& plain, const Floats& expected,
                                           DType dtype) {
  return dtype == DType::bf16 ? within_twice(actual, plain, expected) : heads_agree(actual, expected, dtype, 2, 0.3);
}

struct Result {
  Floats out, lse;
};
// Runs the body that a call selects.
Result forward_on_gpu(const Case& c, const Inputs& in, DType dtype) {
  OnGpu out = OnGpu::poisoned({c.tokens(), c.heads, c.dim}, dtype, 8),
        lse = OnGpu::poisoned({c.tokens(), c.heads}, DType::f32, 3);
  attention_forward(*gpu(), {.out = out,
                             .lse = lse,
                             .q = OnGpu(in.q, dtype),
                             .k = OnGpu(in.k, dtype),
                             .v = OnGpu(in.v, dtype),
                             .offsets = OnGpu(offsets_of(c.lengths)),
                             .shape = c.shape()});
  return {out.read(), lse.read()};
}

// Rows of [T, ...] numbers, in this order.
Floats rows_of(const Floats& x, const std::vector<int64_t>& rows) {
  const Tensor t = x;
  Floats out({static_cast<int64_t>(rows.size()), t.dim(1), t.dim(2)});
  for (size_t r = 0; r < rows.size(); ++r)
    for (int64_t i = 0; i < t.row_size(); ++i)
      out[static_cast<int64_t>(r) * t.row_size() + i] = x[rows[r] * t.row_size() + i];
  return out;
}

// Keys and values of a call in a paged cache. Blocks are assigned in descending order. Slots without a key hold NaN,
// and so do keys that no window of the sequence's last `late` queries covers.
struct Cache {
  Cache(const Case& c, const Inputs& in, DType dtype, int64_t block_size, int64_t late = 0)
      : size(block_size), max_blocks((c.longest() + size - 1) / size + 1) {
    const int64_t blocks = max_blocks * c.sequences(), row = c.kv_heads * c.dim;
    Floats keys = test::poisoned({blocks * size, c.kv_heads, c.dim}, 16), values = keys;
    Ids ids({c.sequences(), max_blocks});
    const Ids begin = offsets_of(c.lengths);
    for (int64_t s = 0; s < c.sequences(); ++s)
      for (int64_t b = 0; b < max_blocks; ++b)
        ids[s * max_blocks + b] = static_cast<int32_t>(blocks - 1 - (b * c.sequences() + s));
    for (int64_t s = 0; s < c.sequences(); ++s)
      for (int64_t length = c.lengths[static_cast<size_t>(s)],
                   j = late > 0 && c.window > 0 ? std::max<int64_t>(length - late - c.window + 1, 0) : 0;
           j < length; ++j)
        for (int64_t i = 0; i < row; ++i) {
          const int64_t slot = int64_t{ids[s * max_blocks + j / size]} * size + j % size;
          keys[slot * row + i] = in.k[(begin[s] + j) * row + i],
                            values[slot * row + i] = in.v[(begin[s] + j) * row + i];
        }
    k.emplace(keys, dtype), v.emplace(values, dtype), table.emplace(ids);
  }
  PagedKv view(const OnGpu& lengths) const {
    return {.k = *k, .v = *v, .block_table = *table, .lengths = lengths, .block_size = size};
  }
  int64_t size, max_blocks;
  std::optional<OnGpu> k, v, table;
};

// Tokens [from, to) of each sequence: one paged call.
struct Part {
  int32_t from, to;
};
// Runs the paged op on the parts and writes their rows of out.
void run_parts(Floats& out, const Case& c, const Inputs& in, const Cache& cache, DType dtype,
               const std::vector<Part>& parts) {
  const Ids begin = offsets_of(c.lengths);
  std::vector<int64_t> rows;
  std::vector<int32_t> counts;
  Ids lengths({c.sequences()});
  int64_t most = 0;
  for (int64_t s = 0; s < c.sequences(); ++s) {
    const Part part = parts[static_cast<size_t>(s)];
    lengths[s] = part.to;
    counts.push_back(part.to - part.from);
    most = std::max<int64_t>(most, part.to - part.from);
    for (int64_t t = part.from; t < part.to; ++t) rows.push_back(begin[s] + t);
  }
  OnGpu result = OnGpu::poisoned({static_cast<int64_t>(rows.size()), c.heads, c.dim}, dtype, 16);
  AttentionShape shape = c.shape();
  shape.max_length = most;
  const OnGpu q(rows_of(in.q, rows), dtype), keys(lengths), offsets(offsets_of(counts));
  PagedKv view = cache.view(keys);
  attention_paged(*gpu(), {.out = result, .q = q, .cache = view, .offsets = offsets, .shape = shape});
  const Floats numbers = result.read();
  view.prefetchable = true;
  result.poison();
  attention_paged(*gpu(), {.out = result, .q = q, .cache = view, .offsets = offsets, .shape = shape});
  EXPECT_TRUE(close(result.read(), numbers, {0, 0})) << "read ahead";
  for (size_t r = 0; r < rows.size(); ++r)
    for (int64_t i = 0; i < c.heads * c.dim; ++i)
      out[rows[r] * c.heads * c.dim + i] = numbers[static_cast<int64_t>(r) * c.heads * c.dim + i];
}

// Prefill in chunks, or decode for the last `decoded` tokens of the longest.
Floats in_chunks(const Case& c, const Inputs& in, DType dtype, int64_t block_size, int32_t chunk, int32_t first = 0) {
  const Cache cache(c, in, dtype, block_size);
  Floats out = poisoned({c.tokens(), c.heads, c.dim});
  const auto bounded = [](int32_t x, int32_t length) { return std::min(x, length); };
  for (int32_t done = 0; done < c.longest();) {
    const int32_t next = done < first ? first : done + chunk;
    std::vector<Part> parts;
    for (const int32_t length : c.lengths) parts.push_back({bounded(done, length), bounded(next, length)});
    run_parts(out, c, in, cache, dtype, parts);
    done = next;
  }
  return out;
}

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
                                .shape = c.shape()});
      each_gpu_body(attention_forward, [&](auto run) {
        OnGpu y = OnGpu::poisoned({c.tokens(), c.heads, c.dim}, dtype, 8),
              sums = OnGpu::poisoned({c.tokens(), c.heads}, DType::f32, 3);
        if (!run({.out = y,
                  .lse = sums,
                  .q = OnGpu(in.q, dtype),
                  .k = OnGpu(in.k, dtype),
                  .v = OnGpu(in.v, dtype),
                  .offsets = OnGpu(offsets_of(c.lengths)),
                  .shape = c.shape()}))
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
};

TEST(AttentionOnGpu, EveryForwardBodyHasTheSameBits) {
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
                .shape = c.shape()}))
        return;
      outs.push_back(out.read()), sums.push_back(lse.read());
      EXPECT_TRUE(close(outs.back(), outs.front(), {0, 0})) << c.name();
      EXPECT_TRUE(close(sums.back(), sums.front(), {0, 0})) << c.name();
    });
    EXPECT_GE(outs.size(), 1u);
  }
}

// The limits choose the plan of a kernel: less shared memory, other tiles, the same bits.
TEST(AttentionOnGpu, PortableForwardHasTheSameBitsWithTheLimitsOfEveryGpu) {
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
      const AttentionGradients plain =
          plain_attention_backward(in.dout, out, lse, in.q, in.k, in.v, offsets, c.shape());
      each_gpu_body(attention_backward, [&](auto run) {
        std::vector<Floats> first;
        for (int repeat = 0; repeat < 2; ++repeat) {
          OnGpu dq_gpu = OnGpu::poisoned({c.tokens(), c.heads, c.dim}, dtype, 8),
                dk_gpu = OnGpu::poisoned({c.tokens(), c.kv_heads, c.dim}, dtype, 16),
                dv_gpu = OnGpu::poisoned({c.tokens(), c.kv_heads, c.dim}, dtype, 40);
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
                    .shape = c.shape()}))
            return;
          const std::vector<Floats> now = {dq_gpu.read(), dk_gpu.read(), dv_gpu.read()};
          EXPECT_TRUE(gradient_agrees(now[0], plain.dq, dq, dtype)) << "dq, " << c.name();
          EXPECT_TRUE(gradient_agrees(now[1], plain.dk, dk, dtype)) << "dk, " << c.name();
          EXPECT_TRUE(gradient_agrees(now[2], plain.dv, dv, dtype)) << "dv, " << c.name();
          if (first.empty()) first = now;
          for (size_t i = 0; i < now.size(); ++i) EXPECT_TRUE(close(now[i], first[i], {0, 0})) << i << ", " << c.name();
        }
      });
    }
}

// Query heads of a KV head that are shared out between thread blocks, and key tiles that wait for each other's turn.
TEST(AttentionOnGpu, EveryBackwardBodyRepeatsItsBits) {
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
