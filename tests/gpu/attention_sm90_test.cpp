#include <numeric>
#include <optional>

#include "kernels/attention/attention.h"
#include "tests/gpu/plain_attention.h"

namespace hone::test {
namespace {

struct Case {
  std::vector<int32_t> lengths;
  int64_t heads = 1, kv_heads = 1, dim = 64, window = 0;

  int64_t tokens() const { return std::accumulate(lengths.begin(), lengths.end(), int64_t{0}); }
  AttentionShape shape() const {
    return {.scale = 1 / std::sqrt(static_cast<float>(dim)),
            .window = window,
            .max_length = *std::ranges::max_element(lengths)};
  }
  Ids offsets() const {
    Ids out({static_cast<int64_t>(lengths.size()) + 1});
    for (size_t s = 0; s < lengths.size(); ++s)
      out[static_cast<int64_t>(s) + 1] = out[static_cast<int64_t>(s)] + lengths[s];
    return out;
  }
  std::string name() const {
    return concat(lengths.size(), " sequences of ", tokens(), " tokens, ", heads, "/", kv_heads, " heads of ", dim,
                  ", window ", window);
  }
};

// q, and k and v as columns of one tensor, in bf16. Plain memory, since there are many cases.
struct Inputs {
  Inputs(const Case& c, uint64_t seed = 5)
      : q(static_cast<size_t>(c.tokens() * c.heads * c.dim)),
        kv(static_cast<size_t>(2 * c.tokens() * c.kv_heads * c.dim)) {
    uint64_t state = seed;
    for (std::vector<bf16>* x : {&q, &kv})
      for (bf16& y : *x) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        y = to_bf16(static_cast<float>(static_cast<int64_t>(state) >> 32) * 0x1p-30f);  // between -2 and 2
      }
  }
  void set_sequence(const Case& c, size_t s, float value) {
    const Ids at = c.offsets();
    const auto i = static_cast<int64_t>(s);
    for (std::vector<bf16>* x : {&q, &kv}) {
      const int64_t row = static_cast<int64_t>(x->size()) / c.tokens();
      std::fill(x->begin() + at[i] * row, x->begin() + at[i + 1] * row, to_bf16(value));
    }
  }
  std::vector<bf16> q, kv;
};

template <class T>
class Copied {
 public:
  Copied(const std::vector<T>& host, DType dtype, std::initializer_list<int64_t> dims)
      : memory_(gpu()->device(), std::max<size_t>(host.size() * sizeof(T), 1)),
        tensor_(memory_.data(), dtype, DeviceKind::cuda, dims),
        size_(host.size()) {
    gpu()->device().copy(memory_.data(), host.data(), size_ * sizeof(T), gpu()->stream());
    gpu()->synchronize();
  }
  operator Tensor() const { return tensor_; }
  Tensor tensor() const { return tensor_; }
  std::vector<T> read() const {
    std::vector<T> host(size_);
    gpu()->device().copy(host.data(), memory_.data(), size_ * sizeof(T), gpu()->stream());
    gpu()->synchronize();
    return host;
  }

 private:
  Buffer memory_;
  Tensor tensor_;
  size_t size_;
};

struct Result {
  std::vector<bf16> out;
  std::vector<float> lse;
};

std::optional<Result> forward(const std::string& body, const Case& c, const Inputs& in) {
  const int64_t columns = c.kv_heads * c.dim;
  const Copied<bf16> out(std::vector<bf16>(in.q.size(), to_bf16(nan_f32)), DType::bf16, {c.tokens(), c.heads, c.dim});
  const Copied<float> lse(std::vector<float>(static_cast<size_t>(c.tokens() * c.heads), nan_f32), DType::f32,
                          {c.tokens(), c.heads});
  const Copied<bf16> q(in.q, DType::bf16, {c.tokens(), c.heads, c.dim}),
      kv(in.kv, DType::bf16, {c.tokens(), 2 * columns});
  const OnGpu offsets(c.offsets());
  const auto qkv_projection = [&](int64_t first) {
    return kv.tensor().columns(first, columns).view({c.tokens(), c.kv_heads, c.dim});
  };
  const Tensor k = qkv_projection(0), v = qkv_projection(columns);
  for (size_t i = 0; i < attention_forward.bodies().size(); ++i) {
    if (attention_forward.bodies()[i].device != DeviceKind::cuda || attention_forward.bodies()[i].name != body)
      continue;
    if (!attention_forward.supported(
            i, {.out = out, .lse = lse, .q = q, .k = k, .v = v, .offsets = offsets, .shape = c.shape()}))
      return {};
    attention_forward.run_body(
        i, *gpu(), {.out = out, .lse = lse, .q = q, .k = k, .v = v, .offsets = offsets, .shape = c.shape()});
    return Result{out.read(), lse.read()};
  }
  return {};
}

template <class T>
bool same(const std::vector<T>& a, const std::vector<T>& b, size_t begin = 0,
          size_t count = std::numeric_limits<size_t>::max()) {
  return a.size() == b.size() && std::memcmp(&a[begin], &b[begin], std::min(count, a.size() - begin) * sizeof(T)) == 0;
}

void expect_bits_of_the_portable_body(const Case& c) {
  const Inputs in(c);
  const auto fast = forward("sm90", c, in), portable = forward("mma", c, in);
  ASSERT_TRUE(fast && portable) << c.name();
  EXPECT_TRUE(same(fast->out, portable->out)) << c.name();
  EXPECT_TRUE(same(fast->lse, portable->lse)) << c.name();
  for (const bf16 x : fast->out) ASSERT_TRUE(std::isfinite(to_float(x))) << c.name();
}

// Row tiles, key tiles and splits end before, at and after the ends of sequences.
TEST(AttentionSm90, HasTheBitsOfThePortableBody) {
  HONE_HOPPER_OR_SKIP();
  for (const int64_t dim : {64, 128})
    for (const int64_t window : {0, 1, 64, 200, 1024, 1500})
      for (const auto& [heads, kv_heads] : {std::pair<int64_t, int64_t>{3, 3}, {4, 2}})
        for (const std::vector<int32_t>& lengths : {std::vector<int32_t>{1},
                                                    {63, 0, 64, 65, 127, 128, 129},
                                                    {191, 192, 193, 383, 384, 385},
                                                    {1023, 1024, 1025},
                                                    {0, 0, 3000, 5, 2049, 0}})
          if (chosen()) expect_bits_of_the_portable_body({lengths, heads, kv_heads, dim, window});
}

// Tile lists longer than the thread block that makes them, by sequences and by tiles of one sequence; interleaved heads
// in the cache.
TEST(AttentionSm90, ManySequencesAndLongOnes) {
  HONE_HOPPER_OR_SKIP();
  std::vector<int32_t> many(2500);
  for (size_t s = 0; s < many.size(); ++s) many[s] = static_cast<int32_t>(s * 37 % sized(211, 7));
  for (const Case& c :
       {Case{many, 1, 1, 64}, Case{many, 2, 1, 128}, Case{{500, sized(131500, 2000), 30}, 1, 1, 64, 300},
        Case{{sized(17000, 1000)}, 7, 7, 128, 200}})
    if (chosen()) expect_bits_of_the_portable_body(c);
}

TEST(AttentionSm90, AgreesWithTheSpecification) {
  HONE_HOPPER_OR_SKIP();
  for (const int64_t dim : {64, 128}) {
    const Case c{{sized(1100, 300), 1, 157}, 2, 1, dim};
    const Inputs in(c);
    const int64_t rows = c.tokens();
    Floats q({rows, 2, dim}), k({rows, 1, dim}), v = k, out = poisoned({rows, 2, dim}), lse = poisoned({rows, 2}),
                                                 fast_out = out, fast_lse = lse;
    for (int64_t i = 0; i < q.size(); ++i) q[i] = to_float(in.q[static_cast<size_t>(i)]);
    for (int64_t i = 0; i < k.size(); ++i) {
      const auto at = static_cast<size_t>(i / dim * 2 * dim + i % dim);
      k[i] = to_float(in.kv[at]), v[i] = to_float(in.kv[at + static_cast<size_t>(dim)]);
    }
    attention_forward(cpu(),
                      {.out = out, .lse = lse, .q = q, .k = k, .v = v, .offsets = c.offsets(), .shape = c.shape()});
    const auto fast = forward("sm90", c, in);
    ASSERT_TRUE(fast);
    for (int64_t i = 0; i < out.size(); ++i) fast_out[i] = to_float(fast->out[static_cast<size_t>(i)]);
    for (int64_t i = 0; i < lse.size(); ++i) fast_lse[i] = fast->lse[static_cast<size_t>(i)];
    EXPECT_TRUE(within_twice(fast_out, plain_attention(q, k, v, c.offsets(), c.shape()), out));
    EXPECT_TRUE(agrees(fast_lse, lse, DType::f32));
  }
}

TEST(AttentionSm90, ASequenceDoesNotSeeItsNeighbours) {
  HONE_HOPPER_OR_SKIP();
  for (const int64_t dim : {64, 128})
    for (const int32_t length : {60, 128, 200, 1100}) {
      if (!chosen()) continue;
      const Case c{{77, length, 300}, 2, 1, dim};
      Inputs in(c);
      const auto before = forward("sm90", c, in);
      in.set_sequence(c, 0, nan_f32), in.set_sequence(c, 2, nan_f32);
      const auto after = forward("sm90", c, in);
      ASSERT_TRUE(before && after);
      const size_t row = static_cast<size_t>(2 * dim), rows = static_cast<size_t>(length);
      EXPECT_TRUE(same(after->out, before->out, 77 * row, rows * row)) << c.name();
      EXPECT_TRUE(same(after->lse, before->lse, 77 * 2, rows * 2)) << c.name();
    }
}

TEST(AttentionSm90, RowsThatCannotBeCopiedByTheEngineGoToAnotherBody) {
  HONE_HOPPER_OR_SKIP();
  const Case c{{5}, 1, 1, 64};
  const OnGpu q = OnGpu::poisoned({5, 1, 64}, DType::bf16), odd = OnGpu::poisoned({5, 1, 64}, DType::bf16, 4),
              narrow = OnGpu::poisoned({5, 1, 32}, DType::bf16), f32 = OnGpu::poisoned({5, 1, 64});
  const OnGpu offsets(c.offsets());
  for (size_t i = 0; i < attention_forward.bodies().size(); ++i) {
    if (std::string(attention_forward.bodies()[i].name) != "sm90") continue;
    EXPECT_TRUE(
        attention_forward.supported(i, {.out = q, .q = q, .k = q, .v = q, .offsets = offsets, .shape = c.shape()}));
    EXPECT_FALSE(
        attention_forward.supported(i, {.out = q, .q = q, .k = q, .v = odd, .offsets = offsets, .shape = c.shape()}));
    EXPECT_FALSE(attention_forward.supported(
        i, {.out = narrow, .q = narrow, .k = narrow, .v = narrow, .offsets = offsets, .shape = c.shape()}));
    EXPECT_FALSE(attention_forward.supported(
        i, {.out = f32, .q = f32, .k = f32, .v = f32, .offsets = offsets, .shape = c.shape()}));
  }
}

}  // namespace
}  // namespace hone::test
