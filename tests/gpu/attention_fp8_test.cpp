// attention_paged on an e4m3 cache, compared with the specification and with other chunkings.
#include <algorithm>
#include <numeric>

#include "kernels/attention/attention.h"
#include "tests/gpu/quantized_on_gpu.h"

namespace hone::test {
namespace {

struct Case {
  std::vector<int32_t> lengths;
  int64_t heads, kv_heads, dim, block_size, window = 0;
  bool sinks = false;
  std::string name() const {
    return concat(lengths.size(), " sequences, ", heads, "/", kv_heads, " heads of ", dim, ", window ", window);
  }
};
const Case cases[] = {{{1}, 1, 1, 16, 16},
                      {{5, 130, 1, 257}, 14, 2, 64, 16},
                      {{1030, 3, 700}, 12, 2, 128, 16},
                      {{2300, 1024}, 4, 4, 64, 5, 300},
                      {{1500, 40}, 8, 2, 96, 16, 1100},
                      {{333, 129}, 20, 1, 80, 7},
                      {{1100, 128}, 3, 1, 256, 32, 64},
                      {{2300, 70}, 8, 1, 64, 16, 128, true},
                      {{1500, 3}, 4, 2, 128, 16, 0, true}};

// Blocks are assigned in descending order; slots without a key hold NaN.
struct Inputs {
  explicit Inputs(const Case& c) : blocks(0), q({1}), k({1}), v({1}), table({1}) {
    for (const int32_t length : c.lengths)
      blocks = std::max<int64_t>(blocks, (length + c.block_size - 1) / c.block_size + 1);
    const auto sequences = std::ssize(c.lengths);
    const int64_t slots = blocks * sequences * c.block_size,
                  tokens = std::accumulate(c.lengths.begin(), c.lengths.end(), int64_t{0});
    q = rounded(normals({tokens, c.heads, c.dim}, 1), DType::bf16);
    k = poisoned({slots * c.kv_heads, c.dim}), v = k;
    table = Ids({sequences, blocks});
    const Floats keys = normals({tokens * c.kv_heads, c.dim}, 2), values = normals({tokens * c.kv_heads, c.dim}, 3, 4);
    int64_t token = 0;
    for (int64_t s = 0; s < sequences; ++s) {
      for (int64_t b = 0; b < blocks; ++b)
        table[s * blocks + b] = static_cast<int32_t>(blocks * sequences - 1 - (b * sequences + s));
      for (int64_t j = 0; j < c.lengths[static_cast<size_t>(s)]; ++j, ++token) {
        const int64_t slot = int64_t{table[s * blocks + j / c.block_size]} * c.block_size + j % c.block_size,
                      row = c.kv_heads * c.dim;
        for (int64_t i = 0; i < row; ++i)
          k[slot * row + i] = keys[token * row + i], v[slot * row + i] = values[token * row + i];
      }
    }
  }
  int64_t blocks;
  Floats q, k, v;
  Ids table;
};

PagedKv cache_of(const Case& c, const QuantizedMatrix& k, const QuantizedMatrix& v, Tensor table, Tensor lengths) {
  const int64_t slots = k.values.dim(0) / c.kv_heads;
  return {.k = k.values.view({slots, c.kv_heads, c.dim}),
          .v = v.values.view({slots, c.kv_heads, c.dim}),
          .block_table = table,
          .lengths = lengths,
          .block_size = c.block_size,
          .k_scale = k.scales.view({slots, c.kv_heads}),
          .v_scale = v.scales.view({slots, c.kv_heads})};
}

class Fp8Attention {
 public:
  explicit Fp8Attention(const Case& c)
      : case_(c),
        in_(c),
        k_(QuantFormat::fp8, OnGpu(in_.k)),
        v_(QuantFormat::fp8, OnGpu(in_.v)),
        sinks_(normals({c.heads}, 4, 3)),
        sinks_on_gpu_(sinks_) {}
  Floats specification() const {
    const Quantized k(QuantFormat::fp8, in_.k), v(QuantFormat::fp8, in_.v);
    Ids lengths({std::ssize(case_.lengths)}), offsets({std::ssize(case_.lengths) + 1});
    for (int64_t s = 0; s < lengths.size(); ++s)
      lengths[s] = case_.lengths[static_cast<size_t>(s)], offsets[s + 1] = offsets[s] + lengths[s];
    Floats out = poisoned({in_.q.tensor().dim(0), case_.heads, case_.dim});
    attention_paged(cpu(), {.out = out,
                            .q = in_.q,
                            .cache = cache_of(case_, k, v, in_.table, lengths),
                            .offsets = offsets,
                            .shape = shape(0),
                            .sinks = case_.sinks ? sinks_.tensor() : Tensor()});
    return out;
  }
  // One call on tokens [from[s], to[s]) of each sequence; writes their rows of out.
  void run(Floats& out, const std::vector<int32_t>& from, const std::vector<int32_t>& to) const {
    std::vector<int64_t> rows;
    const int64_t sequences = std::ssize(case_.lengths), width = case_.heads * case_.dim;
    Ids lengths({sequences}), offsets({sequences + 1});
    int64_t begin = 0, most = 0;
    for (int64_t s = 0; s < sequences; ++s) {
      const auto i = static_cast<size_t>(s);
      lengths[s] = to[i], offsets[s + 1] = offsets[s] + to[i] - from[i];
      for (int64_t t = from[i]; t < to[i]; ++t) rows.push_back(begin + t);
      most = std::max<int64_t>(most, to[i] - from[i]);
      begin += case_.lengths[i];
    }
    Floats q({std::ssize(rows), case_.heads, case_.dim});
    for (int64_t i = 0; i < q.size(); ++i) q[i] = in_.q[rows[static_cast<size_t>(i / width)] * width + i % width];
    OnGpu result = OnGpu::poisoned({std::ssize(rows), case_.heads, case_.dim}, DType::bf16, 16);
    const OnGpu table(in_.table), on_gpu(lengths);
    attention_paged(*gpu(), {.out = result,
                             .q = OnGpu(q, DType::bf16),
                             .cache = cache_of(case_, k_, v_, table, on_gpu),
                             .offsets = OnGpu(offsets),
                             .shape = shape(most),
                             .sinks = case_.sinks ? sinks_on_gpu_.tensor() : Tensor()});
    const Floats numbers = result.read();
    for (int64_t i = 0; i < numbers.size(); ++i)
      out[rows[static_cast<size_t>(i / width)] * width + i % width] = numbers[i];
  }
  // All tokens: `chunk` tokens of each sequence per call.
  Floats in_chunks(int32_t chunk, int32_t first = 0) const {
    Floats out = poisoned({in_.q.tensor().dim(0), case_.heads, case_.dim});
    const int32_t longest = *std::max_element(case_.lengths.begin(), case_.lengths.end());
    for (int32_t done = 0, next = 0; done < longest; done = next) {
      next = done < first ? first : done + chunk;
      std::vector<int32_t> from, to;
      for (const int32_t length : case_.lengths)
        from.push_back(std::min(done, length)), to.push_back(std::min(next, length));
      run(out, from, to);
    }
    return out;
  }
  Floats one_by_one() const {
    Floats out = poisoned({in_.q.tensor().dim(0), case_.heads, case_.dim});
    for (size_t s = 0; s < case_.lengths.size(); ++s) {
      std::vector<int32_t> from(case_.lengths.size()), to = from;
      to[s] = case_.lengths[s];
      run(out, from, to);
    }
    return out;
  }

 private:
  AttentionShape shape(int64_t most) const {
    return {1 / std::sqrt(static_cast<float>(case_.dim)), case_.window, most};
  }
  const Case& case_;
  Inputs in_;
  QuantizedOnGpu k_, v_;
  Floats sinks_;
  OnGpu sinks_on_gpu_;
};

TEST(Fp8AttentionOnGpu, AgreesWithTheSpecification) {
  HONE_GPU_OR_SKIP();
  for (const Case& c : cases) {
    if (!chosen()) continue;
    const Fp8Attention attention(c);
    const Floats expected = attention.specification();
    EXPECT_TRUE(heads_agree(attention.in_chunks(1 << 20), expected, DType::bf16, 2)) << c.name();
  }
}

// A query's bits depend neither on the chunks (one thread block for all splits, or one per split), nor on the other
// sequences of the call.
TEST(Fp8AttentionOnGpu, BitsDependNeitherOnChunksNorOnNeighbours) {
  HONE_GPU_OR_SKIP();
  for (const Case& c : cases) {
    if (!chosen()) continue;
    const Fp8Attention attention(c);
    const Floats whole = attention.in_chunks(1 << 20);
    const int32_t longest = *std::max_element(c.lengths.begin(), c.lengths.end());
    EXPECT_TRUE(close(attention.in_chunks(37), whole, {0, 0})) << c.name();
    EXPECT_TRUE(close(attention.in_chunks(1, std::max(longest - 20, 1)), whole, {0, 0})) << c.name();
    EXPECT_TRUE(close(attention.one_by_one(), whole, {0, 0})) << c.name();
  }
}

}  // namespace
}  // namespace hone::test
