#include "kernels/rope/latent_rows.h"

#include "kernels/rope/rope.h"
#include "tests/kernels/op_cases.h"
#include "tests/kernels/op_contract.h"

namespace hone::test {
namespace {

struct Case {
  int64_t tokens, heads, rank, rope, nope;
  bool interleaved, cached;
};
constexpr Case cases[] = {{1, 1, 4, 2, 0, false, true},
                          {5, 3, 24, 8, 12, true, false},
                          {17, 2, 16, 16, 3, true, true},
                          {40, 4, 9, 6, 5, false, true},
                          {0, 2, 8, 4, 4, true, false}};

struct Inputs {
  explicit Inputs(const Case& c)
      : q_in(normals({c.tokens, c.heads, c.nope + c.rope}, 1, 1, 2)),
        row_in(normals({c.tokens, c.rank + c.rope}, 2, 1, 3)),
        positions({c.tokens}),
        slots({c.tokens}),
        cos_sin({64, c.rope}) {
    for (int64_t t = 0; t < c.tokens; ++t) positions[t] = static_cast<int32_t>(3 * t % 64);
    for (int64_t t = 0; t < c.tokens; ++t) slots[t] = static_cast<int32_t>(c.tokens - 1 - t);
    rope_table(cos_sin, {.dim = c.rope, .theta = 100});
  }
  Floats q_in, row_in;
  Ids positions, slots;
  Floats cos_sin;
};

[[maybe_unused]] const bool added = op_cases().add("latent_rows_forward", [] {
  for (const Case& c : cases) {
    const Inputs in(c);
    const Floats q = normals({c.tokens, c.heads, c.rank + c.rope}, 3), rows = normals({c.tokens, c.rank + c.rope}, 4),
                 cache = poisoned({c.tokens + 2, c.rank + c.rope}, 1);
    LatentRowsForward args{.q = q,
                           .rows = rows,
                           .q_in = in.q_in,
                           .row_in = in.row_in,
                           .positions = in.positions,
                           .cos_sin = in.cos_sin,
                           .interleaved = c.interleaved};
    if (c.cached) {
      args.cache = cache;
      args.slots = in.slots;
    }
    expect_bodies_agree(latent_rows_forward, {1e-6, 1e-6}, args);
  }
}) && op_cases().add("latent_rows_backward", [] {
  for (const Case& c : cases) {
    const Inputs in(c);
    const Floats dq = normals({c.tokens, c.heads, c.rank + c.rope}, 3), drows = normals({c.tokens, c.rank + c.rope}, 4);
    expect_bodies_agree(latent_rows_backward, {1e-6, 1e-6},
                        {.dq_in = in.q_in,
                         .drow_in = in.row_in,
                         .dq = dq,
                         .drows = drows,
                         .positions = in.positions,
                         .cos_sin = in.cos_sin,
                         .interleaved = c.interleaved});
  }
});

// Pair i is turned by its angle, wherever its two numbers stand.
TEST(LatentRows, RotatesPairs) {
  for (const bool interleaved : {false, true}) {
    const Case c{6, 2, 3, 4, 1, interleaved, true};
    const Inputs in(c);
    Floats q({6, 2, 7}, -1), rows({6, 7}, -2), cache = poisoned({6, 7});
    latent_rows_forward(cpu(), {.q = q,
                                .rows = rows,
                                .q_in = in.q_in,
                                .row_in = in.row_in,
                                .positions = in.positions,
                                .cos_sin = in.cos_sin,
                                .interleaved = interleaved,
                                .cache = cache,
                                .slots = in.slots});
    for (int64_t t = 0; t < 6; ++t) {
      for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(rows[t * 7 + i], -2);  // the latent belongs to the norm
      for (int64_t i = 0; i < 7; ++i) EXPECT_EQ(cache[in.slots[t] * 7 + i], rows[t * 7 + i]);
      for (int64_t i = 0; i < 2; ++i) {
        const double angle = in.positions[t] * std::pow(100.0, static_cast<double>(-i) / 2);
        const int64_t first = interleaved ? 2 * i : i, second = interleaved ? 2 * i + 1 : i + 2;
        for (int64_t h = 0; h < 2; ++h) {
          const double a = in.q_in[(t * 2 + h) * 5 + 1 + first], b = in.q_in[(t * 2 + h) * 5 + 1 + second];
          EXPECT_NEAR(q[(t * 2 + h) * 7 + 3 + i], a * std::cos(angle) - b * std::sin(angle), 1e-5);
          EXPECT_NEAR(q[(t * 2 + h) * 7 + 5 + i], b * std::cos(angle) + a * std::sin(angle), 1e-5);
        }
      }
    }
  }
}

TEST(LatentRows, GradientsAreFiniteDifferences) {
  for (const bool interleaved : {false, true}) {
    const Case c{3, 2, 3, 4, 2, interleaved, false};
    Inputs in(c);
    const Floats dq = normals({3, 2, 7}, 5), drows = normals({3, 7}, 6);
    const auto loss = [&] {
      const Floats q({3, 2, 7}), rows({3, 7});
      latent_rows_forward(cpu(), {.q = q,
                                  .rows = rows,
                                  .q_in = in.q_in,
                                  .row_in = in.row_in,
                                  .positions = in.positions,
                                  .cos_sin = in.cos_sin,
                                  .interleaved = interleaved});
      double sum = 0;
      for (int64_t i = 0; i < q.size(); ++i) sum += double{q[i]} * double{dq[i]};
      for (int64_t i = 0; i < rows.size(); ++i) sum += double{rows[i]} * double{drows[i]};
      return sum;
    };
    const Floats dq_in({3, 2, 6}), drow_in({3, 7});
    latent_rows_backward(cpu(), {.dq_in = dq_in,
                                 .drow_in = drow_in,
                                 .dq = dq,
                                 .drows = drows,
                                 .positions = in.positions,
                                 .cos_sin = in.cos_sin,
                                 .interleaved = interleaved});
    expect_gradient(loss, in.q_in, dq_in);
    expect_gradient(loss, in.row_in, drow_in);
  }
}

TEST(LatentRows, RefusesPositionsAndSlotsOutside) {
  const Case c{3, 2, 3, 4, 2, false, true};
  Inputs in(c);
  const Floats q({3, 2, 7}), rows({3, 7}), cache({3, 7});
  const auto run = [&] {
    latent_rows_forward(cpu(), {.q = q,
                                .rows = rows,
                                .q_in = in.q_in,
                                .row_in = in.row_in,
                                .positions = in.positions,
                                .cos_sin = in.cos_sin,
                                .cache = cache,
                                .slots = in.slots});
  };
  in.positions[1] = 64;
  EXPECT_THROW(run(), Error);
  in.positions[1] = 0;
  in.slots[2] = 3;
  EXPECT_THROW(run(), Error);
}

}  // namespace
}  // namespace hone::test
