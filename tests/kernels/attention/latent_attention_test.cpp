#include "kernels/attention/latent/latent_attention.h"

#include "core/base/parallel_for.h"
#include "tests/kernels/attention/latent_cases.h"
#include "tests/kernels/op_cases.h"
#include "tests/kernels/op_contract.h"

namespace hone::test {
namespace {

const std::vector<LatentCase> cases = {
    {{1}, 1, 8, 2},
    {{}, 2, 8, 4},
    {{0, 5, 0, 3, 0}, 3, 16, 8},
    {{7, 64, 65, 1}, 4, 24, 8},
    {{33, 40}, 6, 32, 16, 17},
    {{66}, 2, 512, 64},
    {{50}, 70, 8, 2},
    {{80}, 2, 10, 6, 65},
};

struct Result {
  explicit Result(const LatentCase& c)
      : out(poisoned({c.tokens(), c.heads, c.rank})), lse(poisoned({c.tokens(), c.heads})) {}
  Floats out, lse;
};

Result forward(const LatentCase& c, const LatentInputs& in) {
  Result to(c);
  latent_attention_forward(
      cpu(), {.out = to.out, .lse = to.lse, .q = in.q, .rows = in.rows, .offsets = in.offsets, .shape = c.shape()});
  return to;
}

// Keys of the whole row and values of its first columns, by the textbook formula of attention.
std::vector<double> textbook(const LatentCase& c, const LatentInputs& in) {
  std::vector<double> out(static_cast<size_t>(c.tokens() * c.heads * c.rank));
  for (int64_t s = 0; s < c.sequences(); ++s)
    for (int64_t t = in.offsets[s]; t < in.offsets[s + 1]; ++t)
      for (int64_t h = 0; h < c.heads; ++h) {
        std::vector<double> weights;
        double total = 0;
        for (int64_t j = in.offsets[s]; j <= t; ++j) {
          double score = 0;
          for (int64_t i = 0; i < c.width(); ++i)
            score += double{in.q[(t * c.heads + h) * c.width() + i]} * double{in.rows[j * c.width() + i]};
          weights.push_back(
              c.window > 0 && t - j >= c.window ? 0 : std::exp(score / std::sqrt(static_cast<double>(c.width()))));
          total += weights.back();
        }
        for (int64_t j = in.offsets[s]; j <= t; ++j)
          for (int64_t i = 0; i < c.rank; ++i)
            out[static_cast<size_t>((t * c.heads + h) * c.rank + i)] +=
                weights[static_cast<size_t>(j - in.offsets[s])] / total * double{in.rows[j * c.width() + i]};
      }
  return out;
}

[[maybe_unused]] const bool added = op_cases().add("latent_attention_forward", [] {
  for (const LatentCase& c : cases) {
    const LatentInputs in(c);
    const Result to(c);
    expect_bodies_agree(
        latent_attention_forward, {1e-5, 2e-6},
        {.out = to.out, .lse = to.lse, .q = in.q, .rows = in.rows, .offsets = in.offsets, .shape = c.shape()});
  }
}) && op_cases().add("latent_attention_backward", [] {
  for (const LatentCase& c : cases) {
    const LatentInputs in(c);
    const Result to = forward(c, in);
    const Floats dq = poisoned({c.tokens(), c.heads, c.width()}), drows = poisoned({c.tokens(), c.width()}, 8);
    expect_bodies_agree(latent_attention_backward, {1e-4, 2e-5},
                        {.dq = dq,
                         .drows = drows,
                         .dout = in.dout,
                         .out = to.out,
                         .lse = to.lse,
                         .q = in.q,
                         .rows = in.rows,
                         .offsets = in.offsets,
                         .shape = c.shape()});
  }
}) && op_cases().add("latent_attention_paged", [] {
  for (const LatentCase& c : cases) {
    const LatentInputs in(c);
    const Result to(c);
    const LatentPages pages(c, in, 16);
    Ids lengths({c.sequences()});
    for (int64_t s = 0; s < c.sequences(); ++s) lengths[s] = c.lengths[static_cast<size_t>(s)];
    expect_bodies_agree(
        latent_attention_paged, {1e-5, 2e-6},
        {.out = to.out,
         .q = in.q,
         .cache = {.rows = pages.rows, .block_table = pages.table, .lengths = lengths, .block_size = pages.size},
         .offsets = in.offsets,
         .shape = c.shape()});
  }
});

TEST(LatentAttention, IsTheTextbookFormula) {
  for (const LatentCase& c : cases) {
    const LatentInputs in(c);
    EXPECT_TRUE(close(forward(c, in).out, textbook(c, in), {1e-5, 2e-6})) << c.name();
  }
}

TEST(LatentAttention, GradientsAreFiniteDifferences) {
  for (const LatentCase& c : {LatentCase{{5, 0, 9}, 3, 8, 4}, LatentCase{{12}, 2, 10, 2, 4}}) {
    LatentInputs in(c);
    const auto loss = [&] {
      const Result to = forward(c, in);
      double sum = 0;
      for (int64_t i = 0; i < to.out.size(); ++i) sum += double{to.out[i]} * double{in.dout[i]};
      return sum;
    };
    const Result to = forward(c, in);
    const Floats dq = poisoned({c.tokens(), c.heads, c.width()}), drows = poisoned({c.tokens(), c.width()});
    latent_attention_backward(cpu(), {.dq = dq,
                                      .drows = drows,
                                      .dout = in.dout,
                                      .out = to.out,
                                      .lse = to.lse,
                                      .q = in.q,
                                      .rows = in.rows,
                                      .offsets = in.offsets,
                                      .shape = c.shape()});
    expect_gradient(loss, in.q, dq);
    expect_gradient(loss, in.rows, drows);
  }
}

TEST(LatentAttention, PackedPagedChunkedAndDecodedQueriesHaveTheSameBits) {
  for (const LatentCase& c : cases) {
    const LatentInputs in(c);
    const Result whole = forward(c, in);
    for (const auto& [chunk, block_size] : {std::pair<int64_t, int64_t>{1, 16}, {7, 1}, {64, 5}}) {
      const LatentPages pages(c, in, block_size);
      Floats out = poisoned({c.tokens(), c.heads, c.rank});
      for (int64_t done = 0; done < c.shape().max_length; done += chunk) {
        const LatentChunk part(c, in, done, chunk);
        const Floats result = poisoned({std::ssize(part.tokens), c.heads, c.rank});
        latent_attention_paged(cpu(), {.out = result,
                                       .q = part.q,
                                       .cache = {.rows = pages.rows,
                                                 .block_table = pages.table,
                                                 .lengths = part.lengths,
                                                 .block_size = block_size},
                                       .offsets = part.offsets,
                                       .shape = c.shape()});
        part.place(c, result, out);
      }
      EXPECT_TRUE(close(out, whole.out, {0, 0})) << c.name() << ", chunks of " << chunk;
    }
  }
}

TEST(LatentAttention, GradientsDoNotDependOnThreads) {
  const LatentCase c{{60, 0, 37}, 3, 16, 4, 20};
  const LatentInputs in(c);
  const auto run = [&](int threads) {
    set_num_threads(threads);
    const Result to = forward(c, in);
    const Floats dq = poisoned({c.tokens(), c.heads, c.width()}), drows = poisoned({c.tokens(), c.width()});
    latent_attention_backward(cpu(), {.dq = dq,
                                      .drows = drows,
                                      .dout = in.dout,
                                      .out = to.out,
                                      .lse = to.lse,
                                      .q = in.q,
                                      .rows = in.rows,
                                      .offsets = in.offsets,
                                      .shape = c.shape()});
    return std::array{dq, drows};
  };
  const auto one = run(1), two = run(2);
  for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(close(two[i], one[i], {0, 0})) << "output " << i;
}

TEST(LatentAttention, RefusesACallThatDoesNotFit) {
  const LatentCase c{{4}, 2, 8, 2};
  const LatentInputs in(c);
  const Result to(c);
  AttentionShape capped = c.shape();
  capped.softcap = 1;
  const auto call = [&](const Tensor& out, const Tensor& rows, const AttentionShape& shape) {
    latent_attention_forward(cpu(), {.out = out, .q = in.q, .rows = rows, .offsets = in.offsets, .shape = shape});
  };
  EXPECT_THROW(call(to.out, in.rows, capped), Error);
  EXPECT_THROW(call(to.out, normals({4, 9}, 1), c.shape()), Error);
  EXPECT_THROW(call(poisoned({4, 2, 11}), in.rows, c.shape()), Error);
  // A block table that names no block of the cache, and a length past the table.
  LatentPages pages(c, in, 2);
  Ids lengths({1}, 4);
  const auto paged = [&] {
    latent_attention_paged(
        cpu(), {.out = to.out,
                .q = in.q,
                .cache = {.rows = pages.rows, .block_table = pages.table, .lengths = lengths, .block_size = 2},
                .offsets = in.offsets,
                .shape = c.shape()});
  };
  lengths[0] = 5;
  EXPECT_THROW(paged(), Error);
  lengths[0] = 4;
  pages.table[1] = 9;
  EXPECT_THROW(paged(), Error);
}

}  // namespace
}  // namespace hone::test
