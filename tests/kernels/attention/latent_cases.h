#pragma once
// Calls of latent attention for tests on the CPU and on GPUs.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/attention/latent/latent_attention.h"
#include "tests/kernels/op_check.h"

namespace hone::test {

struct LatentCase {
  std::vector<int32_t> lengths;
  int64_t heads = 1, rank = 8, rope = 2, window = 0;

  int64_t sequences() const { return std::ssize(lengths); }
  int64_t tokens() const { return std::accumulate(lengths.begin(), lengths.end(), int64_t{0}); }
  int64_t width() const { return rank + rope; }
  AttentionShape shape() const {
    return {.scale = 1 / std::sqrt(static_cast<float>(width())),
            .window = window,
            .max_length = lengths.empty() ? 0 : *std::ranges::max_element(lengths)};
  }
  Ids offsets() const {
    Ids out({sequences() + 1});
    for (int64_t s = 0; s < sequences(); ++s) out[s + 1] = out[s] + lengths[static_cast<size_t>(s)];
    return out;
  }
  std::string name() const {
    return concat(tokens(), " tokens in ", sequences(), " sequences, ", heads, " heads, rank ", rank, " + ", rope,
                  ", window ", window);
  }
};

struct LatentInputs {
  explicit LatentInputs(const LatentCase& c, uint64_t seed = 7)
      : q(normals({c.tokens(), c.heads, c.width()}, seed)),
        rows(normals({c.tokens(), c.width()}, seed + 1, 1, 24)),
        dout(normals({c.tokens(), c.heads, c.rank}, seed + 2)),
        offsets(c.offsets()) {}
  Floats q, rows, dout;
  Ids offsets;
};

// The rows of a call in a paged cache. Blocks are assigned in descending order; slots without a row hold NaN.
struct LatentPages {
  LatentPages(const LatentCase& c, const LatentInputs& in, int64_t block_size) : size(block_size) {
    for (const int32_t length : c.lengths)
      max_blocks = std::max<int64_t>(max_blocks, (length + block_size - 1) / block_size);
    const int64_t blocks = max_blocks * c.sequences();
    rows = poisoned({blocks * block_size, c.width()});
    table = Ids({c.sequences(), max_blocks});
    for (int64_t s = 0; s < c.sequences(); ++s) {
      for (int64_t b = 0; b < max_blocks; ++b)
        table[s * max_blocks + b] = static_cast<int32_t>(blocks - 1 - (b * c.sequences() + s));
      for (int64_t j = 0; j < c.lengths[static_cast<size_t>(s)]; ++j) {
        const int64_t slot = int64_t{table[s * max_blocks + j / block_size]} * block_size + j % block_size;
        for (int64_t i = 0; i < c.width(); ++i)
          rows[slot * c.width() + i] = in.rows[(in.offsets[s] + j) * c.width() + i];
      }
    }
  }
  int64_t max_blocks = 1, size;
  Floats rows{{1}};
  Ids table{{1, 1}};
};

// A paged call on tokens [done, done + chunk) of each sequence that has them.
struct LatentChunk {
  LatentChunk(const LatentCase& c, const LatentInputs& in, int64_t done, int64_t chunk)
      : lengths({c.sequences()}), offsets({c.sequences() + 1}) {
    for (int64_t s = 0; s < c.sequences(); ++s) {
      const int64_t length = c.lengths[static_cast<size_t>(s)], last = std::min(length, done + chunk);
      lengths[s] = static_cast<int32_t>(last);
      for (int64_t t = done; t < last; ++t) tokens.push_back(in.offsets[s] + t);
      offsets[s + 1] = static_cast<int32_t>(tokens.size());
    }
    const int64_t row = c.heads * c.width();
    q = Floats({std::ssize(tokens), c.heads, c.width()});
    for (size_t r = 0; r < tokens.size(); ++r)
      for (int64_t i = 0; i < row; ++i) q[static_cast<int64_t>(r) * row + i] = in.q[tokens[r] * row + i];
  }
  // Copies the chunk's rows of a result to their places.
  void place(const LatentCase& c, const Floats& part, Floats& out) const {
    const int64_t row = c.heads * c.rank;
    for (size_t r = 0; r < tokens.size(); ++r)
      for (int64_t i = 0; i < row; ++i) out[tokens[r] * row + i] = part[static_cast<int64_t>(r) * row + i];
  }
  std::vector<int64_t> tokens;
  Ids lengths, offsets;
  Floats q{{1}};
};

}  // namespace hone::test
