// The steps of Muon and Adafactor, and whole optimizers, against the CPU.
#include <cmath>

#include "core/config/config.h"
#include "kernels/optimizer/adafactor.h"
#include "kernels/optimizer/muon.h"
#include "tests/gpu/gpu_check.h"
#include "train/optim/newton_schulz.h"
#include "train/optim/optimizer.h"

namespace hone::test {
namespace {

Floats magnitudes(std::initializer_list<int64_t> dims, uint64_t seed) {
  Floats out = normals(dims, seed);
  for (int64_t i = 0; i < out.size(); ++i) out[i] = out[i] * out[i] + 1e-3f;
  return out;
}

// An f64 number on the GPU.
class Double {
 public:
  explicit Double(double value) : bytes_(gpu()->device(), sizeof(double)) {
    gpu()->copy(*this, host_view(std::span(&value, 1)));
  }
  operator Tensor() const { return Tensor(bytes_.data(), DType::f64, DeviceKind::cuda, {1}); }

 private:
  Buffer bytes_;
};

struct Shape {
  int64_t rows, cols;
};
constexpr Shape shapes[] = {{1, 7}, {5, 3}, {33, 64}, {64, 33}, {128, 96}, {1500, 40}, {40, 2100}};

std::unique_ptr<Optimizer> make(const std::string& kind, const std::string& keys) {
  const std::unique_ptr<OptimizerSettings> out = optimizers().at(kind)();
  Config::from_text(keys, "test").read([&](Fields& f) { out->fields(f); });
  return out->make();
}

// A fused matrix and a vector after three steps; value and gradient are given their memory by `place`.
template <class Place>
std::vector<Floats> after_steps(Context& context, const std::string& kind, const std::string& keys, Place place) {
  Param matrix, vector;
  matrix.slices = {{"q", 40}, {"k", 20}, {"v", 20}};
  matrix.shape = {80, 48};
  vector.slices = {{"norm", 100}};
  vector.shape = {100};
  vector.decay = false;
  return place(matrix, vector, [&](Tensor clip) {
    const auto optimizer = make(kind, keys);
    const std::vector<Param*> params{&matrix, &vector};
    optimizer->attach(context, whole_parts(params));
    for (int64_t step = 1; step <= 3; ++step) optimizer->update(context, clip, step, 0.01);
  });
}

}  // namespace

// bf16 weights move as f32 ones do, and the bits repeat.
TEST(OptimizersOnGpu, MoveAModelAsTheCpuDoes) {
  HONE_GPU_OR_SKIP();
  const Floats matrix = rounded(normals({80, 48}, 1), DType::bf16), vector = rounded(normals({100}, 2), DType::bf16),
               matrix_grad = normals({80, 48}, 3), vector_grad = normals({100}, 4), clip({1}, 0.7f);
  for (const std::string& kind : optimizers().names()) {
    SCOPED_TRACE(kind);
    const std::vector<Floats> expected =
        after_steps(cpu(), kind, "weight_decay = 0.1", [&](Param& m, Param& v, const auto& steps) {
          std::vector<Floats> out{matrix, vector};
          m.value = out[0], m.grad = matrix_grad, v.value = out[1], v.grad = vector_grad;
          steps(clip);
          return out;
        });
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const auto run = [&] {
        return after_steps(*gpu(), kind, "weight_decay = 0.1", [&](Param& m, Param& v, const auto& steps) {
          OnGpu m_value(matrix, dtype), v_value(vector, dtype), m_grad(matrix_grad), v_grad(vector_grad), factor(clip);
          m.value = m_value, m.grad = m_grad, v.value = v_value, v.grad = v_grad;
          steps(factor);
          return std::vector<Floats>{m_value.read(), v_value.read()};
        });
      };
      const std::vector<Floats> found = run(), again = run();
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_TRUE(close(found[i], again[i], {0, 0})) << "the bits repeat";
        // bf16: the rounding of values near 1; Muon's iteration is in bf16, too.
        EXPECT_TRUE(close(found[i], expected[i], dtype == DType::bf16 ? Tolerance{8e-3, 5e-3} : Tolerance{1e-5, 1e-5}))
            << i;
      }
    }
  }
}

TEST(MuonOnGpu, MomentumHasTheSpecificationsBits) {
  HONE_GPU_OR_SKIP();
  for (const int64_t n : {1, 33, 1023, 40000})
    for (const DType dtype : {DType::f32, DType::bf16})
      for (const bool nesterov : {false, true})
        for (const int64_t skip : {0, 1}) {
          const Floats grad = normals({n}, 1), start = rounded(normals({n}, 2), dtype), clip({1}, 0.7f);
          Floats update = poisoned({n});
          Numbers<bf16> small({n});
          Floats buffer = start;
          for (int64_t i = 0; i < n; ++i) small[i] = to_bf16(start[i]);
          OnGpu update_there = OnGpu::poisoned({n}), buffer_there(start, dtype), grad_there(grad), clip_there(clip);
          const auto part = [&](const Tensor& x) { return x.rows(skip, n - skip); };
          const MuonMomentumStep step{.nesterov = nesterov, .seed = 3, .stream = 4};
          muon_momentum(cpu(), {.update = part(update),
                                .buffer = part(dtype == DType::bf16 ? Tensor(small) : Tensor(buffer)),
                                .grad = part(grad),
                                .clip = clip,
                                .first = 64 + skip,
                                .step = step});
          muon_momentum(*gpu(), {.update = part(update_there),
                                 .buffer = part(buffer_there),
                                 .grad = part(grad_there),
                                 .clip = clip_there,
                                 .first = 64 + skip,
                                 .step = step});
          for (int64_t i = 0; dtype == DType::bf16 && i < n; ++i) buffer[i] = to_float(small[i]);
          const Floats found = update_there.read();
          for (int64_t i = skip; i < n; ++i) ASSERT_TRUE(same_bits(found[i], update[i])) << n << " " << i;
          EXPECT_TRUE(close(buffer_there.read(), buffer, {0, 0})) << n;
        }
}

TEST(MuonOnGpu, NormalizeSumAndApplyHaveTheSpecificationsBits) {
  HONE_GPU_OR_SKIP();
  for (const auto& [rows, cols] : shapes)
    for (const bool transposed : {false, true}) {
      SCOPED_TRACE(concat(rows, " x ", cols, transposed ? ", transposed" : ""));
      const Floats update = normals({rows, cols}, 1), start = normals({rows * cols}, 2);
      Floats x = transposed ? poisoned({cols, rows}) : poisoned({rows, cols});
      double squares = 12.5;
      const Double squares_there(squares);
      const OnGpu update_there(update);
      OnGpu x_there = transposed ? OnGpu::poisoned({cols, rows}) : OnGpu::poisoned({rows, cols});
      muon_normalize(cpu(), {.x = x,
                             .update = update,
                             .squares = Tensor(&squares, DType::f64, DeviceKind::cpu, {1}),
                             .transposed = transposed});
      muon_normalize(*gpu(),
                     {.x = x_there, .update = update_there, .squares = squares_there, .transposed = transposed});
      EXPECT_TRUE(close(x_there.read(), x, {0, 0}));

      Floats sum = start;
      OnGpu sum_there(start);
      const auto flat = [](const Tensor& t) { return Tensor(t.data, t.dtype, t.device, {t.size()}); };
      scaled_sum(cpu(), {.y = sum, .x = flat(x), .a = 3.4445f, .b = -4.775f});
      scaled_sum(*gpu(), {.y = sum_there, .x = flat(x_there), .a = 3.4445f, .b = -4.775f});
      EXPECT_TRUE(close(sum_there.read(), sum, {0, 0}));

      const int64_t first = rows * cols / 3, count = rows * cols - first;
      Floats value = start;
      Numbers<bf16> coarse({rows * cols});
      OnGpu value_there(start), coarse_there = OnGpu::poisoned({rows * cols}, DType::bf16);
      const auto part = [&](const Tensor& t) { return t.rows(first, count); };
      muon_apply(cpu(), {.value = part(value),
                         .rounded = part(coarse),
                         .direction = x,
                         .first = first,
                         .transposed = transposed,
                         .keep = 0.9f,
                         .rate = 0.3f});
      muon_apply(*gpu(), {.value = part(value_there),
                          .rounded = part(coarse_there),
                          .direction = x_there,
                          .first = first,
                          .transposed = transposed,
                          .keep = 0.9f,
                          .rate = 0.3f});
      EXPECT_TRUE(close(value_there.read(), value, {0, 0}));
      const Floats found = coarse_there.read();
      for (int64_t i = first; i < rows * cols; ++i) ASSERT_TRUE(same_bits(found[i], to_float(coarse[i]))) << i;
    }
}

TEST(MuonOnGpu, OrthogonalizesAsTheCpuDoes) {
  HONE_GPU_OR_SKIP();
  for (const auto& [rows, cols] : shapes) {
    if (rows < 2) continue;
    SCOPED_TRACE(concat(rows, " x ", cols));
    const Floats update = normals({rows, cols}, 1);
    const OnGpu update_there(update);
    const ScratchScope here(cpu()), there(*gpu());
    const Orthogonal expected = orthogonalize(cpu(), update, {});
    for (const DType dtype : {DType::f32, DType::bf16}) {
      const Orthogonal found = orthogonalize(*gpu(), update_there, {.dtype = dtype});
      const Orthogonal again = orthogonalize(*gpu(), update_there, {.dtype = dtype});
      ASSERT_EQ(found.transposed, expected.transposed);
      const auto read = [&](const Tensor& x) {
        std::vector<std::byte> bytes(x.bytes());
        gpu()->copy(Tensor(bytes.data(), x.dtype, DeviceKind::cpu, x.dims()), x);
        return bytes;
      };
      const std::vector<std::byte> bytes = read(found.direction);
      EXPECT_TRUE(bytes == read(again.direction)) << "the bits repeat";
      double error = 0, size = 0;
      for (int64_t i = 0; i < rows * cols; ++i) {
        float one;
        if (dtype == DType::bf16) {
          bf16 coarse;
          std::memcpy(&coarse, bytes.data() + static_cast<size_t>(i) * sizeof coarse, sizeof coarse);
          one = to_float(coarse);
        } else {
          std::memcpy(&one, bytes.data() + static_cast<size_t>(i) * sizeof one, sizeof one);
        }
        const double want = expected.direction.as<float>()[static_cast<size_t>(i)];
        error += (one - want) * (one - want);
        size += want * want;
      }
      EXPECT_LT(std::sqrt(error / size), dtype == DType::bf16 ? 0.05 : 1e-4);
    }
  }
}

TEST(AdafactorOnGpu, AgreesWithTheSpecification) {
  HONE_GPU_OR_SKIP();
  const Tolerance tolerance{2e-6, 1e-9};
  for (const auto& [rows, cols] : shapes) {
    SCOPED_TRACE(concat(rows, " x ", cols));
    const Floats grad = normals({rows, cols}, 1), clip({1}, 0.7f), start = normals({rows * cols}, 5);
    Floats update = poisoned({rows, cols}), row = magnitudes({rows}, 2), col = magnitudes({cols}, 3),
           square = magnitudes({rows * cols}, 4), value = start, mean = start;
    const OnGpu grad_there(grad), clip_there(clip);
    OnGpu update_there = OnGpu::poisoned({rows, cols}), row_there(row), col_there(col), square_there(square),
          value_there(start), mean_there(start);
    const AdafactorStep step{.beta2 = 0.8f};
    adafactor_factored(cpu(), {.update = update, .row = row, .col = col, .grad = grad, .clip = clip, .step = step});
    adafactor_factored(*gpu(), {.update = update_there,
                                .row = row_there,
                                .col = col_there,
                                .grad = grad_there,
                                .clip = clip_there,
                                .step = step});
    EXPECT_TRUE(close(row_there.read(), row, tolerance));
    EXPECT_TRUE(close(col_there.read(), col, tolerance));
    EXPECT_TRUE(close(update_there.read(), update, tolerance));
    const auto flat = [](const Tensor& t) { return Tensor(t.data, t.dtype, t.device, {t.size()}); };
    double squares = 77, value_squares = 3;
    const Double squares_there(squares), value_squares_there(value_squares);
    AdafactorApply apply{.value = value,
                         .mean = mean,
                         .update = flat(update),
                         .squares = Tensor(&squares, DType::f64, DeviceKind::cpu, {1}),
                         .value_squares = Tensor(&value_squares, DType::f64, DeviceKind::cpu, {1}),
                         .size = rows * cols,
                         .rate = 0.1f,
                         .beta1 = 0.5f,
                         .weight_decay = 0.1f};
    adafactor_apply(cpu(), apply);
    apply.value = value_there, apply.mean = mean_there, apply.update = flat(update_there);
    apply.squares = squares_there, apply.value_squares = value_squares_there;
    adafactor_apply(*gpu(), apply);
    EXPECT_TRUE(close(value_there.read(), value, tolerance));
    EXPECT_TRUE(close(mean_there.read(), mean, {2e-6, 1e-7}));
    adafactor_vector(cpu(), {.update = flat(update), .square = square, .grad = flat(grad), .clip = clip, .step = step});
    adafactor_vector(*gpu(), {.update = flat(update_there),
                              .square = square_there,
                              .grad = flat(grad_there),
                              .clip = clip_there,
                              .step = step});
    EXPECT_TRUE(close(square_there.read(), square, {0, 0}));
    EXPECT_TRUE(close(update_there.read(), update, {0, 0}));
  }
}

}  // namespace hone::test
