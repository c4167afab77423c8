#include <numeric>

#include "kernels/attention.h"
#include "tests/gpu/gpu_check.h"

namespace hone::test {
namespace {

struct Case {
  std::vector<int32_t> lengths;
  int64_t heads = 1, kv_heads = 1, dim = 64, window = 0;

  int64_t tokens() const { return std::accumulate(lengths.begin(), lengths.end(), int64_t{0}); }
  AttentionShape shape() const {
    return {.scale = 1 / std::sqrt(static_cast<float>(dim)), .window = window, .max_length = *std::ranges::max_element(lengths)};
  }
  Ids offsets() const {
    Ids out({static_cast<int64_t>(lengths.size()) + 1});
    for (size_t s = 0; s < lengths.size(); ++s) out[static_cast<int64_t>(s) + 1] = out[static_cast<int64_t>(s)] + lengths[s];
    return out;
  }
  std::string name() const {
    return concat(lengths.size(), " sequences of ", tokens(), " tokens, ", heads, "/", kv_heads, " heads of ", dim, ", window ", window);
  }
};

// q, and k and v as columns of one tensor.
struct Inputs {
  Inputs(const Case& c, uint64_t seed = 5)
      : dim(c.dim),
        kv_heads(c.kv_heads),
        q(rounded(normals({c.tokens(), c.heads, c.dim}, seed), DType::bf16)),
        kv(rounded(normals({c.tokens(), 2 * c.kv_heads * c.dim}, seed + 1), DType::bf16)) {}
  void set_sequence(const Case& c, size_t s, float value) {
    const Ids at = c.offsets();
    const auto i = static_cast<int64_t>(s);
    for (Floats* x : {&q, &kv}) {
      const int64_t row = x->tensor().row_size();
      for (int64_t j = at[i] * row; j < at[i + 1] * row; ++j) (*x)[j] = value;
    }
  }
  int64_t dim, kv_heads;
  Floats q, kv;
};

struct Result {
  Floats out, lse;
};

std::optional<Result> forward(const std::string& body, const Case& c, const Inputs& in) {
  OnGpu out = OnGpu::poisoned({c.tokens(), c.heads, c.dim}, DType::bf16, 8), lse = OnGpu::poisoned({c.tokens(), c.heads}, DType::f32, 3);
  const OnGpu q(in.q, DType::bf16), kv(in.kv, DType::bf16), offsets(c.offsets());
  const int64_t columns = c.kv_heads * c.dim;
  const auto heads_of = [&](int64_t first) { return kv.tensor().columns(first, columns).view({c.tokens(), c.kv_heads, c.dim}); };
  const Tensor k = heads_of(0), v = heads_of(columns);
  for (size_t i = 0; i < attention_forward.bodies().size(); ++i) {
    if (attention_forward.bodies()[i].device != DeviceKind::cuda || attention_forward.bodies()[i].name != body) continue;
    if (!attention_forward.supported(i, out, lse, q, k, v, offsets, c.shape())) return {};
    attention_forward.run_body(i, *gpu(), out, lse, q, k, v, offsets, c.shape());
    return Result{out.read(), lse.read()};
  }
  return {};
}

void expect_equal(const Result& actual, const Result& expected, const std::string& name) {
  EXPECT_TRUE(close(actual.out, expected.out, {0, 0})) << name;
  EXPECT_TRUE(close(actual.lse, expected.lse, {0, 0})) << name;
}

// Tiles of rows, blocks of keys and splits end before, at and behind the ends of sequences.
TEST(AttentionSm90, HasTheBitsOfThePortableBody) {
  HONE_GPU_OR_SKIP();
  for (const int64_t dim : {64, 128})
    for (const int64_t window : {0, 1, 64, 200, 1024, 1500})
      for (const auto& [heads, kv_heads] : {std::pair<int64_t, int64_t>{3, 3}, {8, 2}})
        for (const std::vector<int32_t>& lengths : {std::vector<int32_t>{1},
                                                    {63, 0, 64, 65, 127, 128, 129},
                                                    {191, 192, 193, 383, 384, 385},
                                                    {1023, 1024, 1025},
                                                    {0, 0, 3000, 5, 2049, 0}}) {
          const Case c{lengths, heads, kv_heads, dim, window};
          const Inputs in(c);
          const auto fast = forward("sm90", c, in), portable = forward("mma", c, in);
          ASSERT_TRUE(fast && portable) << c.name();
          expect_equal(*fast, *portable, c.name());
        }
}

TEST(AttentionSm90, AgreesWithTheSpecification) {
  HONE_GPU_OR_SKIP();
  for (const int64_t dim : {64, 128}) {
    const Case c{{1300, 1, 257}, 2, 1, dim};
    const Inputs in(c);
    Floats k({c.tokens(), 1, dim}), v = k, out = poisoned({c.tokens(), 2, dim}), lse = poisoned({c.tokens(), 2});
    for (int64_t i = 0; i < k.size(); ++i) k[i] = in.kv[i / dim * 2 * dim + i % dim], v[i] = in.kv[i / dim * 2 * dim + dim + i % dim];
    attention_forward(cpu(), out, lse, in.q, k, v, c.offsets(), c.shape());
    const auto fast = forward("sm90", c, in);
    ASSERT_TRUE(fast);
    EXPECT_TRUE(agrees(fast->out, out, DType::bf16));
    EXPECT_TRUE(agrees(fast->lse, lse, DType::f32));
  }
}

// Lists of tiles longer than the block that makes them, by sequences and by tiles in one sequence; heads that take turns in the cache.
TEST(AttentionSm90, ManySequencesAndLongOnes) {
  HONE_GPU_OR_SKIP();
  std::vector<int32_t> many(2500);
  for (size_t s = 0; s < many.size(); ++s) many[s] = static_cast<int32_t>(s * 37 % 211);
  for (const Case& c : {Case{many, 3, 1, 64}, Case{many, 2, 2, 128}, Case{{500, 131500, 30}, 1, 1, 128, 300}, Case{{17000}, 7, 7, 128, 200}}) {
    const Inputs in(c);
    const auto fast = forward("sm90", c, in), portable = forward("mma", c, in);
    ASSERT_TRUE(fast && portable) << c.name();
    expect_equal(*fast, *portable, c.name());
  }
}

TEST(AttentionSm90, ASequenceDoesNotSeeItsNeighbours) {
  HONE_GPU_OR_SKIP();
  for (const int64_t dim : {64, 128})
    for (const int32_t length : {60, 128, 200, 1100}) {
      const Case c{{77, length, 300}, 2, 1, dim};
      Inputs in(c);
      const auto before = forward("sm90", c, in);
      in.set_sequence(c, 0, nan_f32), in.set_sequence(c, 2, nan_f32);
      const auto after = forward("sm90", c, in);
      ASSERT_TRUE(before && after);
      const int64_t row = 2 * dim;
      for (int64_t i = 77 * row; i < (77 + length) * row; ++i) ASSERT_TRUE(same_bits(after->out[i], before->out[i])) << c.name() << ", number " << i;
      for (int64_t i = 77 * 2; i < (77 + length) * 2; ++i) ASSERT_TRUE(same_bits(after->lse[i], before->lse[i])) << c.name() << ", sum " << i;
    }
}

TEST(AttentionSm90, RowsThatCannotBeCopiedByTheEngineGoToAnotherBody) {
  HONE_GPU_OR_SKIP();
  const Case c{{5}, 1, 1, 64};
  const OnGpu q = OnGpu::poisoned({5, 1, 64}, DType::bf16), odd = OnGpu::poisoned({5, 1, 64}, DType::bf16, 4),
              narrow = OnGpu::poisoned({5, 1, 32}, DType::bf16), f32 = OnGpu::poisoned({5, 1, 64});
  const OnGpu offsets(c.offsets());
  for (size_t i = 0; i < attention_forward.bodies().size(); ++i) {
    if (std::string(attention_forward.bodies()[i].name) != "sm90") continue;
    EXPECT_TRUE(attention_forward.supported(i, q, {}, q, q, q, offsets, c.shape()));
    EXPECT_FALSE(attention_forward.supported(i, q, {}, q, q, odd, offsets, c.shape()));
    EXPECT_FALSE(attention_forward.supported(i, narrow, {}, narrow, narrow, narrow, offsets, c.shape()));
    EXPECT_FALSE(attention_forward.supported(i, f32, {}, f32, f32, f32, offsets, c.shape()));
  }
}

}  // namespace
}  // namespace hone::test
