// The lm_head of distillation on a GPU, compared with the specification: teachers as models and as their most likely
// tokens, sizes that fit no tile, and outputs that hold NaNs before.
#include "kernels/lm_head/distill.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "tests/gpu/gpu_check.h"

namespace hone::test {
namespace {

struct Shape {
  int64_t R, V, D, Dt;
};
constexpr Shape shapes[] = {{1, 1, 8, 8},       {1, 77, 16, 8},      {5, 200, 8, 24},
                            {67, 1025, 40, 72}, {300, 4099, 64, 32}, {33, 50257, 64, 48}};
constexpr Divergence kinds[] = {{0, 1}, {1, 0.5}, {0.5, 1}, {0.1, 1.25}};
constexpr TopRest rests[] = {TopRest::bucket, TopRest::renormalize, TopRest::ignore};

struct Inputs {
  Floats hidden, w, teacher_hidden, teacher_w, weight;
  Inputs(const Shape& s, DType dtype)
      : hidden(rounded(normals({s.R, s.D}, 1, 1, 3), dtype)),
        w(rounded(normals({s.V, s.D}, 2, 0.5, 5), dtype)),
        teacher_hidden(rounded(normals({s.R, s.Dt}, 3), dtype)),
        teacher_w(rounded(normals({s.V, s.Dt}, 4, 0.5), dtype)),
        weight(normals({s.R}, 5)) {}
};

// The most likely K tokens under random logits: fewer in some rows, and an id that is not in the vocabulary nowhere.
struct TopTokensOfRows {
  Ids ids;
  Floats logp;
  TopTokensOfRows(const Shape& s, int64_t K) : ids({s.R, K}), logp({s.R, K}) {
    const Floats logits = normals({s.R, s.V}, 8, 2);
    for (int64_t r = 0; r < s.R; ++r) {
      std::vector<std::pair<float, int32_t>> all;
      double sum = 0;
      for (int64_t v = 0; v < s.V; ++v) {
        all.emplace_back(logits[r * s.V + v], static_cast<int32_t>(v));
        sum += std::exp(static_cast<double>(all.back().first));
      }
      std::ranges::sort(all, std::greater());
      for (int64_t k = 0; k < K; ++k) {
        const bool absent = r % 4 == 2 && k > 0;
        const auto& [logit, id] = all[static_cast<size_t>(k)];
        ids[r * K + k] = absent ? -1 : id;
        logp[r * K + k] = absent ? 0 : static_cast<float>(static_cast<double>(logit) - std::log(sum));
      }
    }
  }
};

struct Outputs {
  Floats divergence, dhidden, dw;
  explicit Outputs(const Shape& s)
      : divergence(poisoned({s.R})), dhidden(normals({s.R, s.D}, 6, 0.1f)), dw(normals({s.V, s.D}, 7, 0.1f)) {}
};

// The op on the GPU and on the CPU. set: adds the teacher to a call; its arguments are tensors of either device.
using SetTeacher = std::function<void(Distill& call, bool on_gpu)>;

void expect_same(const Shape& s, DType dtype, const Inputs& in, const Divergence& kind, const SetTeacher& set) {
  const Outputs expected(s);
  Distill call{.divergence = expected.divergence,
               .dhidden = expected.dhidden,
               .dw = expected.dw,
               .weight = in.weight,
               .hidden = in.hidden,
               .w = in.w,
               .kind = kind};
  set(call, false);
  distill(cpu(), call);

  const Outputs before(s);
  OnGpu divergence(before.divergence), dhidden(rounded(before.dhidden, dtype), dtype), dw(before.dw), weight(in.weight),
      hidden(in.hidden, dtype), w(in.w, dtype);
  Distill on_gpu{
      .divergence = divergence, .dhidden = dhidden, .dw = dw, .weight = weight, .hidden = hidden, .w = w, .kind = kind};
  set(on_gpu, true);
  distill(*gpu(), on_gpu);
  const bool is_f32 = dtype == DType::f32;
  EXPECT_TRUE(close(divergence.read(), expected.divergence, {is_f32 ? 2e-5 : 2e-3, 1e-3}));
  EXPECT_TRUE(close(dhidden.read(), expected.dhidden, {is_f32 ? 1e-4 : 4e-2, 2e-2}));
  EXPECT_TRUE(close(dw.read(), expected.dw, {is_f32 ? 2e-4 : 4e-2, 2e-2}));

  // Without gradients the divergence has the same bits.
  OnGpu again(poisoned({s.R}));
  on_gpu.divergence = again;
  on_gpu.dhidden = {};
  on_gpu.dw = {};
  distill(*gpu(), on_gpu);
  const Floats with = divergence.read(), without = again.read();
  for (int64_t r = 0; r < s.R; ++r) ASSERT_TRUE(same_bits(with[r], without[r])) << r;
}

TEST(DistillOnGpu, AgreesWithTheSpecification) {
  HONE_GPU_OR_SKIP();
  for (const Shape& s : shapes)
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const Divergence& kind : kinds) {
        const ::testing::ScopedTrace trace(
            __FILE__, __LINE__, concat(s.R, " x ", s.V, " x ", s.D, " ", name_of(dtype), " beta ", kind.beta));
        const Inputs in(s, dtype);
        const OnGpu hidden(in.teacher_hidden, dtype), w(in.teacher_w, dtype);
        expect_same(s, dtype, in, kind, [&](Distill& call, bool on_gpu) {
          call.teacher_hidden = on_gpu ? hidden.tensor() : in.teacher_hidden.tensor();
          call.teacher_w = on_gpu ? w.tensor() : in.teacher_w.tensor();
        });
      }
}

TEST(DistillOnGpu, TheMostLikelyTokensToo) {
  HONE_GPU_OR_SKIP();
  for (const Shape& s : shapes)
    for (const int64_t K : {1, 5, 64, 256}) {
      if (K > s.V) continue;
      const TopTokensOfRows top(s, K);
      const OnGpu ids(top.ids), logp(top.logp);
      for (const DType dtype : {DType::f32, DType::bf16})
        for (const TopRest rest : rests) {
          const ::testing::ScopedTrace trace(__FILE__, __LINE__,
                                             concat(s.R, " x ", s.V, " ", K, " tokens ", name_of(dtype)));
          expect_same(s, dtype, Inputs(s, dtype), {.beta = 0, .inv_temperature = 1.25},
                      [&](Distill& call, bool on_gpu) {
                        call.top_ids = on_gpu ? ids.tensor() : top.ids.tensor();
                        call.top_logp = on_gpu ? logp.tensor() : top.logp.tensor();
                        call.rest = rest;
                      });
        }
    }
}

TEST(DistillOnGpu, SoftcapsAgreeWithTheSpecification) {
  HONE_GPU_OR_SKIP();
  for (const Shape& s : shapes)
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const ::testing::ScopedTrace trace(__FILE__, __LINE__, concat(s.R, " x ", s.V, " x ", s.D, " ", name_of(dtype)));
      const Inputs in(s, dtype);
      const OnGpu hidden(in.teacher_hidden, dtype), w(in.teacher_w, dtype);
      for (const Divergence& kind : kinds)
        expect_same(s, dtype, in, kind, [&](Distill& call, bool on_gpu) {
          call.teacher_hidden = on_gpu ? hidden.tensor() : in.teacher_hidden.tensor();
          call.teacher_w = on_gpu ? w.tensor() : in.teacher_w.tensor();
          call.softcap = 4;
          call.teacher_softcap = 3;
        });
      const TopTokensOfRows top(s, std::min<int64_t>(s.V, 20));
      const OnGpu ids(top.ids), logp(top.logp);
      for (const TopRest rest : rests)
        expect_same(s, dtype, in, {.beta = 0, .inv_temperature = 1.25}, [&](Distill& call, bool on_gpu) {
          call.top_ids = on_gpu ? ids.tensor() : top.ids.tensor();
          call.top_logp = on_gpu ? logp.tensor() : top.logp.tensor();
          call.rest = rest;
          call.softcap = 4;
        });
    }
}

TEST(DistillOnGpu, RowsDoNotDependOnTheBatch) {
  HONE_GPU_OR_SKIP();
  const Shape s{150, 9001, 64, 32};
  const TopTokensOfRows top(s, 20);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const Inputs in(s, dtype);
    const OnGpu hidden(in.hidden, dtype), w(in.w, dtype), weight(in.weight), ids(top.ids), logp(top.logp);
    const auto run = [&](int64_t first, int64_t count) {
      OnGpu out(poisoned({count}));
      distill(*gpu(), {.divergence = out,
                       .weight = weight.tensor().rows(first, count),
                       .hidden = hidden.tensor().rows(first, count),
                       .w = w,
                       .top_ids = ids.tensor().rows(first, count),
                       .top_logp = logp.tensor().rows(first, count),
                       .kind = {}});
      return out.read();
    };
    const Floats whole = run(0, s.R);
    for (const int64_t count : {1, 7, 64, 129}) {
      const int64_t first = count * 31 % (s.R - count + 1);
      const Floats part = run(first, count);
      for (int64_t r = 0; r < count; ++r) ASSERT_TRUE(same_bits(part[r], whole[first + r])) << count << " rows";
    }
  }
}

}  // namespace
}  // namespace hone::test
