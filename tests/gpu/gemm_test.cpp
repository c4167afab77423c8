#include "kernels/gemm/gemm.h"

#include <optional>

#include "tests/gpu/gpu_check.h"

namespace hone::test {
namespace {

struct Shape {
  int64_t M, N, K;
};
constexpr Shape shapes[] = {{1, 1, 1},      {0, 5, 7},        {3, 5, 7},       {1, 33, 513},   {17, 31, 65},
                            {40, 70, 129},  {65, 97, 1100},   {5, 3, 512},     {130, 48, 64},  {2, 0, 3},
                            {3, 4, 0},      {129, 257, 1032}, {300, 136, 520}, {8, 512, 2056}, {1, 128, 1024},
                            {7, 200, 4864}, {33, 1000, 96},   {64, 72, 896},   {100, 192, 8},  {256, 384, 1536}};

// Calls test(run, name) for each CUDA body. run(arguments...) runs it, or returns false if it does not support the
// arguments.
template <class... A, class Test>
void each_gpu_body(const Op<void(A...)>& op, Test test) {
  for (size_t i = 0; i < op.bodies().size(); ++i) {
    if (op.bodies()[i].device != DeviceKind::cuda) continue;
    const ::testing::ScopedTrace trace(__FILE__, __LINE__, std::string(op.name()) + ", body " + op.bodies()[i].name);
    test([&](std::type_identity_t<A>... arguments) {
      return op.supported(i, arguments...) && (op.run_body(i, *gpu(), arguments...), true);
    });
  }
}

std::string text(const Shape& s) { return concat(s.M, " x ", s.N, " x ", s.K); }

}  // namespace

TEST(GemmForwardOnGpu, AgreesWithTheSpecification) {
  HONE_GPU_OR_SKIP();
  for (const auto& [in, out] :
       {std::pair{DType::f32, DType::f32}, {DType::bf16, DType::bf16}, {DType::bf16, DType::f32}})
    for (size_t index = 0; index < std::size(shapes); ++index)
      for (const int64_t gap : {0, 8, 3})
        for (const size_t turn : {0, 1}) {
          if (!chosen()) continue;
          const Shape& s = shapes[index];
          const size_t extras = (index + static_cast<size_t>(gap) + 2 * turn) % 4;  // bias, residual
          const Floats x = rounded(normals({s.M, s.K}, 1, 1, gap), in), w = rounded(normals({s.N, s.K}, 2, 1, gap), in);
          const Floats bias = rounded(normals({s.N}, 3), out), residual = rounded(normals({s.M, s.N}, 4, 1, gap), out);
          Floats expected = poisoned({s.M, s.N});
          gemm_forward(cpu(), {.y = expected,
                               .x = x,
                               .w = w,
                               .bias = extras & 1 ? bias.tensor() : Tensor(),
                               .residual = extras & 2 ? residual.tensor() : Tensor()});
          const OnGpu gx(x, in), gw(w, in), gbias(bias, out), gresidual(residual, out);
          each_gpu_body(gemm_forward, [&](auto run) {
            OnGpu y = OnGpu::poisoned({s.M, s.N}, out, gap);
            if (!run({.y = y,
                      .x = gx,
                      .w = gw,
                      .bias = extras & 1 ? gbias.tensor() : Tensor(),
                      .residual = extras & 2 ? gresidual.tensor() : Tensor()}))
              return;
            EXPECT_TRUE(agrees(y.read(), expected, out, 2)) << text(s) << ", gap " << gap << ", extras " << extras;
          });
        }
}

TEST(GemmForwardOnGpu, ResidualMayBeTheOutput) {
  HONE_GPU_OR_SKIP();
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Shape& s : {Shape{9, 40, 35}, {300, 264, 1032}, {3, 264, 1032}}) {
      const OnGpu x(normals({s.M, s.K}, 1), dtype), w(normals({s.N, s.K}, 2), dtype);
      each_gpu_body(gemm_forward, [&](auto run) {
        OnGpu apart = OnGpu::poisoned({s.M, s.N}, dtype), in_place(normals({s.M, s.N}, 3), dtype);
        if (!run({.y = apart, .x = x, .w = w, .residual = in_place}) ||
            !run({.y = in_place, .x = x, .w = w, .residual = in_place}))
          return;
        EXPECT_TRUE(close(in_place.read(), apart.read(), {0, 0})) << text(s);
      });
    }
}

// A row's bits depend neither on the number of rows, nor on its index, nor on the body.
TEST(GemmForwardOnGpu, RowsDoNotDependOnTheBatch) {
  HONE_GPU_OR_SKIP();
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const auto& [N, K] : {std::pair<int64_t, int64_t>{264, 2440},
                               {896, 896},
                               {1152, 896},
                               {77, 1203},
                               {520, 512},
                               {72, 4864},
                               {200, 8},
                               {40, 8960},
                               {136, 14336},
                               {3072, 4104},
                               {4736, 4616},
                               {10368, 1536}}) {
      if (!chosen()) continue;
      const int most = sized(1000, 300);
      const OnGpu x(normals({most, K}, 1), dtype), w(normals({N, K}, 2), dtype), bias(normals({N}, 3), dtype);
      const OnGpu residual(normals({most, N}, 4), dtype);
      for (const DType out : {dtype, DType::f32}) {
        OnGpu whole = OnGpu::poisoned({most, N}, out);
        gemm_forward(*gpu(), {.y = whole, .x = x, .w = w, .bias = bias, .residual = residual});
        const Floats expected = whole.read();
        for (const int64_t M :
             sized(std::vector{1, 2, 7, 8, 9, 16, 17, 32, 33, 64, 65, 100, 128, 129, 255, 256, 257, most},
                   {1, 9, 33, 129, most})) {
          each_gpu_body(gemm_forward, [&](auto run) {
            const int64_t first = (M * 31) % (most - M + 1);
            OnGpu part = OnGpu::poisoned({M, N}, out);
            if (!run({.y = part,
                      .x = x.tensor().rows(first, M),
                      .w = w,
                      .bias = bias,
                      .residual = residual.tensor().rows(first, M)}))
              return;
            const Floats rows = part.read();
            int64_t wrong = 0;
            for (int64_t i = 0; i < rows.size(); ++i) wrong += !same_bits(rows[i], expected[first * N + i]);
            EXPECT_EQ(wrong, 0) << text({M, N, K}) << " of " << rows.size() << " elements";
          });
        }
      }
    }
}

// Shapes that reach each tile and several splits of kernels/gemm/mma/dispatch.cu on an H200, with whole and partial
// tiles at the edges.
TEST(GemmForwardOnGpu, BodiesHaveTheSameBits) {
  HONE_GPU_OR_SKIP();
  for (const Shape& s : {Shape{9, 640, 4864},
                         {16, 1152, 896},
                         {40, 904, 2056},
                         {64, 896, 4864},
                         {60, 17928, 1032},
                         {100, 888, 896},
                         {256, 9728, 904},
                         {250, 6136, 1544},
                         {128, 1536, 8960},
                         {1030, 1160, 520},
                         {2100, 392, 1032}}) {
    if (!chosen()) continue;
    const OnGpu x(normals({s.M, s.K}, 1, 1, 8), DType::bf16), w(normals({s.N, s.K}, 2), DType::bf16);
    const OnGpu bias(normals({s.N}, 3), DType::bf16), residual(normals({s.M, s.N}, 4), DType::bf16);
    for (const DType out : {DType::bf16, DType::f32})
      for (const bool extras : {false, true}) {
        std::optional<Floats> expected;
        each_gpu_body(gemm_forward, [&](auto run) {
          OnGpu y = OnGpu::poisoned({s.M, s.N}, out);
          if (!run({.y = y,
                    .x = x,
                    .w = w,
                    .bias = extras ? bias.tensor() : Tensor(),
                    .residual = extras ? residual.tensor() : Tensor()}))
            return;
          const Floats now = y.read();
          if (!expected) expected = y.read();
          int64_t wrong = 0;
          for (int64_t i = 0; i < now.size(); ++i) wrong += !same_bits(now[i], (*expected)[i]);
          EXPECT_EQ(wrong, 0) << text(s) << " of " << now.size() << " elements, extras " << extras;
        });
      }
  }
}

TEST(GemmForwardOnGpu, FastNumericsAgreeWithTheSpecification) {
  HONE_GPU_OR_SKIP();
  gpu()->set_numerics(Numerics::fast);
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Shape& s : shapes) {
      if (!chosen()) continue;
      const Floats x = rounded(normals({s.M, s.K}, 1, 1, 3), dtype), w = rounded(normals({s.N, s.K}, 2), dtype);
      const Floats bias = rounded(normals({s.N}, 3), dtype), residual = rounded(normals({s.M, s.N}, 4), dtype);
      Floats expected = poisoned({s.M, s.N});
      gemm_forward(cpu(), {.y = expected, .x = x, .w = w, .bias = bias, .residual = residual});
      OnGpu y = OnGpu::poisoned({s.M, s.N}, dtype, 5);
      gemm_forward(*gpu(), {.y = y,
                            .x = OnGpu(x, dtype),
                            .w = OnGpu(w, dtype),
                            .bias = OnGpu(bias, dtype),
                            .residual = OnGpu(residual, dtype)});
      EXPECT_TRUE(agrees(y.read(), expected, dtype, 2)) << text(s);
    }
  gpu()->set_numerics(Numerics::exact);
}

TEST(GemmForwardOnGpu, RefusesShapesThatDisagree) {
  HONE_GPU_OR_SKIP();
  const OnGpu x(Floats({2, 3})), w(Floats({4, 5})), y(Floats({2, 4}));
  EXPECT_THROW(gemm_forward(*gpu(), {.y = y, .x = x, .w = w}), Error);
  EXPECT_THROW(
      gemm_forward(*gpu(),
                   {.y = y, .x = x.tensor().columns(0, 2), .w = w.tensor().columns(0, 2), .bias = OnGpu(Floats({3}))}),
      Error);
}

TEST(GemmBackwardInputOnGpu, AgreesWithTheSpecification) {
  HONE_GPU_OR_SKIP();
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Shape& s : shapes)
      for (const int64_t gap : {0, 8, 3}) {
        if (!chosen()) continue;
        const Floats dy = rounded(normals({s.M, s.N}, 3, 1, gap), dtype),
                     w = rounded(normals({s.N, s.K}, 2, 1, gap), dtype);
        Floats expected = poisoned({s.M, s.K});
        gemm_backward_input(cpu(), expected, dy, w);
        OnGpu dx = OnGpu::poisoned({s.M, s.K}, dtype, gap);
        gemm_backward_input(*gpu(), dx, OnGpu(dy, dtype), OnGpu(w, dtype));
        EXPECT_TRUE(agrees(dx.read(), expected, dtype, 2)) << text(s) << ", gap " << gap;
      }
}

TEST(GemmBackwardWeightOnGpu, AgreesWithTheSpecification) {
  HONE_GPU_OR_SKIP();
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const Shape& s : shapes)
      for (const int64_t gap : {0, 3}) {
        if (!chosen()) continue;
        const Floats x = rounded(normals({s.M, s.K}, 1, 1, gap), dtype),
                     dy = rounded(normals({s.M, s.N}, 3, 1, gap), dtype);
        Floats dw = normals({s.N, s.K}, 5, 1, gap), dbias = normals({s.N}, 6);
        const Floats before = dw;
        OnGpu gdw(dw), gdbias(dbias), without(dw), gwritten = OnGpu::poisoned({s.N, s.K}, DType::f32, gap);
        gemm_backward_weight(*gpu(), gdw, gdbias, OnGpu(dy, dtype), OnGpu(x, dtype));
        gemm_backward_weight(*gpu(), without, {}, OnGpu(dy, dtype), OnGpu(x, dtype));
        gemm_backward_weight(*gpu(), {gwritten, false}, {}, OnGpu(dy, dtype), OnGpu(x, dtype));
        Floats written = gwritten.read();
        for (int64_t i = 0; i < written.size(); ++i) written[i] += before[i];
        gemm_backward_weight(cpu(), dw, dbias, dy, x);
        EXPECT_TRUE(agrees(gdw.read(), dw, DType::f32, 2)) << text(s) << ", gap " << gap;
        EXPECT_TRUE(close(written, without.read(), {0, 0})) << text(s) << ", gap " << gap;
        EXPECT_TRUE(agrees(gdbias.read(), dbias, DType::f32, 2)) << text(s) << ", gap " << gap;
        EXPECT_TRUE(close(without.read(), gdw.read(), {0, 0})) << text(s) << ", gap " << gap;
      }
}

TEST(GemmBackwardOnGpu, GivesTheSameBitsTwice) {
  HONE_GPU_OR_SKIP();
  const int64_t M = sized(5000, 700), N = 256, K = 136;
  const OnGpu x(normals({M, K}, 1), DType::bf16), w(normals({N, K}, 2), DType::bf16),
      dy(normals({M, N}, 3), DType::bf16);
  const auto run = [&] {
    OnGpu dx = OnGpu::poisoned({M, K}, DType::bf16), dw = OnGpu::poisoned({N, K}), dbias(Floats({N}));
    gemm_backward_input(*gpu(), dx, dy, w);
    gemm_backward_weight(*gpu(), {dw, false}, dbias, dy, x);
    return std::array{dx.read(), dw.read(), dbias.read()};
  };
  const auto one = run();
  for (int again = 0; again < sized(5, 1); ++again) {
    const auto other = run();
    for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(close(other[i], one[i], {0, 0})) << "output " << i;
  }
}

}  // namespace hone::test
