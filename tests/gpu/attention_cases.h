#pragma once
// Cases of attention on a GPU: shapes, inputs, and calls of the packed and the paged op, whole or in parts.
#include <numeric>
#include <optional>

#include "tests/gpu/plain_attention.h"

namespace hone::test {

// The shape of a call: sequence lengths, heads, KV heads, head dim, window; with attention sinks or without.
struct Case {
  std::vector<int32_t> lengths;
  int64_t heads = 1, kv_heads = 1, dim = 8, window = 0;
  bool sinks = false;

  int64_t sequences() const { return static_cast<int64_t>(lengths.size()); }
  int64_t tokens() const { return std::accumulate(lengths.begin(), lengths.end(), int64_t{0}); }
  int64_t longest() const { return lengths.empty() ? 0 : *std::ranges::max_element(lengths); }
  AttentionShape shape() const {
    return {.scale = 1 / std::sqrt(static_cast<float>(dim)), .window = window, .max_length = longest()};
  }
  std::string name() const {
    return concat(tokens(), " tokens, ", heads, "/", kv_heads, " heads of ", dim, ", window ", window,
                  sinks ? ", sinks" : "");
  }
};

inline Ids offsets_of(const std::vector<int32_t>& lengths) {
  Ids out({static_cast<int64_t>(lengths.size()) + 1});
  for (size_t s = 0; s < lengths.size(); ++s)
    out[static_cast<int64_t>(s) + 1] = out[static_cast<int64_t>(s)] + lengths[s];
  return out;
}

inline const std::vector<Case> cases = {
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
    {{129, 1025}, 16, 2, 64, 128, true},
    {{700, 2, 2049}, 8, 1, 64, 0, true},
    {{300, 1}, 6, 2, 128, 0, true},
    {{66, 1200}, 3, 1, 256, 500, true},
};

struct Inputs {
  explicit Inputs(const Case& c, DType dtype, uint64_t seed = 7)
      : q(rounded(normals({c.tokens(), c.heads, c.dim}, seed), dtype)),
        k(rounded(normals({c.tokens(), c.kv_heads, c.dim}, seed + 1, 1, 24), dtype)),
        v(rounded(normals({c.tokens(), c.kv_heads, c.dim}, seed + 2, 1, 40), dtype)),
        dout(rounded(normals({c.tokens(), c.heads, c.dim}, seed + 3), dtype)),
        sinks(rounded(normals({c.heads}, seed + 4, 3), dtype)),
        sinks_dtype(dtype),
        has_sinks(c.sinks) {}
  Tensor sinks_on_cpu() const { return has_sinks ? sinks.tensor() : Tensor(); }
  Floats q, k, v, dout, sinks;
  DType sinks_dtype;
  bool has_sinks;
};

// The sinks of a call on the GPU, or an empty Tensor.
class SinksOnGpu {
 public:
  explicit SinksOnGpu(const Inputs& in) {
    if (in.has_sinks) memory_.emplace(in.sinks, in.sinks_dtype);
  }
  operator Tensor() const { return memory_ ? Tensor(*memory_) : Tensor(); }

 private:
  std::optional<OnGpu> memory_;
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
inline ::testing::AssertionResult gradient_agrees(const Floats& actual, const Floats& plain, const Floats& expected,
                                                  DType dtype) {
  return dtype == DType::bf16 ? within_twice(actual, plain, expected) : heads_agree(actual, expected, dtype, 2, 0.3);
}

struct Result {
  Floats out, lse;
};
// Runs the body that a call selects.
inline Result forward_on_gpu(const Case& c, const Inputs& in, DType dtype) {
  OnGpu out = OnGpu::poisoned({c.tokens(), c.heads, c.dim}, dtype, 8),
        lse = OnGpu::poisoned({c.tokens(), c.heads}, DType::f32, 3);
  attention_forward(*gpu(), {.out = out,
                             .lse = lse,
                             .q = OnGpu(in.q, dtype),
                             .k = OnGpu(in.k, dtype),
                             .v = OnGpu(in.v, dtype),
                             .offsets = OnGpu(offsets_of(c.lengths)),
                             .shape = c.shape(),
                             .sinks = SinksOnGpu(in)});
  return {out.read(), lse.read()};
}

// Rows of [T, ...] numbers, in this order.
inline Floats rows_of(const Floats& x, const std::vector<int64_t>& rows) {
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
inline void run_parts(Floats& out, const Case& c, const Inputs& in, const Cache& cache, DType dtype,
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
  const SinksOnGpu sinks(in);
  attention_paged(*gpu(), {.out = result, .q = q, .cache = view, .offsets = offsets, .shape = shape, .sinks = sinks});
  const Floats numbers = result.read();
  view.prefetchable = true;
  result.poison();
  attention_paged(*gpu(), {.out = result, .q = q, .cache = view, .offsets = offsets, .shape = shape, .sinks = sinks});
  EXPECT_TRUE(close(result.read(), numbers, {0, 0})) << "read ahead";
  for (size_t r = 0; r < rows.size(); ++r)
    for (int64_t i = 0; i < c.heads * c.dim; ++i)
      out[rows[r] * c.heads * c.dim + i] = numbers[static_cast<int64_t>(r) * c.heads * c.dim + i];
}

// Prefill in chunks, or decode for the last `decoded` tokens of the longest.
inline Floats in_chunks(const Case& c, const Inputs& in, DType dtype, int64_t block_size, int32_t chunk,
                        int32_t first = 0) {
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

}  // namespace hone::test
